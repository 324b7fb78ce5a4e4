//! The units that were read, and what was found in them, kept as long as there is room.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::debug_file::Data;
use super::error::{Fault, Result};
use super::functions::Functions;
use super::line_table::Lines;
use super::linked_files::Files;
use super::scopes::Scopes;
use super::unit::{Reference, Unit};

/// What a unit takes beside its tables, about, bytes: its abbreviations mostly.
const UNIT: usize = 32 << 10;

/// Which file a unit or an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The one that was linked.
    Linked,
    /// The one that is shared by several.
    Supplementary,
    /// What was split off the unit of this index of the linked one.
    Split(u32),
}

/// The file and the offset of the entry that an entry of `place` refers to.
pub(crate) fn target(place: Place, reference: Reference) -> (Place, u64) {
    match reference {
        Reference::Here(entry) => (place, entry),
        Reference::Supplementary(entry) => (Place::Supplementary, entry),
    }
}

/// A unit with its tables, each made when it is needed.
pub(crate) struct Loaded {
    pub(crate) unit: Unit,
    functions: OnceCell<Functions>,
    /// Once more, with nothing passed over.
    all_functions: OnceCell<Functions>,
    lines: OnceCell<Result<Option<Lines>>>,
    scopes: OnceCell<Scopes>,
    /// The file it was split off into.
    split: OnceCell<Result<Rc<Data>>>,
    used: Cell<u64>,
}

impl Loaded {
    /// The table of its functions that has one at an address, and the number of that; at first
    /// the table with the functions that are found fast.
    pub(crate) fn function(&self, address: u64) -> (&Functions, Option<u32>) {
        let functions = self.functions.get_or_init(|| Functions::read(&self.unit, false));
        match functions.find(address) {
            None if !functions.is_whole() => {
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
    pub(crate) fn lines(&self) -> Result<Option<&Lines>> {
        let lines = self.lines.get_or_init(|| Lines::read(&self.unit));
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
            + lines.map_or(0, Lines::bytes)
            + self.scopes.get().map_or(0, Scopes::bytes)
    }
}

/// The units of an image that were read.
pub(crate) struct Units {
    pub(crate) files: Rc<Files>,
    pub(crate) linked: Rc<Data>,
    loaded: RefCell<FxHashMap<(Place, u32), Rc<Loaded>>>,
    clock: Cell<u64>,
    /// How much memory they take before the oldest go, bytes.
    room: usize,
}

impl Units {
    /// Reads nothing yet.
    pub(crate) fn new(files: Rc<Files>, linked: Rc<Data>, room: usize) -> Self {
        Self { files, linked, loaded: RefCell::default(), clock: Cell::default(), room }
    }

    /// The unit of an index.
    ///
    /// # Errors
    ///
    /// When its first entry is malformed, or its file was not found.
    pub(crate) fn get(&self, place: Place, index: u32) -> Result<Rc<Loaded>> {
        self.clock.set(self.clock.get() + 1);
        if let Some(loaded) = self.loaded.borrow().get(&(place, index)) {
            loaded.used.set(self.clock.get());
            return Ok(Rc::clone(loaded));
        }
        let skeleton = match place {
            Place::Split(skeleton) => Some(self.get(Place::Linked, skeleton)?),
            Place::Linked | Place::Supplementary => None,
        };
        let data = match &skeleton {
            Some(skeleton) => self.split_data(skeleton)?,
            None => self.data(place)?,
        };
        let head = *data.units().get(index as usize).ok_or(Fault::Limit("no such unit"))?;
        let skeleton = skeleton.as_ref().map(|skeleton| &skeleton.unit);
        let loaded = Rc::new(Loaded {
            unit: Unit::open(&self.files, &data, head, skeleton)?,
            functions: OnceCell::new(),
            all_functions: OnceCell::new(),
            lines: OnceCell::new(),
            scopes: OnceCell::new(),
            split: OnceCell::new(),
            used: Cell::new(self.clock.get()),
        });
        self.loaded.borrow_mut().insert((place, index), Rc::clone(&loaded));
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
    pub(crate) fn body(&self, index: u32) -> Result<(Place, Rc<Loaded>)> {
        let skeleton = self.get(Place::Linked, index)?;
        let Some((name, id)) = &skeleton.unit.split else { return Ok((Place::Linked, skeleton)) };
        let place = Place::Split(index);
        let count = self.split_data(&skeleton)?.units().len() as u32;
        let units = (0..count.min(64)).map(|unit| self.get(place, unit));
        let right = units.flatten().find(|loaded| loaded.unit.head.id == *id);
        let absent = || Fault::NoSplit(String::from_utf8_lossy(name).into_owned());
        right.map(|loaded| (place, loaded)).ok_or_else(absent)
    }

    /// The unit that holds an entry.
    ///
    /// # Errors
    ///
    /// When there is none, or its file was not found.
    pub(crate) fn holding(&self, place: Place, entry: u64) -> Result<Rc<Loaded>> {
        let data = match place {
            Place::Split(skeleton) => {
                let skeleton = self.get(Place::Linked, skeleton)?;
                self.split_data(&skeleton)?
            }
            Place::Linked | Place::Supplementary => self.data(place)?,
        };
        let unit = data.unit_of(entry).ok_or(Fault::Limit("a reference to no entry"))?;
        self.get(place, unit as u32)
    }

    fn split_data(&self, skeleton: &Loaded) -> Result<Rc<Data>> {
        let open = || match skeleton.unit.split_unit() {
            Some(split) => self.files.split(&split),
            None => Ok(Rc::clone(&skeleton.unit.data)),
        };
        skeleton.split.get_or_init(open).clone()
    }

    fn data(&self, place: Place) -> Result<Rc<Data>> {
        match place {
            Place::Supplementary => self.files.supplementary(),
            Place::Linked | Place::Split(_) => Ok(Rc::clone(&self.linked)),
        }
    }
}
