//! The debug information of one file: its sections, taken when they are needed, and the list of
//! its units.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use gimli::{
    Abbreviations, DebugAbbrev, DebugAbbrevOffset, Encoding, EndianSlice, Format, Reader,
    RunTimeEndian, SectionId,
};
use rustc_hash::FxHashMap;

use super::error::{DwarfError, Result};
use super::paged_section::PagedSection;
use super::section::DebugFile;

/// Bytes with their order.
pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// The most units of a file that are listed. The largest browsers have fewer than 100,000.
const UNITS: usize = 1 << 20;

/// The most bytes the abbreviations of one unit take.
const ABBREVIATIONS: u64 = 16 << 20;

/// How many units' abbreviations are kept.
const KEPT: usize = 64;

/// What the header of a unit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHead {
    /// Where the unit begins in `.debug_info`.
    pub(crate) start: u64,
    /// Where its first entry is.
    pub(crate) entries: u64,
    /// Where it ends.
    pub(crate) end: u64,
    /// Version, size of addresses and of offsets.
    pub(crate) encoding: Encoding,
    /// Where its abbreviations are in `.debug_abbrev`.
    pub(crate) abbreviations: u64,
    /// Whether it has types only.
    pub(crate) is_type: bool,
    /// What it has in common with its skeleton, or with what was split off; 0 when it does not say.
    pub(crate) id: u64,
}

/// A file's sections and units.
pub(crate) struct DwarfFile {
    file: Box<dyn DebugFile>,
    /// Whether it is a `.dwo` or `.dwp` file, whose sections have other names.
    is_split: bool,
    endian: RunTimeEndian,
    sections: RefCell<BTreeMap<SectionId, Rc<PagedSection>>>,
    abbreviations: RefCell<FxHashMap<u64, Rc<Abbreviations>>>,
    units: Vec<UnitHead>,
    /// Why the list of units ends before the section does.
    fault: Option<DwarfError>,
}

impl DwarfFile {
    /// Lists the units of a file.
    ///
    /// # Errors
    ///
    /// When its `.debug_info` cannot be had, or nothing of it can be read.
    pub(crate) fn new(file: Box<dyn DebugFile>, is_split: bool) -> Result<Self> {
        let endian =
            if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut data = Self {
            file,
            is_split,
            endian,
            sections: RefCell::default(),
            abbreviations: RefCell::default(),
            units: Vec::new(),
            fault: None,
        };
        data.fault = data.list_units().err();
        match &data.fault {
            Some(fault) if data.units.is_empty() => Err(fault.clone()),
            _ => Ok(data),
        }
    }

    /// Why some of its units are not in the list.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// The units in the order of the file.
    pub(crate) fn units(&self) -> &[UnitHead] {
        &self.units
    }

    /// The index of the unit that holds an entry.
    pub(crate) fn unit_of(&self, entry: u64) -> Option<usize> {
        let after = self.units.partition_point(|unit| unit.start <= entry);
        let unit = after.checked_sub(1)?;
        let head = &self.units[unit];
        (head.entries..head.end).contains(&entry).then_some(unit)
    }

    /// Whether it is a `.dwo` or `.dwp` file.
    pub(crate) fn is_split(&self) -> bool {
        self.is_split
    }

    /// Bytes with the order of this file's.
    pub(crate) fn slice<'a>(&self, bytes: &'a [u8]) -> Slice<'a> {
        EndianSlice::new(bytes, self.endian)
    }

    /// A section, empty when there is none.
    pub(crate) fn section(&self, id: SectionId) -> Result<Rc<PagedSection>> {
        if let Some(section) = self.sections.borrow().get(&id) {
            return Ok(Rc::clone(section));
        }
        let name = if self.is_split { id.dwo_name() } else { Some(id.name()) };
        let section = match name {
            Some(name) => self.file.section(name),
            None => Ok(super::Section::default()),
        };
        // What cannot be had is absent from then on; it is told once.
        let (section, fault) = match section {
            Ok(section) => (section, None),
            Err(error) => {
                let why = format!("{}: {error:#}", id.name());
                (super::Section::default(), Some(DwarfError::Unreadable(why)))
            }
        };
        let pages = Rc::new(PagedSection::new(section));
        self.sections.borrow_mut().insert(id, Rc::clone(&pages));
        fault.map_or(Ok(pages), Err)
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let sections = self.sections.borrow();
        let sections: usize = sections.values().map(|section| section.bytes()).sum();
        // An abbreviation takes some 200 bytes, and a unit has a hundred of them.
        sections + size_of_val(&*self.units) + self.abbreviations.borrow().len() * (20 << 10)
    }

    /// The abbreviations of a unit.
    pub(crate) fn abbreviations(&self, offset: u64) -> Result<Rc<Abbreviations>> {
        if let Some(known) = self.abbreviations.borrow().get(&offset) {
            return Ok(Rc::clone(known));
        }
        let known = Rc::new(self.read_abbreviations(offset, usize::MAX)?);
        let mut kept = self.abbreviations.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(offset, Rc::clone(&known));
        Ok(known)
    }

    /// The first abbreviation at an offset, which is that of the first entry almost always.
    pub(crate) fn first_abbreviation(&self, offset: u64) -> Result<Abbreviations> {
        self.read_abbreviations(offset, 1)
    }

    fn read_abbreviations(&self, offset: u64, count: usize) -> Result<Abbreviations> {
        let section = self.section(SectionId::DebugAbbrev)?;
        let mut length = if count == 1 { 64 } else { 4 << 10 };
        loop {
            let bytes = section.near(offset, length)?;
            let is_all = (bytes.len() as u64) < length;
            if let Some(end) = abbreviations_end(self.slice(&bytes), count) {
                let table = DebugAbbrev::from(self.slice(&bytes[..end]));
                return Ok(table.abbreviations(DebugAbbrevOffset(0))?);
            }
            if is_all {
                let at = gimli::ReaderOffsetId(offset);
                return Err(DwarfError::Malformed(gimli::Error::UnexpectedEof(at)));
            }
            if length >= ABBREVIATIONS {
                return Err(DwarfError::Limit("abbreviations without end"));
            }
            length *= 4;
        }
    }

    fn list_units(&mut self) -> Result<()> {
        let info = self.section(SectionId::DebugInfo)?;
        let mut at = 0;
        while at < info.len() {
            if self.units.len() >= UNITS {
                return Err(DwarfError::Limit("more units than any program has"));
            }
            let bytes = info.near(at, 48)?;
            let Some(unit) = unit_head(self.slice(&bytes), at)? else {
                return Err(DwarfError::Limit("a unit of an unknown version"));
            };
            if unit.end > info.len() || unit.entries > unit.end {
                let at = gimli::ReaderOffsetId(at);
                return Err(DwarfError::Malformed(gimli::Error::UnexpectedEof(at)));
            }
            at = unit.end;
            self.units.push(unit);
        }
        Ok(())
    }
}

/// Reads the header of the unit at `start`. `None` for a version that is not known.
fn unit_head(mut input: Slice<'_>, start: u64) -> Result<Option<UnitHead>> {
    let all = input.len();
    let (length, format) = input.read_initial_length()?;
    let end = start.saturating_add((all - input.len()) as u64).saturating_add(length as u64);
    let version = input.read_u16()?;
    if !(2..=5).contains(&version) {
        return Ok(None);
    }
    let kind = if version == 5 { gimli::DwUt(input.read_u8()?) } else { gimli::DW_UT_compile };
    let (address_size, abbreviations);
    if version == 5 {
        address_size = input.read_address_size()?;
        abbreviations = input.read_offset(format)?;
    } else {
        abbreviations = input.read_offset(format)?;
        address_size = input.read_address_size()?;
    }
    let is_type = matches!(kind, gimli::DW_UT_type | gimli::DW_UT_split_type);
    let has_id = is_type || matches!(kind, gimli::DW_UT_skeleton | gimli::DW_UT_split_compile);
    let id = if has_id { input.read_u64()? } else { 0 };
    if is_type {
        input.read_offset(format)?;
    }
    let encoding = Encoding { address_size, format, version };
    let entries = start + (all - input.len()) as u64;
    let abbreviations = abbreviations as u64;
    Ok(Some(UnitHead { start, entries, end, encoding, abbreviations, is_type, id }))
}

/// Where the abbreviations end, counted in bytes, or the first `count` of them. `None` when they
/// do not.
fn abbreviations_end(input: Slice<'_>, count: usize) -> Option<usize> {
    let mut rest = input;
    for _ in 0..count {
        if rest.read_uleb128().ok()? == 0 {
            break;
        }
        rest.read_uleb128().ok()?;
        rest.read_u8().ok()?;
        loop {
            let (name, form) = (rest.read_uleb128().ok()?, rest.read_uleb128().ok()?);
            if (name, form) == (0, 0) {
                break;
            }
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                rest.read_sleb128().ok()?;
            }
        }
    }
    Some(input.len() - rest.len())
}

/// How many bytes an offset takes.
pub(crate) fn word(format: Format) -> u64 {
    format.word_size().into()
}
