//! The names of functions: the linkage name; in C++, the name with scopes and parameters for a
//! function without one, which exists only inlined or in its own file.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::error::Result;
use super::scoped_name::{REFERENCES, scoped_name};
use super::type_name::parameters;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};

/// The memory of a name without its bytes: the entry of the hash table, a seventh of which is free,
/// the reference counts and the allocator's share.
const NAME: usize = 80;

/// The memory of an entry without a name, in bytes: that of the hash table, a seventh of which is free.
const ENTRY: usize = 32;

/// Names by the files and offsets of the functions' entries.
type Known = FxHashMap<(FileKind, u64), Arc<[u8]>>;

/// The names of functions, each built once as long as there is room.
#[derive(Default)]
pub(crate) struct FunctionNames {
    known: RefCell<Known>,
    /// The functions that have their name from the symbol table: each of their addresses would
    /// read their entries again.
    from_symbols: RefCell<FxHashSet<(FileKind, u64)>>,
    /// The lines and columns at which functions are declared.
    declared_at: RefCell<FxHashMap<(FileKind, u64), (u32, u32)>>,
    bytes: Cell<usize>,
}

/// An inlined call: the file and the entry of its function, and its place in the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedAt {
    pub(crate) file: FileKind,
    pub(crate) entry: u64,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A function's entry and the entries it refers to.
struct Declaration {
    /// The linkage name, else the name in the source.
    name: Vec<u8>,
    is_linkage: bool,
    /// True if other files can call it.
    is_external: bool,
    /// True if any of the entries is in a unit of C++.
    is_cxx: bool,
    /// The last entry of the chain, which lies in the scope that the function was declared in.
    file: FileKind,
    entry: u64,
    unit: Rc<UnitTables>,
}

impl Declaration {
    /// True if the name is the whole one.
    fn is_whole(&self, units: &UnitCache) -> Result<bool> {
        let is_whole = self.is_linkage || !self.is_cxx || self.name.is_empty();
        Ok(is_whole || self.has_c_linkage(units)?)
    }

    /// True if the name in the source is the one linkers know (`extern "C"`): the function can be
    /// called from elsewhere, has no linkage name, and is no member of a class.
    fn has_c_linkage(&self, units: &UnitCache) -> Result<bool> {
        let around = units.scopes_around(&self.unit, self.entry);
        let Some(&scope) = around.last() else { return Ok(self.is_external) };
        let tag = self.unit.unit.entry(scope, |tag, _| Ok(tag))?;
        Ok(self.is_external && tag == gimli::DW_TAG_namespace)
    }

    /// Puts scopes before the name and parameters after it.
    fn whole_name(&self, units: &UnitCache) -> Result<Vec<u8>> {
        let mut name = scoped_name(units, self.file, self.entry, &self.name)?;
        // Without types in the debug information (-g1), `()` would be an invention.
        if self.unit.unit.has_types()? {
            let parameters = parameters(units, self.file, self.entry);
            name.extend(parameters.as_deref().unwrap_or("(...)").bytes());
        }
        Ok(name)
    }
}

impl FunctionNames {
    /// Returns the name of the function of an entry, empty if it has none. `symbol`, the linkage
    /// name in the symbol table, takes the place of a name that would have to be built.
    ///
    /// # Errors
    ///
    /// When one of the entries is malformed, or in a missing file.
    pub(crate) fn name(
        &self,
        units: &UnitCache,
        file: FileKind,
        entry: u64,
        symbol: Option<&[u8]>,
    ) -> Result<Arc<[u8]>> {
        if let Some(name) = self.known.borrow().get(&(file, entry)) {
            return Ok(Arc::clone(name));
        }
        if let Some(symbol) = symbol
            && self.from_symbols.borrow().contains(&(file, entry))
        {
            return Ok(symbol.into());
        }
        let declaration = declaration(units, file, entry)?;
        let name: Arc<[u8]> = match symbol {
            // The name is not kept: a part of the function that was split off has another symbol.
            Some(symbol) if !declaration.is_linkage && !declaration.name.is_empty() => {
                self.bytes.set(self.bytes.get() + ENTRY);
                self.from_symbols.borrow_mut().insert((file, entry));
                return Ok(symbol.into());
            }
            _ if declaration.is_whole(units)? => declaration.name.into(),
            _ => declaration.whole_name(units)?.into(),
        };
        self.bytes.set(self.bytes.get() + name.len() + NAME);
        self.known.borrow_mut().insert((file, entry), Arc::clone(&name));
        Ok(name)
    }

    /// True if an inlined call is a part of its function that the compiler split off and inlined again
    /// (GCC's partial inlining). The place of such a call is that of the function's declaration, where
    /// no source has a call.
    pub(crate) fn is_part(&self, units: &UnitCache, call: &InlinedAt) -> bool {
        let InlinedAt { file, entry, line, column } = *call;
        // Without columns, a function of one line may call itself there.
        if line == 0 || column == 0 {
            return false;
        }
        self.declared_at(units, file, entry) == (line, column)
    }

    /// Returns the line at which the function of an entry begins, 0 when unknown.
    pub(crate) fn start_line(&self, units: &UnitCache, file: FileKind, entry: u64) -> u32 {
        self.declared_at(units, file, entry).0
    }

    fn declared_at(&self, units: &UnitCache, file: FileKind, entry: u64) -> (u32, u32) {
        *self.declared_at.borrow_mut().entry((file, entry)).or_insert_with(|| {
            self.bytes.set(self.bytes.get() + ENTRY);
            declared_at(units, file, entry).unwrap_or_default()
        })
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Drops all names, which are built again when they are needed.
    pub(crate) fn clear(&self) {
        *self.known.borrow_mut() = Known::default();
        *self.from_symbols.borrow_mut() = FxHashSet::default();
        *self.declared_at.borrow_mut() = FxHashMap::default();
        self.bytes.set(0);
    }
}

/// Returns the line and the column at which a function is declared, 0 when unknown. An entry refers to
/// another one for those that are the same there.
fn declared_at(units: &UnitCache, mut file: FileKind, mut entry: u64) -> Result<(u32, u32)> {
    let (mut line, mut column) = (0, 0);
    // The chain of references of a malformed file may be a circle.
    for _ in 0..REFERENCES {
        let unit = units.unit_of(file, entry)?;
        let mut reference = None;
        unit.unit.entry(entry, |_, attributes| {
            for attribute in attributes {
                let value = attribute.value();
                let number = || value.udata_value().and_then(|number| u32::try_from(number).ok());
                match attribute.name() {
                    gimli::DW_AT_decl_line if line == 0 => line = number().unwrap_or(0),
                    gimli::DW_AT_decl_column if column == 0 => column = number().unwrap_or(0),
                    gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                        reference = unit.unit.reference(value);
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        match reference.filter(|_| line == 0 || column == 0) {
            Some(reference) => (file, entry) = target(file, reference),
            None => break,
        }
    }
    Ok((line, column))
}

/// Follows an entry to the first one with a linkage name, else to the last one.
fn declaration(units: &UnitCache, mut file: FileKind, mut entry: u64) -> Result<Declaration> {
    let mut name = Vec::new();
    let (mut is_external, mut is_cxx) = (false, false);
    let mut references = 0;
    loop {
        let unit = units.unit_of(file, entry)?;
        is_cxx |= unit.unit.is_cxx;
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
        // The chain of references of a malformed file may be a circle.
        let is_linkage = !linkage.is_empty();
        references += 1;
        match origin.or(specification).filter(|_| references < REFERENCES && !is_linkage) {
            Some(reference) => (file, entry) = target(file, reference),
            None => {
                let name = if is_linkage { linkage } else { name };
                return Ok(Declaration {
                    name,
                    is_linkage,
                    is_external,
                    is_cxx,
                    file,
                    entry,
                    unit,
                });
            }
        }
    }
}
