//! The scopes of a unit: the namespaces, classes and functions that its entries lie in.
//!
//! An entry has no reference to its parent; a walk over its unit finds it. Functions and classes are
//! most of a C++ unit, and only those around an entry are walked: the others are skipped by
//! DW_AT_sibling, which gcc writes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gimli::SectionId;
use rustc_hash::FxHashMap;

use super::abbreviation::has_sibling;
use super::error::Result;
use super::unit::{Reference, Unit};

/// The depth of nested scopes that are skipped; deeper ones have no names.
const DEPTH: usize = 64;

/// The memory of a table of scopes without the scopes, in bytes, about.
const TABLE: usize = 64;

/// A namespace, class or function. Offsets count from the first entry of the unit.
#[derive(Clone, Copy, Debug)]
struct Scope {
    entry: u32,
    /// The end of its children.
    end: u32,
    /// The index of the scope it lies in, in the same table.
    parent: Option<u32>,
    /// True if its children are not in the table.
    is_skipped: bool,
}

/// The scopes among the children of an entry, sorted by their offset.
type Table = Box<[Scope]>;

/// The scopes of one unit.
#[derive(Debug)]
pub(crate) struct Scopes {
    unit: Table,
    /// Those inside of skipped scopes, by the offset of the skipped scope.
    nested: RefCell<FxHashMap<u32, Rc<Table>>>,
    nested_bytes: Cell<usize>,
}

impl Scopes {
    /// Reads the outer scopes of a unit; those after a malformed entry are missing.
    pub(crate) fn read(unit: &Unit) -> Self {
        let unit = table(unit, unit.head.entries, unit.head.end);
        Self { unit, nested: RefCell::default(), nested_bytes: Cell::default() }
    }

    /// Returns the entries of the scopes around an entry, the outermost first, without itself.
    pub(crate) fn around(&self, unit: &Unit, entry: u64) -> Vec<u64> {
        let start = unit.head.entries;
        let mut around = Vec::new();
        let Some(Ok(entry)) = entry.checked_sub(start).map(u32::try_from) else { return around };
        let mut skipped = chain(&self.unit, entry, start, &mut around);
        for _ in 0..DEPTH {
            let Some(scope) = skipped else { break };
            let nested = self.nested(unit, &scope);
            skipped = chain(&nested, entry, start, &mut around);
        }
        around
    }

    /// Returns the scopes inside of a skipped one.
    fn nested(&self, unit: &Unit, scope: &Scope) -> Rc<Table> {
        if let Some(known) = self.nested.borrow().get(&scope.entry) {
            return Rc::clone(known);
        }
        let start = unit.head.entries;
        let read = table(unit, start + u64::from(scope.entry), start + u64::from(scope.end));
        self.nested_bytes.set(self.nested_bytes.get() + size_of_val(&*read) + TABLE);
        let read = Rc::new(read);
        self.nested.borrow_mut().insert(scope.entry, Rc::clone(&read));
        read
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        TABLE + size_of_val(&*self.unit) + self.nested_bytes.get()
    }
}

/// Appends the scopes of a table around an entry, the outermost first. Returns the innermost one
/// if its children are not in the table.
fn chain(table: &Table, entry: u32, start: u64, around: &mut Vec<u64>) -> Option<Scope> {
    let after = table.partition_point(|scope| scope.entry < entry);
    let parent = |scope: Scope| scope.parent.map(|index| table[index as usize]);
    let mut scope = after.checked_sub(1).map(|index| table[index]);
    // The last scope that begins before the entry may have ended before it; so may its parents.
    while let Some(before) = scope.filter(|scope| scope.end <= entry) {
        scope = parent(before);
    }
    let begun = around.len();
    let chain = std::iter::successors(scope, |&scope| parent(scope));
    around.extend(chain.map(|scope| start + u64::from(scope.entry)));
    around[begun..].reverse();
    scope.filter(|scope| scope.is_skipped)
}

/// Reads the scopes inside of the entry at `from`, up to the end of its children at `to`.
fn table(unit: &Unit, from: u64, to: u64) -> Table {
    let mut scopes = Vec::new();
    // A malformed entry ends the walk; the scopes before it are good.
    let _ = walk(unit, from, to, &mut scopes);
    scopes.into()
}

fn walk(unit: &Unit, from: u64, to: u64, scopes: &mut Vec<Scope>) -> Result<()> {
    let start = unit.head.entries;
    let info = unit.data.section(SectionId::DebugInfo)?;
    let length = (to.saturating_sub(from)).min(unit.length()?);
    let bytes = if from == start { info.keep(from, length)? } else { info.range(from, length)? };
    let abbreviations = unit.abbreviations()?;
    let mut entries = unit.walk(&bytes, &abbreviations);
    // gimli's walk cannot jump: after skipped children, a new one begins at the sibling, and its
    // offsets and depths count from there.
    let (mut base, mut base_depth) = (0, 0);
    // The scopes around the walk's position: their depth and index.
    let mut open: Vec<(isize, u32)> = Vec::new();
    let end = (to - start) as u32;
    while !entries.is_empty() {
        let at = base + entries.next_offset().0;
        let depth = base_depth + entries.next_depth();
        let offset = (from - start) as u32 + at as u32;
        while let Some((_, index)) = open.pop_if(|(begun, _)| depth <= *begun) {
            scopes[index as usize].end = offset;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        // The entry itself; the caller knows it.
        let is_first = at == 0;
        let mut sibling = None;
        if !is_first && is_skippable(abbreviation.tag()) && has_sibling(abbreviation) {
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                if attribute.name() == gimli::DW_AT_sibling {
                    sibling = unit.reference(attribute.value());
                }
            }
        } else {
            entries.skip_attributes(abbreviation.attributes())?;
        }
        // A sibling before this entry is malformed; following it might not end.
        let sibling = match sibling {
            Some(Reference::Here(sibling)) => usize::try_from(sibling.saturating_sub(from)).ok(),
            _ => None,
        };
        let rest =
            sibling.filter(|sibling| *sibling > at).and_then(|at| Some((at, bytes.get(at..)?)));
        let is_skipped = rest.is_some();
        if !is_first && is_scope(abbreviation.tag()) && abbreviation.has_children() {
            let parent = open.last().map(|&(_, index)| index);
            open.push((depth, scopes.len() as u32));
            scopes.push(Scope { entry: offset, end, parent, is_skipped });
        }
        if let Some((sibling, rest)) = rest {
            entries = unit.walk(rest, &abbreviations);
            (base, base_depth) = (sibling, depth);
        }
    }
    Ok(())
}

fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_subprogram
    )
}

/// True if the children of such an entry are read only when an entry among them is looked up, or
/// never, where it is no scope.
fn is_skippable(tag: gimli::DwTag) -> bool {
    is_scope(tag) && tag != gimli::DW_TAG_namespace
        || matches!(tag, gimli::DW_TAG_enumeration_type | gimli::DW_TAG_subroutine_type)
}
