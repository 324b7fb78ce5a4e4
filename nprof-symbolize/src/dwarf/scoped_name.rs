//! Names with the namespaces, types and functions around their entry.

use super::error::Result;
use super::unit::Reference;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};

/// The number of references that are followed from an entry to one that has a name.
pub(crate) const REFERENCES: usize = 16;

/// The longest name that is built from scopes, in bytes.
const LONGEST: usize = 4 << 10;

/// Puts the scopes of an entry before its name.
///
/// # Errors
///
/// When the entry of a scope is malformed.
pub(crate) fn scoped_name(
    units: &UnitCache,
    file: FileKind,
    entry: u64,
    name: &[u8],
) -> Result<Vec<u8>> {
    let mut parts = vec![name.to_vec()];
    let mut unit = units.unit_of(file, entry)?;
    let mut around = units.scopes_around(&unit, entry);
    let (mut file, mut references) = (file, 0);
    while let Some(scope) = around.pop() {
        let Scope { tag, name: own, declared } = scope_at(&unit, scope)?;
        match (tag, declared) {
            _ if !own.is_empty() => parts.push(own),
            (gimli::DW_TAG_namespace, _) => parts.push(b"(anonymous namespace)".to_vec()),
            // A function with code refers to its declaration, which has the name and the scopes
            // (DWARF 5, 3.3.8.3).
            (gimli::DW_TAG_subprogram, Some(reference)) if references < REFERENCES => {
                references += 1;
                let declaration;
                (file, declaration) = target(file, reference);
                unit = units.unit_of(file, declaration)?;
                around = units.scopes_around(&unit, declaration);
                around.push(declaration);
            }
            (gimli::DW_TAG_subprogram, _) => {}
            _ if name == b"operator()" => parts.push(b"{lambda}".to_vec()),
            _ => parts.push(b"{unnamed}".to_vec()),
        }
    }
    let length: usize = parts.iter().map(|part| part.len() + 2).sum();
    if length > LONGEST {
        return Ok(name.to_vec());
    }
    parts.reverse();
    Ok(parts.join(&b"::"[..]))
}

/// The entry of a scope.
struct Scope {
    tag: gimli::DwTag,
    /// Empty if it has none.
    name: Vec<u8>,
    /// Its declaration, if that is another entry.
    declared: Option<Reference>,
}

fn scope_at(unit: &UnitTables, scope: u64) -> Result<Scope> {
    unit.unit.entry(scope, |tag, attributes| {
        let mut read = Scope { tag, name: Vec::new(), declared: None };
        for attribute in attributes {
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_name => read.name = unit.unit.string(value)?,
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    read.declared = unit.unit.reference(value);
                }
                _ => {}
            }
        }
        Ok(read)
    })
}
