//! Names with the namespaces, types and functions around their entry.

use super::error::Result;
use super::unit::Reference;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};

/// How many references from entry to entry are followed to the one that has a name.
pub(crate) const REFERENCES: usize = 16;

/// The longest name that is put together, bytes.
const LONGEST: usize = 4 << 10;

/// A name with the scopes its entry lies in.
///
/// # Errors
///
/// When one of those is malformed.
pub(crate) fn scoped_name(
    units: &UnitCache,
    file: FileKind,
    entry: u64,
    name: &[u8],
) -> Result<Vec<u8>> {
    let mut parts = vec![name.to_vec()];
    let mut unit = units.unit_of(file, entry)?;
    let mut around: Vec<u64> = unit.scopes().around(entry).collect();
    let (mut file, mut references) = (file, 0);
    around.reverse();
    while let Some(scope) = around.pop() {
        let Scope { tag, name: own, declared } = scope_at(&unit, scope)?;
        match (tag, declared) {
            _ if !own.is_empty() => parts.push(own),
            (gimli::DW_TAG_namespace, _) => parts.push(b"(anonymous namespace)".to_vec()),
            // An instance of a function, which is named, and has its scopes, where it is declared.
            (gimli::DW_TAG_subprogram, Some(reference)) if references < REFERENCES => {
                references += 1;
                let declaration;
                (file, declaration) = target(file, reference);
                unit = units.unit_of(file, declaration)?;
                around = unit.scopes().around(declaration).collect();
                around.reverse();
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

/// What the entry of a scope says.
struct Scope {
    tag: gimli::DwTag,
    /// Empty when it has none.
    name: Vec<u8>,
    /// Where it was declared, if elsewhere.
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
