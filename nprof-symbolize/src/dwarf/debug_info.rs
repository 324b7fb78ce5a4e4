//! The function, line and inlined calls at an address, from the units that may have code there.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::SectionId;

use super::debug_file::DwarfFile;
use super::detail::Detail;
use super::error::DwarfError;
use super::function_name::FunctionNames;
use super::linked_files::LinkedFiles;
use super::section::DebugFiles;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};
use super::unit_index::UnitIndex;

/// After how many addresses it is looked whether there is room for the tables.
const ROUND: u32 = 256;

/// How much memory the tables of one image take at most before the oldest go, bytes.
pub(crate) const ROOM_BYTES: usize = 384 << 20;

/// The debug information of one image.
pub(crate) struct Dwarf {
    units: UnitCache,
    index: OnceCell<RefCell<UnitIndex>>,
    naming: FunctionNames,
    lookups: Cell<u32>,
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
pub(crate) struct FoundCalls {
    /// The calls, innermost first: every one but the last is inlined. Empty when the debug
    /// information does not cover the address.
    pub(crate) calls: Vec<Call>,
    /// Why there may be more than that.
    pub(crate) fault: Option<DwarfError>,
}

/// A place in the source.
#[derive(Clone, Default)]
struct SourceLine {
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
    pub(crate) fn load(files: Box<dyn DebugFiles>, room: usize) -> Result<Self, DwarfError> {
        let linked = Rc::new(DwarfFile::new(files.main(), false)?);
        Ok(Self {
            units: UnitCache::new(Rc::new(LinkedFiles::new(files)), linked, room),
            index: OnceCell::new(),
            naming: FunctionNames::default(),
            lookups: Cell::new(0),
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
    pub(crate) fn calls(&self, address: u64, detail: Detail) -> FoundCalls {
        self.lookups.set(self.lookups.get().wrapping_add(1));
        if self.lookups.get().is_multiple_of(ROUND) {
            self.units.make_room();
        }
        let index = self
            .index
            .get_or_init(|| RefCell::new(UnitIndex::read(&self.units.files, &self.units.linked)));
        let units = index.borrow().at(address);
        let found = self.calls_in(&units, address, detail);
        if !found.calls.is_empty() || !index.borrow().has_units_without_ranges() {
            let fault = found.fault.or_else(|| index.borrow().fault().cloned());
            return FoundCalls { calls: found.calls, fault };
        }
        index.borrow_mut().read_lines(&self.units.files, &self.units.linked);
        let units = index.borrow().at(address);
        self.calls_in(&units, address, detail)
    }

    /// The calls at an address in the first of the units that has a function there, else the line
    /// in the first that has one.
    fn calls_in(&self, units: &[u32], address: u64, detail: Detail) -> FoundCalls {
        let mut best = FoundCalls::default();
        for &unit in units {
            let mut fault = None;
            let mut note = |noted: DwarfError| fault = Some(noted);
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
        note: &mut dyn FnMut(DwarfError),
    ) -> Result<Vec<Call>, DwarfError> {
        let loaded = self.units.get(FileKind::Linked, unit)?;
        let line = if detail.lines { line(&loaded, address, note) } else { SourceLine::default() };
        let body = self.units.body(unit);
        let Ok((place, body)) = body.map_err(&mut *note) else { return Ok(line_only(line)) };
        let (functions, function) = body.function(address);
        let Some(function) = function else {
            if let Some(fault) = functions.fault() {
                note(fault.clone());
            }
            return Ok(line_only(line));
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
                SourceLine::default()
            };
            let SourceLine { file, line, column } = std::mem::replace(&mut line, outer);
            calls.push(Call { function, file, line, column });
        }
        let SourceLine { file, line, column } = line;
        let function = name((place, functions.entry(function)));
        calls.push(Call { function, file, line, column });
        if let Some(fault) = nameless {
            note(fault);
        }
        Ok(calls)
    }
}

/// What is left of an address that lies in no function.
fn line_only(line: SourceLine) -> Vec<Call> {
    let SourceLine { file, line, column } = line;
    let call = Call { function: None, file, line, column };
    if call == Call::default() { Vec::new() } else { vec![call] }
}

/// The line of an address.
fn line(loaded: &UnitTables, address: u64, note: &mut dyn FnMut(DwarfError)) -> SourceLine {
    let found = loaded.lines().and_then(|lines| {
        let Some(lines) = lines else { return Ok(SourceLine::default()) };
        if let Some(fault) = lines.fault() {
            note(fault.clone());
        }
        let Some(row) = lines.find(&loaded.unit, address)? else {
            return Ok(SourceLine::default());
        };
        let file = lines.path(&loaded.unit, row.file.into())?;
        Ok(SourceLine {
            file: Some(file).filter(|file| !file.is_empty()),
            line: row.line,
            column: row.column,
        })
    });
    found.unwrap_or_else(|fault| {
        note(fault);
        SourceLine::default()
    })
}

/// The line of an inlined call.
fn call_line(loaded: &UnitTables, file: u64, line: u32, column: u32) -> SourceLine {
    // In the older versions files count from 1.
    let is_known = file != u64::MAX && (file > 0 || loaded.unit.head.encoding.version >= 5);
    let lines = loaded.lines().ok().flatten().filter(|_| is_known);
    let file = lines.and_then(|lines| lines.path(&loaded.unit, file).ok());
    SourceLine { file: file.filter(|file| !file.is_empty()), line, column }
}
