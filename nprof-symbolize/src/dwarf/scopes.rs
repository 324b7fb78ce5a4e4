//! The scopes of a unit: what namespaces, classes and functions its entries lie in.
//!
//! An entry does not say where it lies; the walk over its unit does.

use gimli::SectionId;

use super::error::Result;
use super::unit::Unit;

/// A namespace, class or function.
#[derive(Clone, Copy, Debug)]
struct Scope {
    /// Its entry, and what is behind the last entry inside of it, in `.debug_info`.
    entry: u64,
    end: u64,
    /// The index of the scope it lies in.
    parent: Option<u32>,
}

/// The scopes of one unit, by where they begin.
#[derive(Debug)]
pub(crate) struct Scopes(Box<[Scope]>);

impl Scopes {
    /// Reads the scopes of a unit; those behind an entry that cannot be read are left out.
    pub(crate) fn read(unit: &Unit) -> Self {
        let mut scopes = Vec::new();
        // An error ends the walk, and what was found stays good.
        let _ = walk(unit, &mut scopes);
        Self(scopes.into())
    }

    /// The entries of the scopes around an entry, the innermost first, itself not counted.
    pub(crate) fn around(&self, entry: u64) -> impl Iterator<Item = u64> {
        let after = self.0.partition_point(|scope| scope.entry < entry);
        let mut scope = after.checked_sub(1).map(|index| self.0[index]);
        let parent = |scope: Scope| scope.parent.map(|index| self.0[index as usize]);
        while let Some(before) = scope.filter(|scope| scope.end <= entry) {
            scope = parent(before);
        }
        std::iter::successors(scope, move |&scope| parent(scope)).map(|scope| scope.entry)
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

fn walk(unit: &Unit, scopes: &mut Vec<Scope>) -> Result<()> {
    let start = unit.head.entries;
    let info = unit.data.section(SectionId::DebugInfo)?;
    let bytes = info.range(start, unit.length()?)?;
    let abbreviations = unit.abbreviations()?;
    let mut entries = unit.walk(&bytes, abbreviations);
    // The scopes that have begun and not ended: their depth and index.
    let mut open: Vec<(isize, u32)> = Vec::new();
    while !entries.is_empty() {
        let (at, depth) = (start + entries.next_offset().0 as u64, entries.next_depth());
        while let Some((_, index)) = open.pop_if(|(begun, _)| depth <= *begun) {
            scopes[index as usize].end = at;
        }
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if is_scope(abbreviation.tag()) && abbreviation.has_children() {
            let parent = open.last().map(|&(_, index)| index);
            open.push((depth, scopes.len() as u32));
            scopes.push(Scope { entry: at, end: unit.head.end, parent });
        }
        entries.skip_attributes(abbreviation.attributes())?;
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
