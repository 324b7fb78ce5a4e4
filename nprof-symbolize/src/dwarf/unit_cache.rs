//! The units that were read, and what was found in them, kept as long as there is room.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::debug_file::DwarfFile;
use super::error::{DwarfError, Result};
use super::functions::Functions;
use super::line_table::LineTable;
use super::linked_files::LinkedFiles;
use super::scopes::Scopes;
use super::unit::{Reference, Unit};

/// What a unit takes beside its tables, about, bytes: its abbreviations mostly.
const UNIT: usize = 32 << 10;

/// Which file a unit or an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileKind {
    /// The one that was linked.
    Linked,
    /// The one that is shared by several.
    Supplementary,
    /// What was split off the unit of this index of the linked one.
    Split(u32),
}

/// The file and the offset of the entry that an entry of `file` refers to.
pub(crate) fn target(file: FileKind, reference: Reference) -> (FileKind, u64) {
    match reference {
        Reference::Here(entry) => (file, entry),
        Reference::Supplementary(entry) => (FileKind::Supplementary, entry),
    }
}

/// A unit with its tables, each made when it is needed.
pub(crate) struct UnitTables {
    pub(crate) unit: Unit,
    functions: OnceCell<Functions>,
    /// Once more, with nothing passed over.
    all_functions: OnceCell<Functions>,
    lines: OnceCell<Result<Option<LineTable>>>,
    scopes: OnceCell<Scopes>,
    /// The file it was split off into.
    split: OnceCell<Result<Rc<DwarfFile>>>,
    used: Cell<u64>,
}

impl UnitTables {
    /// The table of its functions that has one at an address, and the number of that; at first
    /// the table with the functions that are found fast.
    pub(crate) fn function(&self, address: u64) -> (&Functions, Option<u32>) {
        let functions = self.functions.get_or_init(|| Functions::read(&self.unit, false));
        match functions.find(address) {
            None if !functions.is_complete() => {
                let read = || Functions::read(&self.unit, true);
                let all = self.all_functions.get_or_init(read);
                (all, all.find(address))
            }
            found => (functions, found),
        }
    }

    /// Its lines, if it has any.
    ///
    /// # Errors
    ///
    /// When they are malformed from the beginning.
    pub(crate) fn lines(&self) -> Result<Option<&LineTable>> {
        let lines = self.lines.get_or_init(|| LineTable::read(&self.unit));
        lines.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Its scopes.
    pub(crate) fn scopes(&self) -> &Scopes {
        self.scopes.get_or_init(|| Scopes::read(&self.unit))
    }

    fn bytes(&self) -> usize {
        let lines = self.lines.get().and_then(|lines| lines.as_ref().ok()?.as_ref());
        let split = self.split.get().and_then(|split| split.as_ref().ok());
        UNIT + split.map_or(0, |data| data.bytes())
            + self.functions.get().map_or(0, Functions::bytes)
            + self.all_functions.get().map_or(0, Functions::bytes)
            + lines.map_or(0, LineTable::bytes)
            + self.scopes.get().map_or(0, Scopes::bytes)
    }
}

/// The units of an image that were read.
pub(crate) struct UnitCache {
    pub(crate) files: Rc<LinkedFiles>,
    pub(crate) linked: Rc<DwarfFile>,
    loaded: RefCell<FxHashMap<(FileKind, u32), Rc<UnitTables>>>,
    clock: Cell<u64>,
    /// How much memory they take before the oldest go, bytes.
    room: usize,
}

impl UnitCache {
    /// Reads nothing yet.
    pub(crate) fn new(files: Rc<LinkedFiles>, linked: Rc<DwarfFile>, room: usize) -> Self {
        Self { files, linked, loaded: RefCell::default(), clock: Cell::default(), room }
    }

    /// The unit of an index.
    ///
    /// # Errors
    ///
    /// When its first entry is malformed, or its file was not found.
    pub(crate) fn get(&self, file: FileKind, index: u32) -> Result<Rc<UnitTables>> {
        self.clock.set(self.clock.get() + 1);
        if let Some(loaded) = self.loaded.borrow().get(&(file, index)) {
            loaded.used.set(self.clock.get());
            return Ok(Rc::clone(loaded));
        }
        let skeleton = match file {
            FileKind::Split(skeleton) => Some(self.get(FileKind::Linked, skeleton)?),
            FileKind::Linked | FileKind::Supplementary => None,
        };
        let data = match &skeleton {
            Some(skeleton) => self.split_data(skeleton)?,
            None => self.data(file)?,
        };
        let head = *data.units().get(index as usize).ok_or(DwarfError::Limit("no such unit"))?;
        let skeleton = skeleton.as_ref().map(|skeleton| &skeleton.unit);
        let loaded = Rc::new(UnitTables {
            unit: Unit::open(&self.files, &data, head, skeleton)?,
            functions: OnceCell::new(),
            all_functions: OnceCell::new(),
            lines: OnceCell::new(),
            scopes: OnceCell::new(),
            split: OnceCell::new(),
            used: Cell::new(self.clock.get()),
        });
        self.loaded.borrow_mut().insert((file, index), Rc::clone(&loaded));
        Ok(loaded)
    }

    /// How much memory they take, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let loaded: usize = self.loaded.borrow().values().map(|loaded| loaded.bytes()).sum();
        loaded + self.linked.bytes() + self.files.bytes()
    }

    /// Forgets the units that were not used for the longest time, if there is no room for all.
    pub(crate) fn make_room(&self) {
        let mut loaded = self.loaded.borrow_mut();
        let mut bytes: usize = loaded.values().map(|loaded| loaded.bytes()).sum();
        if bytes <= self.room {
            return;
        }
        let mut oldest: Vec<_> = loaded.iter().map(|(key, unit)| (unit.used.get(), *key)).collect();
        oldest.sort_unstable_by_key(|(used, _)| *used);
        for (_, key) in oldest {
            if bytes <= self.room / 2 {
                break;
            }
            bytes -= loaded.remove(&key).map_or(0, |unit| unit.bytes());
        }
    }

    /// What was split off a unit; the unit itself where nothing was.
    ///
    /// # Errors
    ///
    /// When the file it is in was not found, or is not the right one.
    pub(crate) fn body(&self, index: u32) -> Result<(FileKind, Rc<UnitTables>)> {
        let skeleton = self.get(FileKind::Linked, index)?;
        let Some((name, id)) = &skeleton.unit.split else {
            return Ok((FileKind::Linked, skeleton));
        };
        let file = FileKind::Split(index);
        let count = self.split_data(&skeleton)?.units().len() as u32;
        let units = (0..count.min(64)).map(|unit| self.get(file, unit));
        let right = units.flatten().find(|loaded| loaded.unit.head.id == *id);
        let absent = || DwarfError::NoSplit(String::from_utf8_lossy(name).into_owned());
        right.map(|loaded| (file, loaded)).ok_or_else(absent)
    }

    /// The unit that holds an entry.
    ///
    /// # Errors
    ///
    /// When there is none, or its file was not found.
    pub(crate) fn unit_of(&self, file: FileKind, entry: u64) -> Result<Rc<UnitTables>> {
        let data = match file {
            FileKind::Split(skeleton) => {
                let skeleton = self.get(FileKind::Linked, skeleton)?;
                self.split_data(&skeleton)?
            }
            FileKind::Linked | FileKind::Supplementary => self.data(file)?,
        };
        let unit = data.unit_of(entry).ok_or(DwarfError::Limit("a reference to no entry"))?;
        self.get(file, unit as u32)
    }

    fn split_data(&self, skeleton: &UnitTables) -> Result<Rc<DwarfFile>> {
        let open = || match skeleton.unit.split_unit() {
            Some(split) => self.files.split(&split),
            None => Ok(Rc::clone(&skeleton.unit.data)),
        };
        skeleton.split.get_or_init(open).clone()
    }

    fn data(&self, file: FileKind) -> Result<Rc<DwarfFile>> {
        match file {
            FileKind::Supplementary => self.files.supplementary(),
            FileKind::Linked | FileKind::Split(_) => Ok(Rc::clone(&self.linked)),
        }
    }
}
