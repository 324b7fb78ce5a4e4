//! What functions are called: the linkage name, or in C++, where a function that exists only
//! inlined and in its own file has none, the name with its scopes and parameters.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::error::Result;
use super::scoped_name::{REFERENCES, scoped_name};
use super::type_name::parameters;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};

/// Names by the files and places of the functions' entries.
type Known = FxHashMap<(FileKind, u64), Arc<[u8]>>;

/// The names of functions, each found once.
#[derive(Default)]
pub(crate) struct FunctionNames(RefCell<Known>);

/// What an entry and those it refers to say.
struct Declaration {
    /// The name linkers know, or just the name.
    name: Vec<u8>,
    is_linkage: bool,
    /// Whether other files can call it.
    is_external: bool,
    /// The last entry of the chain: the one that lies where the function was declared.
    file: FileKind,
    entry: u64,
    unit: Rc<UnitTables>,
}

impl Declaration {
    /// Whether the name in the source is the one linkers know: such a function can be called from
    /// elsewhere, has no other name, and is no member of a class.
    fn has_c_linkage(&self) -> Result<bool> {
        let Self { entry, unit, .. } = self;
        let Some(scope) = unit.scopes().around(*entry).next() else { return Ok(self.is_external) };
        let tag = unit.unit.entry(scope, |tag, _| Ok(tag))?;
        Ok(self.is_external && tag == gimli::DW_TAG_namespace)
    }
}

impl FunctionNames {
    /// The name of the function of an entry, empty when it has none.
    ///
    /// # Errors
    ///
    /// When an entry on the way is malformed, or in a file that was not found.
    pub(crate) fn name(&self, units: &UnitCache, file: FileKind, entry: u64) -> Result<Arc<[u8]>> {
        if let Some(name) = self.0.borrow().get(&(file, entry)) {
            return Ok(Arc::clone(name));
        }
        let mut is_cxx = false;
        let declaration = declaration(units, file, entry, &mut is_cxx)?;
        let is_whole = declaration.is_linkage || !is_cxx || declaration.name.is_empty();
        let name = match is_whole || declaration.has_c_linkage()? {
            true => declaration.name,
            false => {
                let Declaration { name, file, entry, .. } = &declaration;
                let mut name = scoped_name(units, *file, *entry, name)?;
                let parameters = parameters(units, *file, *entry);
                name.extend(parameters.as_deref().unwrap_or("(...)").bytes());
                name
            }
        };
        let name: Arc<[u8]> = name.into();
        self.0.borrow_mut().insert((file, entry), Arc::clone(&name));
        Ok(name)
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.borrow().len() * 128
    }
}

fn declaration(
    units: &UnitCache,
    mut file: FileKind,
    mut entry: u64,
    is_cxx: &mut bool,
) -> Result<Declaration> {
    let mut name = Vec::new();
    let mut is_external = false;
    let mut references = 0;
    loop {
        let unit = units.unit_of(file, entry)?;
        *is_cxx |= unit.unit.is_cxx;
        let (mut linkage, mut origin, mut specification) = (Vec::new(), None, None);
        unit.unit.entry(entry, |_, attributes| {
            for attribute in attributes {
                let value = attribute.value();
                match attribute.name() {
                    gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                        linkage = unit.unit.string(value)?;
                    }
                    gimli::DW_AT_name if name.is_empty() => name = unit.unit.string(value)?,
                    gimli::DW_AT_external => is_external = true,
                    gimli::DW_AT_abstract_origin => origin = unit.unit.reference(value),
                    gimli::DW_AT_specification => specification = unit.unit.reference(value),
                    _ => {}
                }
            }
            Ok(())
        })?;
        if !linkage.is_empty() {
            return Ok(Declaration {
                name: linkage,
                is_linkage: true,
                is_external,
                file,
                entry,
                unit,
            });
        }
        references += 1;
        match origin.or(specification).filter(|_| references < REFERENCES) {
            Some(reference) => (file, entry) = target(file, reference),
            None => {
                return Ok(Declaration { name, is_linkage: false, is_external, file, entry, unit });
            }
        }
    }
}
