//! The scopes of C++ names: what namespaces, classes and functions an entry of the debug
//! information lies in. Pure.
//!
//! A function that exists only where it was inlined, in its own file, has no linkage name, and
//! its own name alone does not tell it from others: all lambdas are called `operator()`.

use gimli::{AttributeValue, Reader, UnitOffset, UnitRef};

/// How many references from entry to entry are followed to the one that declares a function.
const REFERENCES: usize = 8;

/// The longest name that is put together, bytes.
const LONGEST: usize = 4 << 10;

/// A namespace, class or function.
#[derive(Debug)]
struct Scope<R: Reader> {
    /// The offsets in the unit of its first entry, and of the first behind it.
    start: UnitOffset<R::Offset>,
    end: UnitOffset<R::Offset>,
    /// The index of the scope it lies in.
    parent: Option<usize>,
    depth: isize,
    name: Option<R>,
    tag: gimli::DwTag,
}

/// The scopes of one unit, by where they begin.
#[derive(Debug)]
pub(crate) struct Scopes<R: Reader>(Vec<Scope<R>>);

impl<R: Reader> Scopes<R> {
    /// Reads the scopes of a unit; those behind an entry that cannot be read are left out.
    pub(crate) fn read(unit: UnitRef<'_, R>) -> Self {
        let mut scopes = Self(Vec::new());
        // An error ends the walk, and what was found stays good.
        let _ = scopes.walk(unit);
        scopes
    }

    fn walk(&mut self, unit: UnitRef<'_, R>) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut innermost: Option<usize> = None;
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            while let Some(scope) = innermost.filter(|&scope| depth <= self.0[scope].depth) {
                self.0[scope].end = offset;
                innermost = self.0[scope].parent;
            }
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let tag = abbreviation.tag();
            let is_scope = matches!(
                tag,
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_union_type
                    | gimli::DW_TAG_subprogram
            );
            if !is_scope || !abbreviation.has_children() {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut name = None;
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                if attribute.name() == gimli::DW_AT_name {
                    name = unit.attr_string(attribute.value()).ok();
                }
            }
            let end = UnitOffset(unit.header.length_including_self());
            let parent = innermost;
            self.0.push(Scope { start: offset, end, parent, depth, name, tag });
            innermost = Some(self.0.len() - 1);
        }
        Ok(())
    }

    /// The name of the function an entry stands for, with the scopes its declaration lies in.
    /// `None` when it lies in none that has a name.
    pub(crate) fn qualify(
        &self,
        unit: UnitRef<'_, R>,
        entry: UnitOffset<R::Offset>,
        name: &[u8],
    ) -> Option<Vec<u8>> {
        let declaration = declaration(unit, entry);
        let mut parts = vec![name.to_vec()];
        let mut scope = self.innermost(declaration);
        while let Some(index) = scope {
            let Scope { name: own, tag, parent, .. } = &self.0[index];
            match (own, *tag) {
                (Some(own), _) => parts.push(own.to_slice().ok()?.into_owned()),
                (None, gimli::DW_TAG_namespace) => parts.push(b"(anonymous namespace)".to_vec()),
                // An instance of a function that is named where it is declared.
                (None, gimli::DW_TAG_subprogram) => {}
                (None, _) if name == b"operator()" => parts.push(b"{lambda}".to_vec()),
                (None, _) => parts.push(b"{unnamed}".to_vec()),
            }
            scope = *parent;
        }
        let length: usize = parts.iter().map(|part| part.len() + 2).sum();
        parts.reverse();
        (parts.len() > 1 && length <= LONGEST).then(|| parts.join(&b"::"[..]))
    }

    /// The innermost scope around an entry, itself not counted.
    fn innermost(&self, entry: UnitOffset<R::Offset>) -> Option<usize> {
        let after = self.0.partition_point(|scope| scope.start < entry);
        let mut scope = after.checked_sub(1);
        while let Some(index) = scope.filter(|&index| self.0[index].end <= entry) {
            scope = self.0[index].parent;
        }
        scope
    }
}

/// The entry that declares the function an inlined call, or an instance of it, refers to.
fn declaration<R: Reader>(
    unit: UnitRef<'_, R>,
    entry: UnitOffset<R::Offset>,
) -> UnitOffset<R::Offset> {
    let mut at = entry;
    for _ in 0..REFERENCES {
        let Ok(entry) = unit.entry(at) else { break };
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
        let next = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification));
        match next {
            Some(AttributeValue::UnitRef(next)) => at = next,
            _ => break,
        }
    }
    at
}
