//! The debug information of one file: its sections, read when they are needed, and the list of
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
use super::section::{DebugFile, Section};

/// Bytes with their order.
pub(crate) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

/// The largest number of units of a file that are listed. The largest browsers have fewer than
/// 100,000.
const UNITS: usize = 1 << 20;

/// The largest size of the abbreviations of one unit in bytes.
const ABBREVIATIONS: u64 = 16 << 20;

/// The number of abbreviation tables that are kept.
const KEPT: usize = 64;

/// The memory of a table of abbreviations in bytes, about: some 100 of 200 bytes.
const ABBREVIATIONS_BYTES: usize = 20 << 10;

/// The largest header of a unit in bytes (DWARF 5, 7.5.1): that of a type unit in 64-bit DWARF.
pub(crate) const UNIT_HEADER: u64 = 48;

/// The header of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitHead {
    /// The offset of the unit in `.debug_info`.
    pub(crate) start: u64,
    /// The offset of its first entry.
    pub(crate) entries: u64,
    /// The offset of its end.
    pub(crate) end: u64,
    /// Version, size of addresses and of offsets.
    pub(crate) encoding: Encoding,
    /// The offset of its abbreviations in `.debug_abbrev`.
    pub(crate) abbreviations: u64,
    /// True if it has types only.
    pub(crate) is_type: bool,
    /// The ID that skeleton and split unit share; 0 if the header has none.
    pub(crate) id: u64,
}

/// A file's sections and units.
pub(crate) struct DwarfFile {
    file: Box<dyn DebugFile>,
    /// True for a `.dwo` or `.dwp` file, with other names of sections.
    is_split: bool,
    endian: RunTimeEndian,
    sections: RefCell<BTreeMap<SectionId, Rc<PagedSection>>>,
    abbreviations: RefCell<FxHashMap<u64, Rc<Abbreviations>>>,
    units: Vec<UnitHead>,
    /// The reason why the list of units ends before the section does.
    fault: Option<DwarfError>,
}

impl DwarfFile {
    /// Lists the units of a file.
    ///
    /// # Errors
    ///
    /// When its `.debug_info` is missing or nothing of it can be read.
    pub(crate) fn new(file: Box<dyn DebugFile>, is_split: bool) -> Result<Self> {
        let endian = endian(file.is_little_endian());
        let mut opened = Self {
            file,
            is_split,
            endian,
            sections: RefCell::default(),
            abbreviations: RefCell::default(),
            units: Vec::new(),
            fault: None,
        };
        opened.fault = opened.list_units().err();
        match &opened.fault {
            // The units before a malformed header are good.
            Some(fault) if opened.units.is_empty() => Err(fault.clone()),
            _ => Ok(opened),
        }
    }

    /// Returns the reason why some of its units are not in the list.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// Returns the units in the order of the file.
    pub(crate) fn units(&self) -> &[UnitHead] {
        &self.units
    }

    /// Returns the index of the unit that holds an entry.
    pub(crate) fn unit_of(&self, entry: u64) -> Option<usize> {
        // References into headers, between two units, are malformed.
        let after = self.units.partition_point(|unit| unit.start <= entry);
        let unit = after.checked_sub(1)?;
        let head = &self.units[unit];
        (head.entries..head.end).contains(&entry).then_some(unit)
    }

    /// True for a `.dwo` or `.dwp` file.
    pub(crate) fn is_split(&self) -> bool {
        self.is_split
    }

    /// Wraps bytes with the byte order of this file.
    pub(crate) fn slice<'a>(&self, bytes: &'a [u8]) -> Slice<'a> {
        EndianSlice::new(bytes, self.endian)
    }

    /// Returns a section, empty if there is none.
    ///
    /// # Errors
    ///
    /// When it cannot be read; only at the first call for it.
    pub(crate) fn section(&self, id: SectionId) -> Result<Rc<PagedSection>> {
        if let Some(section) = self.sections.borrow().get(&id) {
            return Ok(Rc::clone(section));
        }
        let name = if self.is_split { id.dwo_name() } else { Some(id.name()) };
        let section = match name {
            Some(name) => self.file.section(name),
            None => Ok(Section::default()),
        };
        // An unreadable section counts as empty from now on, so that the error is reported once.
        let (section, fault) = match section {
            Ok(section) => (section, None),
            Err(error) => {
                let why = format!("{}: {error:#}", id.name());
                (Section::default(), Some(DwarfError::Unreadable(why)))
            }
        };
        let section = Rc::new(PagedSection::new(section));
        self.sections.borrow_mut().insert(id, Rc::clone(&section));
        fault.map_or(Ok(section), Err)
    }

    /// Returns the memory that it takes in any case, in bytes: the list of units, and sections that
    /// were decompressed.
    pub(crate) fn bytes(&self) -> usize {
        let sections = self.sections.borrow();
        let sections: usize = sections.values().map(|section| section.bytes()).sum();
        sections + self.units.capacity() * size_of::<UnitHead>()
    }

    /// Returns the memory that [`Self::drop_kept`] frees, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let sections = self.sections.borrow();
        let sections: usize = sections.values().map(|section| section.kept_bytes()).sum();
        sections + self.abbreviations.borrow().len() * ABBREVIATIONS_BYTES
    }

    /// Drops the bytes of sections and the abbreviations that are kept.
    pub(crate) fn drop_kept(&self) {
        self.sections.borrow().values().for_each(|section| section.drop_kept());
        self.abbreviations.borrow_mut().clear();
    }

    /// Returns the abbreviations of a unit.
    ///
    /// # Errors
    ///
    /// When they are malformed.
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

    /// Reads the first abbreviation at an offset. All compilers give it to the first entry.
    ///
    /// # Errors
    ///
    /// When it is malformed.
    pub(crate) fn first_abbreviation(&self, offset: u64) -> Result<Abbreviations> {
        self.read_abbreviations(offset, 1)
    }

    fn read_abbreviations(&self, offset: u64, count: usize) -> Result<Abbreviations> {
        let section = self.section(SectionId::DebugAbbrev)?;
        // A table has an end mark, but no length.
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
            let bytes = info.near(at, UNIT_HEADER)?;
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
        self.units.shrink_to_fit();
        Ok(())
    }
}

/// Converts the byte order of a file to gimli's.
pub(crate) fn endian(is_little: bool) -> RunTimeEndian {
    if is_little { RunTimeEndian::Little } else { RunTimeEndian::Big }
}

/// True if a section that begins with `bytes` begins with a type unit.
///
/// With `-fdebug-types-section`, gcc gives each type unit a `.debug_info.dwo` section of its own,
/// before the one with the code (DWARF 5, 7.3.2.2).
pub(crate) fn is_type_unit(bytes: &[u8], is_little: bool) -> bool {
    let head = unit_head(EndianSlice::new(bytes, endian(is_little)), 0);
    matches!(head, Ok(Some(head)) if head.is_type)
}

/// Reads the header of the unit at `start` (DWARF 5, 7.5.1). None for an unknown version.
fn unit_head(mut input: Slice<'_>, start: u64) -> Result<Option<UnitHead>> {
    let all = input.len();
    let (length, format) = input.read_initial_length()?;
    let end = start.saturating_add((all - input.len()) as u64).saturating_add(length as u64);
    let version = input.read_u16()?;
    if !(2..=5).contains(&version) {
        return Ok(None);
    }
    // Before DWARF 5, type units are in `.debug_types`, and the header has no kind.
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

/// Returns the size of the first `count` abbreviations in bytes, or of all. None if they do not
/// end.
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
            // The only form with its value in the abbreviation.
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                rest.read_sleb128().ok()?;
            }
        }
    }
    Some(input.len() - rest.len())
}

/// Returns the size of an offset in bytes.
pub(crate) fn word(format: Format) -> u64 {
    format.word_size().into()
}
