//! The function, line and inlined calls at an address, from the units that may have code there.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::SectionId;

use super::debug_file::Data;
use super::detail::Detail;
use super::error::Fault;
use super::function_name::Naming;
use super::linked_files::Files;
use super::section::DebugFiles;
use super::unit_cache::{Loaded, Place, Units, target};
use super::unit_index::Index;

/// After how many addresses it is looked whether there is room for the tables.
const ROUND: u32 = 256;

/// How much memory the tables of one image take at most before the oldest go, bytes.
pub(crate) const ROOM: usize = 384 << 20;

/// The debug information of one image.
pub(crate) struct Dwarf {
    units: Units,
    index: OnceCell<RefCell<Index>>,
    naming: Naming,
    asked: Cell<u32>,
}

/// A function at an address, and where in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The linkage name if the debug information has it, else the plain name.
    pub(crate) function: Option<Arc<[u8]>>,
    /// The path of the source file, absolute unless the compiler knew no directory.
    pub(crate) file: Option<Arc<[u8]>>,
    /// The line, 0 when unknown.
    pub(crate) line: u32,
    /// The column, 0 when unknown.
    pub(crate) column: u32,
}

/// What is known of an address.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The calls, innermost first: every one but the last is inlined. Empty when the debug
    /// information does not cover the address.
    pub(crate) calls: Vec<Call>,
    /// Why there may be more than that.
    pub(crate) fault: Option<Fault>,
}

/// A place in the source.
#[derive(Clone, Default)]
struct Line {
    file: Option<Arc<[u8]>>,
    line: u32,
    column: u32,
}

impl Dwarf {
    /// Takes the files, and as much memory for tables. Nothing but the list of units is read yet.
    ///
    /// # Errors
    ///
    /// When nothing of the units can be read.
    pub(crate) fn load(files: Box<dyn DebugFiles>, room: usize) -> Result<Self, Fault> {
        let linked = Rc::new(Data::new(files.main(), false)?);
        Ok(Self {
            units: Units::new(Rc::new(Files::new(files)), linked, room),
            index: OnceCell::new(),
            naming: Naming::default(),
            asked: Cell::new(0),
        })
    }

    /// Whether it is packed in the file, and held unpacked.
    pub(crate) fn is_packed(&self) -> bool {
        let info = self.units.linked.section(SectionId::DebugInfo);
        info.is_ok_and(|info| info.is_held())
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let index = self.index.get().map_or(0, |index| index.borrow().bytes());
        self.units.bytes() + self.naming.bytes() + index
    }

    /// The calls at an address, in as much detail as is wanted.
    pub(crate) fn calls(&self, address: u64, detail: Detail) -> Found {
        self.asked.set(self.asked.get().wrapping_add(1));
        if self.asked.get().is_multiple_of(ROUND) {
            self.units.make_room();
        }
        let index = self
            .index
            .get_or_init(|| RefCell::new(Index::read(&self.units.files, &self.units.linked)));
        let units = index.borrow().at(address);
        let found = self.calls_in(&units, address, detail);
        if !found.calls.is_empty() || !index.borrow().has_silent() {
            let fault = found.fault.or_else(|| index.borrow().fault().cloned());
            return Found { calls: found.calls, fault };
        }
        index.borrow_mut().ask_lines(&self.units.files, &self.units.linked);
        let units = index.borrow().at(address);
        self.calls_in(&units, address, detail)
    }

    /// The calls at an address in the first of the units that has a function there, else the line
    /// in the first that has one.
    fn calls_in(&self, units: &[u32], address: u64, detail: Detail) -> Found {
        let mut best = Found::default();
        for &unit in units {
            let mut fault = None;
            let mut note = |noted: Fault| fault = Some(noted);
            let calls = self.calls_in_unit(unit, address, detail, &mut note);
            let calls = calls.unwrap_or_else(|fault| {
                note(fault);
                Vec::new()
            });
            let has_function = calls.iter().any(|call| call.function.is_some());
            if has_function || (best.calls.is_empty() && !calls.is_empty()) {
                best.calls = calls;
            }
            best.fault = fault.or(best.fault);
            if has_function {
                break;
            }
        }
        best
    }

    fn calls_in_unit(
        &self,
        unit: u32,
        address: u64,
        detail: Detail,
        note: &mut dyn FnMut(Fault),
    ) -> Result<Vec<Call>, Fault> {
        let loaded = self.units.get(Place::Linked, unit)?;
        let line = if detail.lines { line(&loaded, address, note) } else { Line::default() };
        let body = self.units.body(unit);
        let Ok((place, body)) = body.map_err(&mut *note) else { return Ok(bare(line)) };
        let (functions, function) = body.function(address);
        let Some(function) = function else {
            if let Some(fault) = functions.fault() {
                note(fault.clone());
            }
            return Ok(bare(line));
        };
        let inlined = match detail.is_symbols_only() {
            true => Vec::new(),
            false => match functions.inlined(&body.unit, function) {
                Ok(inlined) => inlined.at(address),
                Err(fault) => {
                    note(fault);
                    Vec::new()
                }
            },
        };
        let mut nameless = None;
        let mut name = |(place, entry)| match self.naming.name(&self.units, place, entry) {
            Ok(name) => Some(name).filter(|name| !name.is_empty()),
            Err(fault) => {
                nameless = Some(fault);
                None
            }
        };
        let mut calls = Vec::with_capacity(inlined.len() + 1);
        let mut line = line;
        // More than a stream may hold is more than anyone inlines.
        for call in inlined.iter().rev().take(nprof_stream::limits::LINES - 1) {
            let origin = call.origin.map(|origin| target(place, origin));
            let function = name(origin.unwrap_or((place, call.entry)));
            let (file, number, column) = (call.file, call.line, call.column);
            let outer = if detail.lines {
                call_line(&loaded, file, number, column)
            } else {
                Line::default()
            };
            let Line { file, line, column } = std::mem::replace(&mut line, outer);
            calls.push(Call { function, file, line, column });
        }
        let Line { file, line, column } = line;
        let function = name((place, functions.entry(function)));
        calls.push(Call { function, file, line, column });
        if let Some(fault) = nameless {
            note(fault);
        }
        Ok(calls)
    }
}

/// What is left of an address that lies in no function.
fn bare(line: Line) -> Vec<Call> {
    let Line { file, line, column } = line;
    let call = Call { function: None, file, line, column };
    if call == Call::default() { Vec::new() } else { vec![call] }
}

/// The line of an address.
fn line(loaded: &Loaded, address: u64, note: &mut dyn FnMut(Fault)) -> Line {
    let found = loaded.lines().and_then(|lines| {
        let Some(lines) = lines else { return Ok(Line::default()) };
        if let Some(fault) = lines.fault() {
            note(fault.clone());
        }
        let Some(row) = lines.find(&loaded.unit, address)? else { return Ok(Line::default()) };
        let file = lines.path(&loaded.unit, row.file.into())?;
        Ok(Line {
            file: Some(file).filter(|file| !file.is_empty()),
            line: row.line,
            column: row.column,
        })
    });
    found.unwrap_or_else(|fault| {
        note(fault);
        Line::default()
    })
}

/// The line of an inlined call.
fn call_line(loaded: &Loaded, file: u64, line: u32, column: u32) -> Line {
    // In the older versions files count from 1.
    let is_known = file != u64::MAX && (file > 0 || loaded.unit.head.encoding.version >= 5);
    let lines = loaded.lines().ok().flatten().filter(|_| is_known);
    let file = lines.and_then(|lines| lines.path(&loaded.unit, file).ok());
    Line { file: file.filter(|file| !file.is_empty()), line, column }
}
