//! The function, line and inlined calls at an address, from the units that may have code there.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::SectionId;
use nprof_stream::Md5Sum;

use super::debug_file::DwarfFile;
use super::detail::Detail;
use super::error::DwarfError;
use super::function_name::{FunctionNames, InlinedAt};
use super::inlined_calls::{InlinedCall, InlinedCalls, NO_FILE};
use super::linked_files::LinkedFiles;
use super::section::DebugFiles;
use super::unit_cache::{FileKind, UnitCache, UnitTables, target};
use super::unit_index::UnitIndex;

/// The memory bound of the tables of one image in bytes, for lookups in any order.
pub(crate) const ROOM_BYTES: usize = 384 << 20;

/// The memory bound for lookups in the order of units: it holds the tables of the largest units of
/// C++ templates seen, 20 MB, and more would not spare any read.
const SORTED_ROOM_BYTES: usize = 32 << 20;

/// The debug information of one image.
pub(crate) struct Dwarf {
    units: UnitCache,
    index: OnceCell<RefCell<UnitIndex>>,
    names: FunctionNames,
    /// The memory bound of its tables in bytes.
    room: usize,
    /// True if lookups come in the order of units.
    is_sorted: Cell<bool>,
    /// The memory of units and names when it was compared with the bound last, in bytes.
    checked_bytes: Cell<usize>,
}

/// A function at an address, and a position in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The linkage name if there is one, else the name in the source, with scopes and parameters
    /// in C++.
    pub(crate) function: Option<Arc<[u8]>>,
    /// The path of the source file, absolute unless the compiler knew no directory.
    pub(crate) file: Option<Arc<[u8]>>,
    /// The MD5 of the file that was compiled, if the compiler stated it.
    pub(crate) md5: Option<Md5Sum>,
    /// The line, 0 when unknown.
    pub(crate) line: u32,
    /// The column, 0 when unknown.
    pub(crate) column: u32,
    /// The line at which the function begins, 0 when unknown.
    pub(crate) start_line: u32,
}

/// The calls at an address.
#[derive(Debug, Default)]
pub(crate) struct FoundCalls {
    /// The calls, innermost first: every one but the last is inlined. Empty when the debug
    /// information does not cover the address.
    pub(crate) calls: Vec<Call>,
    /// The reason why calls, names or lines may be missing.
    pub(crate) fault: Option<DwarfError>,
}

/// A position in the source.
#[derive(Clone, Default)]
struct SourceLine {
    file: Option<Arc<[u8]>>,
    md5: Option<Md5Sum>,
    line: u32,
    column: u32,
}

/// A request for the calls at an address.
#[derive(Clone, Copy)]
struct Lookup<'a> {
    address: u64,
    detail: Detail,
    /// The linkage name of the function in the symbol table, if there is one.
    symbol: Option<&'a [u8]>,
}

/// The calls at an address in one unit.
#[derive(Default)]
struct UnitCalls {
    calls: Vec<Call>,
    /// True if the unit has a function at the address.
    has_function: bool,
}

impl Dwarf {
    /// Opens the files and lists the units. `room` is the memory bound of the tables in bytes.
    ///
    /// # Errors
    ///
    /// When no unit can be read.
    pub(crate) fn load(files: Box<dyn DebugFiles>, room: usize) -> Result<Self, DwarfError> {
        let linked = Rc::new(DwarfFile::new(files.main(), false)?);
        Ok(Self {
            units: UnitCache::new(Rc::new(LinkedFiles::new(files)), linked),
            index: OnceCell::new(),
            names: FunctionNames::default(),
            room,
            is_sorted: Cell::default(),
            checked_bytes: Cell::default(),
        })
    }

    /// True if it was decompressed, so that all of it is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        let info = self.units.linked.section(SectionId::DebugInfo);
        info.is_ok_and(|info| info.is_in_memory())
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let index = self.index.get().map_or(0, |index| index.borrow().bytes());
        let files = self.units.linked.bytes() + self.units.files.bytes();
        self.tables_bytes() + index + files
    }

    /// Returns the memory that the bound limits, in bytes: all but the list and index of units, and
    /// decompressed sections.
    pub(crate) fn tables_bytes(&self) -> usize {
        self.units.bytes() + self.names.bytes() + self.kept_bytes()
    }

    fn kept_bytes(&self) -> usize {
        self.units.linked.kept_bytes() + self.units.files.kept_bytes()
    }

    /// Returns the unit that is searched first for an address. Lookups in the order of units and
    /// addresses read each unit once: a C++ unit has code in two or three places (`.text`,
    /// `.text.unlikely`, `.text.startup`).
    pub(crate) fn unit(&self, address: u64) -> Option<u32> {
        self.index().borrow().at(address).first().copied()
    }

    /// Declares that lookups come in the order of units from now on, or no longer: then less memory
    /// is as fast.
    pub(crate) fn set_sorted(&self, is_sorted: bool) {
        self.is_sorted.set(is_sorted);
    }

    /// Returns the calls at an address, in as much detail as is requested. `symbol` is the mangled
    /// name of the function in the symbol table, which spares building one.
    pub(crate) fn calls(&self, address: u64, detail: Detail, symbol: Option<&[u8]>) -> FoundCalls {
        let lookup = Lookup { address, detail, symbol };
        let index = self.index();
        // A copy: reading lines for the index below needs it mutably.
        let units = index.borrow().at(address);
        let mut found = self.calls_in(&units, &lookup);
        if found.calls.is_empty() && index.borrow().has_units_without_ranges() {
            index.borrow_mut().read_lines(&self.units.files, &self.units.linked);
            let units = index.borrow().at(address);
            found = self.calls_in(&units, &lookup);
        }
        let fault = found.fault.or_else(|| index.borrow().fault().cloned());
        self.make_room();
        FoundCalls { calls: found.calls, fault }
    }

    fn index(&self) -> &RefCell<UnitIndex> {
        let read = || RefCell::new(UnitIndex::read(&self.units.files, &self.units.linked));
        self.index.get_or_init(read)
    }

    /// Drops tables if they take more memory than the bound, down to three quarters of it: the
    /// cheapest to read again first.
    fn make_room(&self) {
        // Bytes of sections are read only for tables and names.
        let bytes = self.units.bytes() + self.names.bytes();
        if self.checked_bytes.replace(bytes) == bytes {
            return;
        }
        let room = if self.is_sorted.get() { self.room.min(SORTED_ROOM_BYTES) } else { self.room };
        if self.tables_bytes() <= room {
            return;
        }
        let wanted = room / 4 * 3;
        // Names are built again one by one. Dropping less than a quarter would free little.
        if self.names.bytes() > room / 4 {
            self.names.clear();
        }
        if self.kept_bytes() > room / 4 {
            self.units.linked.drop_kept();
            self.units.files.drop_kept();
        }
        let others = self.names.bytes() + self.kept_bytes();
        self.units.shrink_to(wanted.saturating_sub(others));
    }

    /// Returns the calls in the first of the units that has a function at the address, else the
    /// line in the first that has one.
    fn calls_in(&self, units: &[u32], lookup: &Lookup<'_>) -> FoundCalls {
        let mut best = FoundCalls::default();
        for &unit in units {
            let mut fault = None;
            let mut note = |noted: DwarfError| fault = Some(noted);
            let found = self.calls_in_unit(unit, lookup, &mut note);
            let found = found.unwrap_or_else(|fault| {
                note(fault);
                UnitCalls::default()
            });
            let has_function = found.has_function;
            if has_function || (best.calls.is_empty() && !found.calls.is_empty()) {
                best.calls = found.calls;
            }
            best.fault = fault.or(best.fault);
            // Units overlap if the linker folded equal functions (ICF): one is as good as the other.
            if has_function {
                break;
            }
        }
        best
    }

    fn calls_in_unit(
        &self,
        unit: u32,
        lookup: &Lookup<'_>,
        note: &mut dyn FnMut(DwarfError),
    ) -> Result<UnitCalls, DwarfError> {
        let Lookup { address, detail, symbol } = *lookup;
        let tables = self.units.get(FileKind::Linked, unit)?;
        let mut line =
            if detail.lines { line(&tables, address, note) } else { SourceLine::default() };
        let (file, body) = match self.units.body(unit, &tables) {
            Ok(body) => body,
            // The .dwo file is missing; the lines are in the linked file.
            Err(fault) => {
                note(fault);
                self.units.count(&tables);
                return Ok(UnitCalls { calls: line_only(line), has_function: false });
            }
        };
        let (functions, function) = body.function(address);
        let Some(function) = function else {
            if let Some(fault) = functions.fault() {
                note(fault.clone());
            }
            self.count(&tables, &body);
            return Ok(UnitCalls { calls: line_only(line), has_function: false });
        };
        let inlined = if detail.is_symbols_only() {
            Rc::new(InlinedCalls::default())
        } else {
            functions.inlined(&body.unit, function).unwrap_or_else(|fault| {
                note(fault);
                Rc::default()
            })
        };
        let found = inlined.at(address);
        let entry = functions.entry(function);
        let mut calls = Vec::with_capacity(if detail.inlines { found.len() + 1 } else { 1 });
        // The inlined call that was pushed last.
        let mut last = None;
        // A stream holds no more calls for an address; compilers inline less deep.
        for call in found.iter().rev().take(nprof_stream::limits::LINES - 1) {
            let outer = if detail.lines {
                call_line(&tables, address, call)
            } else {
                SourceLine::default()
            };
            let inner = std::mem::replace(&mut line, outer);
            // Without inlined calls, only the line in the outermost function is written.
            if detail.inlines {
                let origin = call.origin.map(|origin| target(file, origin));
                // Without an origin, the call itself may have a name.
                let (file, entry) = origin.unwrap_or((file, inlined.entry(call)));
                let inner = self.call(inner, file, entry, None, note);
                self.push_call(&mut calls, inner, last);
                last = Some(InlinedAt { file, entry, line: call.line, column: call.column });
            }
        }
        let outermost = self.call(line, file, entry, symbol, note);
        self.push_call(&mut calls, outermost, last);
        self.count(&tables, &body);
        // A function without a name gives way to one of another unit that overlaps.
        let has_function = calls.iter().any(|call| call.function.is_some());
        Ok(UnitCalls { calls, has_function })
    }

    /// Adds the caller of the last call, unless the last call is only a part of the caller. It would look
    /// like a recursion.
    fn push_call(&self, calls: &mut Vec<Call>, caller: Call, last: Option<InlinedAt>) {
        let is_same = |inner: &Call| inner.function.is_some() && inner.function == caller.function;
        let is_part = |last: &InlinedAt| self.names.is_part(&self.units, last);
        if !(calls.last().is_some_and(is_same) && last.as_ref().is_some_and(is_part)) {
            calls.push(caller);
        }
    }

    /// Counts the memory of a unit of the linked file and of the unit with its code.
    fn count(&self, tables: &Rc<UnitTables>, body: &Rc<UnitTables>) {
        self.units.count(tables);
        if !Rc::ptr_eq(tables, body) {
            self.units.count(body);
        }
    }

    /// Returns the call of the function of an entry at a line.
    fn call(
        &self,
        line: SourceLine,
        file: FileKind,
        entry: u64,
        symbol: Option<&[u8]>,
        note: &mut dyn FnMut(DwarfError),
    ) -> Call {
        let function = self.name(file, entry, symbol, note);
        // A line says nothing without its file.
        let has_line = function.is_some() && line.file.is_some();
        let start_line = if has_line { self.names.start_line(&self.units, file, entry) } else { 0 };
        Call { start_line, ..line.in_function(function) }
    }

    fn name(
        &self,
        file: FileKind,
        entry: u64,
        symbol: Option<&[u8]>,
        note: &mut dyn FnMut(DwarfError),
    ) -> Option<Arc<[u8]>> {
        match self.names.name(&self.units, file, entry, symbol) {
            Ok(name) => Some(name).filter(|name| !name.is_empty()),
            Err(fault) => {
                note(fault);
                None
            }
        }
    }
}

impl SourceLine {
    fn in_function(self, function: Option<Arc<[u8]>>) -> Call {
        let Self { file, md5, line, column } = self;
        Call { function, file, md5, line, column, start_line: 0 }
    }
}

/// Returns the calls at an address outside of all functions: its line, if it has one.
fn line_only(line: SourceLine) -> Vec<Call> {
    let call = line.in_function(None);
    if call == Call::default() { Vec::new() } else { vec![call] }
}

/// Returns the line of an address.
fn line(tables: &UnitTables, address: u64, note: &mut dyn FnMut(DwarfError)) -> SourceLine {
    let found = tables.lines(address).and_then(|lines| {
        let Some(lines) = lines else { return Ok(SourceLine::default()) };
        if let Some(fault) = lines.fault() {
            note(fault.clone());
        }
        let Some(row) = lines.find(&tables.unit, address)? else {
            return Ok(SourceLine::default());
        };
        let file = lines.path(&tables.unit, row.file)?;
        Ok(SourceLine {
            file: Some(file).filter(|file| !file.is_empty()),
            md5: lines.md5(row.file),
            line: row.line,
            column: row.column,
        })
    });
    found.unwrap_or_else(|fault| {
        note(fault);
        SourceLine::default()
    })
}

/// Returns the line of an inlined call.
fn call_line(tables: &UnitTables, address: u64, call: &InlinedCall) -> SourceLine {
    let InlinedCall { file, line, column, .. } = *call;
    // Before DWARF 5, files count from 1, and 0 is no file (DWARF 4, 6.2.4).
    let is_known = file != NO_FILE && (file > 0 || tables.unit.head.encoding.version >= 5);
    let lines = tables.lines(address).ok().flatten().filter(|_| is_known);
    let path = lines.and_then(|lines| lines.path(&tables.unit, file).ok());
    let md5 = lines.and_then(|lines| lines.md5(file));
    SourceLine { file: path.filter(|path| !path.is_empty()), md5, line, column }
}
