//! DWARF debug information: the function, line and inlined calls at an address.
//!
//! A thin layer over addr2line's context. Units are read when an address first falls into
//! them. Pure over the bytes of the sections.

#[allow(dead_code)] // taken into use with the engine
mod sections;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use addr2line::{LookupContinuation, LookupResult};
use anyhow::ensure;
use gimli::{DebugInfoOffset, EndianReader, Reader, RunTimeEndian, UnitOffset};

use crate::demangle::is_mangled;
use crate::scopes::Scopes;

#[allow(unused_imports, dead_code)] // taken into use with the engine
pub(crate) use sections::{DebugFile, DebugFiles, Section, SplitUnit};

type Bytes = EndianReader<RunTimeEndian, Rc<[u8]>>;

/// How deeply entries may nest. A level costs the parser up to 2 KiB of stack.
const NESTING: usize = 16 << 10;

/// The debug information of one file.
pub(crate) struct Dwarf {
    context: addr2line::Context<Bytes>,
    bytes: usize,
    /// The scopes of the units where names had to be told apart, by the units' offsets.
    scopes: RefCell<HashMap<DebugInfoOffset, Scopes<Bytes>>>,
}

/// A function at an address, and where in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The linkage name if the debug information has it, else the plain name.
    pub(crate) function: Option<Vec<u8>>,
    /// The path of the source file, absolute unless the compiler knew no directory.
    pub(crate) file: Option<Vec<u8>>,
    /// The line, 0 when unknown.
    pub(crate) line: u32,
    /// The column, 0 when unknown.
    pub(crate) column: u32,
}

impl Dwarf {
    /// Takes the sections, which `section` gives by name, empty for those that do not exist.
    ///
    /// # Errors
    ///
    /// When a section cannot be had, the unit headers make no sense, or entries nest too deeply.
    pub(crate) fn load(
        little_endian: bool,
        mut section: impl FnMut(&str) -> anyhow::Result<Rc<[u8]>>,
    ) -> anyhow::Result<Self> {
        let endian = if little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut bytes = 0;
        let mut dwarf = gimli::Dwarf::load(|id| {
            let contents = if is_needed(id) { section(id.name())? } else { Rc::default() };
            bytes += contents.len();
            anyhow::Ok(EndianReader::new(contents, endian))
        })?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        ensure!(!nests_too_deeply(&dwarf)?, "its entries nest deeper than {NESTING}");
        let context = addr2line::Context::from_dwarf(dwarf)?;
        Ok(Self { context, bytes, scopes: RefCell::default() })
    }

    /// The calls at an address, innermost first: every one but the last is inlined. Empty when
    /// the debug information does not cover the address. Second, whether some of it was split
    /// off into another file (`.dwo`), which is not read.
    ///
    /// # Errors
    ///
    /// When the unit that covers it is malformed.
    pub(crate) fn calls(&self, address: u64) -> Result<(Vec<Call>, bool), gimli::Error> {
        let mut frames = self.context.find_frames(address);
        let mut is_split = false;
        let mut frames = loop {
            match frames {
                LookupResult::Output(found) => break found?,
                LookupResult::Load { continuation, .. } => {
                    is_split = true;
                    frames = continuation.resume(None);
                }
            }
        };
        let mut calls: Vec<Call> = Vec::new();
        let mut unqualified = Vec::new();
        while let Some(frame) = frames.next()? {
            // More than a stream may hold is more than anyone inlines.
            if calls.len() < nprof_format::limits::LINES {
                unqualified.push(frame.dw_die_offset.filter(|_| is_unqualified(&frame)));
                calls.push(call(&frame)?);
            }
        }
        // The outermost function has its symbol.
        unqualified.pop();
        self.qualify(address, &mut calls, &unqualified);
        Ok((calls, is_split))
    }

    /// Completes the names of inlined C++ functions that have no linkage names.
    fn qualify(&self, address: u64, calls: &mut [Call], entries: &[Option<UnitOffset>]) {
        if entries.iter().all(Option::is_none) {
            return;
        }
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads();
        let Some((unit, offset)) = unit.and_then(|unit| Some((unit, unit.debug_info_offset()?)))
        else {
            return;
        };
        let mut scopes = self.scopes.borrow_mut();
        let scopes = scopes.entry(offset).or_insert_with(|| Scopes::read(unit));
        for (call, entry) in calls.iter_mut().zip(entries) {
            let Some((entry, name)) = entry.zip(call.function.as_ref()) else { continue };
            if let Some(qualified) = scopes.qualify(unit, entry, name) {
                call.function = Some(qualified);
            }
        }
    }

    /// How much memory the sections take, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether entries nest deeper than any program's: the parser recurses, and a stack that
/// overflows ends the process.
fn nests_too_deeply(dwarf: &gimli::Dwarf<Bytes>) -> Result<bool, gimli::Error> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        // An entry takes at least a byte, so that small units cannot nest deeply.
        if header.unit_length() <= NESTING {
            continue;
        }
        // Nor is a unit whose entries cannot be read ever parsed further.
        let Ok(abbreviations) = dwarf.abbreviations(&header) else { continue };
        let Ok(mut entries) = header.entries_raw(&abbreviations, None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > NESTING as isize {
                return Ok(true);
            }
            let Ok(abbreviation) = entries.read_abbreviation() else { break };
            let skipped = abbreviation.map(|known| entries.skip_attributes(known.attributes()));
            if skipped.is_some_and(|skipped| skipped.is_err()) {
                break;
            }
        }
    }
    Ok(false)
}

/// Whether a function has only its own name, in a language where that is not all.
fn is_unqualified(frame: &addr2line::Frame<'_, Bytes>) -> bool {
    let Some(function) = &frame.function else { return false };
    let is_cxx = matches!(
        function.language,
        Some(
            gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
        )
    );
    is_cxx && !function.name.to_slice().is_ok_and(|name| is_mangled(&name))
}

fn call(frame: &addr2line::Frame<'_, Bytes>) -> Result<Call, gimli::Error> {
    let function = frame
        .function
        .as_ref()
        .map(|function| function.name.to_slice().map(std::borrow::Cow::into_owned));
    let function = function.transpose()?.filter(|name| !name.is_empty());
    let location = frame.location.as_ref();
    let file = location.and_then(|location| location.file).filter(|file| !file.is_empty());
    Ok(Call {
        function,
        file: file.map(|file| file.as_bytes().to_vec()),
        line: location.and_then(|location| location.line).unwrap_or(0),
        column: location.and_then(|location| location.column).unwrap_or(0),
    })
}

/// Whether a section says anything about functions, lines and inlined calls: a good part of
/// debug information (types, variables) does not.
fn is_needed(id: gimli::SectionId) -> bool {
    use gimli::SectionId as Id;
    matches!(
        id,
        Id::DebugAbbrev
            | Id::DebugAddr
            | Id::DebugAranges
            | Id::DebugInfo
            | Id::DebugLine
            | Id::DebugLineStr
            | Id::DebugRanges
            | Id::DebugRngLists
            | Id::DebugStr
            | Id::DebugStrOffsets
    )
}
