//! The units that were read with their tables, within a memory bound.

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

/// The number of units of a `.dwo` file that are searched for the split unit: the others, if any,
/// have types.
const SPLIT_UNITS: u32 = 64;

/// The file of a unit or an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileKind {
    /// The linked file.
    Linked,
    /// The supplementary file, which several files share.
    Supplementary,
    /// The file that the unit of this index of the linked file was split off into.
    Split(u32),
}

/// Returns the file and the offset of the entry that an entry of `file` refers to.
pub(crate) fn target(file: FileKind, reference: Reference) -> (FileKind, u64) {
    match reference {
        Reference::Here(entry) => (file, entry),
        Reference::Supplementary(entry) => (FileKind::Supplementary, entry),
    }
}

/// A unit with its tables, each read when it is needed.
pub(crate) struct UnitTables {
    pub(crate) unit: Unit,
    functions: OnceCell<Functions>,
    /// The functions again, with those nested in others.
    all_functions: OnceCell<Functions>,
    lines: OnceCell<Result<Option<LineTable>>>,
    scopes: RefCell<Option<Rc<Scopes>>>,
    /// The file that the unit was split off into.
    split: OnceCell<Result<Rc<DwarfFile>>>,
    /// The time of the last use by the clock of the cache.
    used: Cell<u64>,
    /// The memory it takes as far as the cache has counted it, in bytes.
    counted_bytes: Cell<usize>,
}

impl UnitTables {
    fn new(unit: Unit) -> Self {
        Self {
            unit,
            functions: OnceCell::new(),
            all_functions: OnceCell::new(),
            lines: OnceCell::new(),
            scopes: RefCell::default(),
            split: OnceCell::new(),
            used: Cell::default(),
            counted_bytes: Cell::default(),
        }
    }

    /// Returns the function at an address, by its number in the table returned with it. Reads the
    /// nested functions only if there is none without them.
    pub(crate) fn function(&self, address: u64) -> (&Functions, Option<u32>) {
        let functions = self.functions.get_or_init(|| Functions::read(&self.unit, false));
        match functions.find(address) {
            // Also for the padding between functions, but once for each unit.
            None if !functions.is_complete() => {
                let read = || Functions::read(&self.unit, true);
                let all = self.all_functions.get_or_init(read);
                (all, all.find(address))
            }
            found => (functions, found),
        }
    }

    /// Returns the lines of the unit, of which the one at `address` is needed next. None if the
    /// unit has no lines.
    ///
    /// # Errors
    ///
    /// When the header of the line program is malformed.
    pub(crate) fn lines(&self, address: u64) -> Result<Option<&LineTable>> {
        let lines = self.lines.get_or_init(|| LineTable::read(&self.unit, Some(address)));
        lines.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    fn bytes(&self) -> usize {
        let lines = self.lines.get().and_then(|lines| lines.as_ref().ok()?.as_ref());
        let split = self.split.get().and_then(|split| split.as_ref().ok());
        size_of::<Self>()
            + self.unit.bytes()
            + split.map_or(0, |file| file.bytes() + file.kept_bytes())
            + self.functions.get().map_or(0, Functions::bytes)
            + self.all_functions.get().map_or(0, Functions::bytes)
            + lines.map_or(0, LineTable::bytes)
            + self.scopes.borrow().as_ref().map_or(0, |scopes| scopes.bytes())
    }

    /// Drops the tables that are read again by function. Those that take a walk over the whole unit
    /// stay: for a C++ program with 1 GB of debug information, 9 MB of 600.
    fn drop_details(&self) {
        for functions in [self.functions.get(), self.all_functions.get()].into_iter().flatten() {
            functions.drop_inlined();
        }
        if let Some(Ok(Some(lines))) = self.lines.get() {
            lines.drop_rows();
        }
        if let Some(Ok(split)) = self.split.get() {
            split.drop_kept();
        }
    }

    /// Drops the tables that each function of the unit needs to be read again, too.
    fn drop_shared(&self) {
        self.unit.drop_abbreviations();
        *self.scopes.borrow_mut() = None;
    }
}

/// A unit with its key.
type LastUnit = ((FileKind, u32), Rc<UnitTables>);

/// The units of an image that were read.
pub(crate) struct UnitCache {
    pub(crate) files: Rc<LinkedFiles>,
    pub(crate) linked: Rc<DwarfFile>,
    loaded: RefCell<FxHashMap<(FileKind, u32), Rc<UnitTables>>>,
    /// The unit that was used last: most lookups are in the unit of the one before.
    last: RefCell<Option<LastUnit>>,
    clock: Cell<u64>,
    /// The memory of all units, in bytes.
    counted_bytes: Cell<usize>,
}

impl UnitCache {
    /// Creates a cache without units.
    pub(crate) fn new(files: Rc<LinkedFiles>, linked: Rc<DwarfFile>) -> Self {
        Self {
            files,
            linked,
            loaded: RefCell::default(),
            last: RefCell::default(),
            clock: Cell::default(),
            counted_bytes: Cell::default(),
        }
    }

    /// Returns the unit of an index.
    ///
    /// # Errors
    ///
    /// When its first entry is malformed, or its file is missing.
    pub(crate) fn get(&self, file: FileKind, index: u32) -> Result<Rc<UnitTables>> {
        self.clock.set(self.clock.get() + 1);
        match &*self.last.borrow() {
            Some((key, last)) if *key == (file, index) => {
                last.used.set(self.clock.get());
                return Ok(Rc::clone(last));
            }
            _ => {}
        }
        if let Some(loaded) = self.loaded.borrow().get(&(file, index)) {
            loaded.used.set(self.clock.get());
            *self.last.borrow_mut() = Some(((file, index), Rc::clone(loaded)));
            return Ok(Rc::clone(loaded));
        }
        // A split unit has the addresses of its skeleton.
        let skeleton = match file {
            FileKind::Split(skeleton) => Some(self.get(FileKind::Linked, skeleton)?),
            FileKind::Linked | FileKind::Supplementary => None,
        };
        let data = match &skeleton {
            Some(skeleton) => self.split_file(skeleton)?,
            None => self.file(file)?,
        };
        let head = *data.units().get(index as usize).ok_or(DwarfError::Limit("no such unit"))?;
        let skeleton = skeleton.as_ref().map(|skeleton| &skeleton.unit);
        let tables = Rc::new(UnitTables::new(Unit::open(&self.files, &data, head, skeleton)?));
        tables.used.set(self.clock.get());
        self.count(&tables);
        self.loaded.borrow_mut().insert((file, index), Rc::clone(&tables));
        Ok(tables)
    }

    /// Counts the memory of a unit again, after it was used.
    pub(crate) fn count(&self, tables: &UnitTables) {
        let bytes = tables.bytes();
        let before = tables.counted_bytes.replace(bytes);
        self.counted_bytes.set(self.counted_bytes.get() - before + bytes);
    }

    /// Returns the memory of all units, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.counted_bytes.get()
    }

    /// Drops tables until the units take at most `bytes`, those of the units used longest ago first:
    /// at first the tables that are read again by function, then whole units. Of the unit used
    /// last, the functions stay, since the next lookup is most likely in it.
    pub(crate) fn shrink_to(&self, bytes: usize) {
        // It would keep the memory of a unit that is dropped.
        *self.last.borrow_mut() = None;
        let mut loaded = self.loaded.borrow_mut();
        let mut by_use: Vec<_> = loaded.iter().map(|(key, unit)| (unit.used.get(), *key)).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for drop_some in [UnitTables::drop_details, UnitTables::drop_shared] {
            for (_, key) in &by_use {
                if self.counted_bytes.get() <= bytes {
                    return;
                }
                if let Some(tables) = loaded.get(key) {
                    drop_some(tables);
                    self.count(tables);
                }
            }
        }
        // The unit used last.
        by_use.pop();
        for (_, key) in by_use {
            if self.counted_bytes.get() <= bytes {
                return;
            }
            let dropped = loaded.remove(&key).map_or(0, |tables| tables.counted_bytes.get());
            self.counted_bytes.set(self.counted_bytes.get() - dropped);
        }
    }

    /// Returns the unit with the code of a unit of the linked file: the one that was split off from
    /// this `skeleton`, or the unit itself.
    ///
    /// # Errors
    ///
    /// When the file it is in is missing, or of another compilation.
    pub(crate) fn body(
        &self,
        index: u32,
        skeleton: &Rc<UnitTables>,
    ) -> Result<(FileKind, Rc<UnitTables>)> {
        let Some(wanted) = &skeleton.unit.split else {
            return Ok((FileKind::Linked, Rc::clone(skeleton)));
        };
        let file = FileKind::Split(index);
        let count = self.split_file(skeleton)?.units().len() as u32;
        // The ID also rejects a file of another compilation.
        let mut units = (0..count.min(SPLIT_UNITS)).flat_map(|unit| self.get(file, unit));
        let body = units.find(|tables| tables.unit.head.id == wanted.id);
        let absent = || DwarfError::NoSplit(String::from_utf8_lossy(&wanted.name).into_owned());
        body.map(|tables| (file, tables)).ok_or_else(absent)
    }

    /// Returns the unit that holds an entry.
    ///
    /// # Errors
    ///
    /// When there is none, or its file is missing.
    pub(crate) fn unit_of(&self, file: FileKind, entry: u64) -> Result<Rc<UnitTables>> {
        let data = match file {
            FileKind::Split(skeleton) => {
                let skeleton = self.get(FileKind::Linked, skeleton)?;
                self.split_file(&skeleton)?
            }
            FileKind::Linked | FileKind::Supplementary => self.file(file)?,
        };
        let unit = data.unit_of(entry).ok_or(DwarfError::Limit("a reference to no entry"))?;
        self.get(file, unit as u32)
    }

    /// Returns the entries of the scopes around an entry of a unit, the outermost first.
    pub(crate) fn scopes_around(&self, tables: &UnitTables, entry: u64) -> Vec<u64> {
        let known = tables.scopes.borrow().clone();
        let scopes = known.unwrap_or_else(|| {
            let read = Rc::new(Scopes::read(&tables.unit));
            *tables.scopes.borrow_mut() = Some(Rc::clone(&read));
            read
        });
        // Nested scopes are read on the way.
        let around = scopes.around(&tables.unit, entry);
        self.count(tables);
        around
    }

    fn split_file(&self, skeleton: &UnitTables) -> Result<Rc<DwarfFile>> {
        let open = || match &skeleton.unit.split {
            Some(wanted) => self.files.split(wanted),
            None => Ok(Rc::clone(&skeleton.unit.data)),
        };
        skeleton.split.get_or_init(open).clone()
    }

    fn file(&self, file: FileKind) -> Result<Rc<DwarfFile>> {
        match file {
            FileKind::Supplementary => self.files.supplementary(),
            FileKind::Linked | FileKind::Split(_) => Ok(Rc::clone(&self.linked)),
        }
    }
}
