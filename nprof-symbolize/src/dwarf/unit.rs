//! A unit: the attributes of its first entry, and the meaning of the attributes of its entries.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use gimli::{
    Abbreviation, Abbreviations, Attribute, AttributeSpecification, AttributeValue, EntriesRaw,
    SectionId, UnitOffset,
};

use super::bases::Bases;
use super::debug_file::{DwarfFile, Slice, UnitHead, word};
use super::error::{DwarfError, Result};
use super::linked_files::LinkedFiles;
use super::paged_section::PagedSection;
use super::ranges;
use super::section::SplitUnit;

/// The largest size of one list of ranges in bytes, about.
const LIST: u64 = 1 << 20;

/// The largest size of the attributes of one entry in bytes.
const ENTRY: u64 = 1 << 20;

/// The largest unit that is read, in bytes.
const UNIT: u64 = 1 << 30;

/// The number of attributes that gimli keeps inside of an abbreviation.
const INLINE_ATTRIBUTES: usize = 5;

/// The first entry of a unit, and the context in which its other entries are read.
pub(crate) struct Unit {
    files: Rc<LinkedFiles>,
    /// The file with its entries.
    pub(crate) data: Rc<DwarfFile>,
    /// The linked file, with addresses and lines; the same as `data` unless the unit was split
    /// off.
    pub(crate) linked: Rc<DwarfFile>,
    pub(crate) head: UnitHead,
    bases: Bases,
    /// The address that ranges count from.
    low_pc: u64,
    /// The addresses of its code; empty if the first entry has none.
    pub(crate) ranges: Vec<Range<u64>>,
    /// True if it has only entries that other units import, and so no code.
    pub(crate) is_partial: bool,
    /// The directory of the compilation.
    pub(crate) directory: Vec<u8>,
    /// The source file.
    pub(crate) name: Vec<u8>,
    /// The offset of its lines in `.debug_line`.
    pub(crate) lines: Option<u64>,
    /// True if its functions have scopes and parameters as those of C++ have.
    pub(crate) is_cxx: bool,
    /// The file that the unit was split off into.
    pub(crate) split: Option<SplitUnit>,
    abbreviations: RefCell<Option<Rc<Abbreviations>>>,
    /// The memory of its abbreviations in bytes.
    abbreviation_bytes: Cell<usize>,
}

/// The attributes of an entry that give its addresses (DWARF 5, 2.17).
#[derive(Clone, Copy, Default)]
pub(crate) struct RangeAttributes<'a> {
    low: Option<AttributeValue<Slice<'a>>>,
    high: Option<AttributeValue<Slice<'a>>>,
    ranges: Option<AttributeValue<Slice<'a>>>,
}

impl<'a> RangeAttributes<'a> {
    /// Stores an attribute, if it is one of those.
    #[inline]
    pub(crate) fn take(&mut self, attribute: &Attribute<Slice<'a>>) {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = Some(attribute.value()),
            gimli::DW_AT_high_pc => self.high = Some(attribute.value()),
            gimli::DW_AT_ranges => self.ranges = Some(attribute.value()),
            _ => {}
        }
    }
}

/// An entry that another one refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reference {
    /// An offset in `.debug_info` of the same file.
    Here(u64),
    /// An offset in `.debug_info` of the supplementary file.
    Supplementary(u64),
}

/// The attributes of one entry.
pub(crate) type Attributes<'a> = Vec<Attribute<Slice<'a>>>;

impl Unit {
    /// Reads the first entry of a unit. A split unit has some of its bases from its `skeleton`.
    ///
    /// # Errors
    ///
    /// When the entry or a value it refers to is malformed.
    pub(crate) fn open(
        files: &Rc<LinkedFiles>,
        data: &Rc<DwarfFile>,
        head: UnitHead,
        skeleton: Option<&Self>,
    ) -> Result<Self> {
        let linked = skeleton.map_or_else(|| Rc::clone(data), |unit| Rc::clone(&unit.linked));
        let mut unit = Self {
            files: Rc::clone(files),
            data: Rc::clone(data),
            linked,
            head,
            bases: Bases::of(data, head, skeleton.map(|unit| unit.bases)),
            low_pc: skeleton.map_or(0, |unit| unit.low_pc),
            ranges: Vec::new(),
            is_partial: false,
            directory: skeleton.map(|unit| unit.directory.clone()).unwrap_or_default(),
            name: Vec::new(),
            lines: skeleton.and_then(|unit| unit.lines),
            is_cxx: false,
            split: None,
            abbreviations: RefCell::default(),
            abbreviation_bytes: Cell::default(),
        };
        let info = data.section(SectionId::DebugInfo)?;
        // One abbreviation of some hundred: this runs for each unit of the file.
        let first = data.first_abbreviation(head.abbreviations)?;
        let mut length = 128;
        loop {
            let length_here = (head.end - head.entries).min(length);
            let bytes = info.near(head.entries, length_here)?;
            let read = match read_entry(data.slice(&bytes), head, &first) {
                // DWARF does not require that the first abbreviation is that of the first entry.
                Err(gimli::Error::InvalidAbbreviationCode(_)) => {
                    let all = data.abbreviations(head.abbreviations)?;
                    read_entry(data.slice(&bytes), head, &all)
                }
                read => read,
            };
            match read {
                Ok((tag, attributes)) => {
                    // Before DWARF 5, only the tag distinguishes partial units (3.1.1).
                    unit.is_partial = tag == gimli::DW_TAG_partial_unit;
                    unit.take_root(&attributes)?;
                    return Ok(unit);
                }
                Err(gimli::Error::UnexpectedEof(_)) if grows(&mut length, length_here) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take_root(&mut self, attributes: &[Attribute<Slice<'_>>]) -> Result<()> {
        let mut addresses = RangeAttributes::default();
        // Strings and addresses count from bases, which may be later attributes.
        for attribute in attributes {
            let offset = attribute.offset_value().unwrap_or_default() as u64;
            match attribute.name() {
                gimli::DW_AT_str_offsets_base => self.bases.str_offsets = offset,
                gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base => {
                    self.bases.addresses = offset;
                }
                gimli::DW_AT_rnglists_base => self.bases.rnglists = offset,
                gimli::DW_AT_GNU_ranges_base => self.bases.ranges = offset,
                // In DWARF 5 the header has it.
                gimli::DW_AT_GNU_dwo_id => {
                    self.head.id = attribute.udata_value().unwrap_or_default();
                }
                _ => addresses.take(attribute),
            }
        }
        let mut split = None;
        for attribute in attributes {
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_name, value) => self.name = self.string_or_empty(value)?,
                (gimli::DW_AT_comp_dir, value) => self.directory = self.string_or_empty(value)?,
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => {
                    split = Some(self.string(value)?);
                }
                // The lines of a split unit are those of its skeleton: `.debug_line.dwo` has only
                // the files that types were declared in (DWARF 5, 7.3.2.2).
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset))
                    if !self.data.is_split() =>
                {
                    self.lines = Some(offset.0 as u64);
                }
                (gimli::DW_AT_language, AttributeValue::Language(language)) => {
                    self.is_cxx = is_cxx(language);
                }
                _ => {}
            }
        }
        // The attribute of a split unit names its own file.
        self.split = split.filter(|_| !self.data.is_split()).map(|name| SplitUnit {
            name,
            directory: self.directory.clone(),
            id: self.head.id,
        });
        if let Some(low) = addresses.low {
            self.low_pc = self.address(low)?.unwrap_or_default();
        }
        let mut ranges = Vec::new();
        self.for_each_range(&addresses, |range| ranges.push(range))?;
        self.ranges = ranges;
        Ok(())
    }

    /// Returns the memory it takes in addition to its place in a table, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let split = self.split.as_ref().map_or(0, |split| split.name.len() + split.directory.len());
        self.directory.capacity()
            + self.name.capacity()
            + split
            + self.ranges.capacity() * size_of::<Range<u64>>()
            + self.abbreviation_bytes.get()
    }

    /// Drops the abbreviations, which are read again when they are needed.
    pub(crate) fn drop_abbreviations(&self) {
        *self.abbreviations.borrow_mut() = None;
        self.abbreviation_bytes.set(0);
    }

    /// Returns the abbreviations of its entries.
    ///
    /// # Errors
    ///
    /// When they are malformed.
    pub(crate) fn abbreviations(&self) -> Result<Rc<Abbreviations>> {
        if let Some(known) = &*self.abbreviations.borrow() {
            return Ok(Rc::clone(known));
        }
        let known = self.data.abbreviations(self.head.abbreviations)?;
        *self.abbreviations.borrow_mut() = Some(Rc::clone(&known));
        self.abbreviation_bytes.set(abbreviations_bytes(&known));
        Ok(known)
    }

    /// True if the debug information of the unit has the types and parameters of functions.
    ///
    /// `-g1` of gcc and `-gline-tables-only` of clang leave them out. Such a unit has no type at
    /// all, so that its abbreviations have no tag of one.
    ///
    /// # Errors
    ///
    /// When the abbreviations are malformed.
    pub(crate) fn has_types(&self) -> Result<bool> {
        // The types of a partial unit (dwz) may all be in other units.
        if self.is_partial {
            return Ok(true);
        }
        let abbreviations = self.abbreviations()?;
        let mut tags = numbered(&abbreviations).map(Abbreviation::tag);
        Ok(tags.any(|tag| matches!(tag, gimli::DW_TAG_formal_parameter | gimli::DW_TAG_base_type)))
    }

    /// Returns the size of all its entries in bytes.
    ///
    /// # Errors
    ///
    /// When it is larger than any compiler makes it.
    pub(crate) fn length(&self) -> Result<u64> {
        let length = self.head.end - self.head.entries;
        if length > UNIT {
            return Err(DwarfError::Limit("a unit larger than any compiler makes"));
        }
        Ok(length)
    }

    /// Walks over entries: `bytes` begin with the one at `offset` in `.debug_info`, from which
    /// the offsets of the walk count.
    pub(crate) fn walk<'a, 'b>(
        &self,
        bytes: &'b [u8],
        abbreviations: &'a Abbreviations,
    ) -> EntriesRaw<'a, Slice<'b>> {
        let slice = self.data.slice(bytes);
        EntriesRaw::new(slice, self.head.encoding, abbreviations, UnitOffset(0))
    }

    /// Passes the tag and the attributes of the entry at an offset in `.debug_info` to `take`.
    ///
    /// # Errors
    ///
    /// When there is no entry, or it is malformed, and the errors of `take`.
    pub(crate) fn entry<T>(
        &self,
        offset: u64,
        mut take: impl FnMut(gimli::DwTag, Attributes<'_>) -> Result<T>,
    ) -> Result<T> {
        let info = self.data.section(SectionId::DebugInfo)?;
        let abbreviations = self.abbreviations()?;
        // An entry has no length; most have less than 128 bytes.
        let mut length = 128;
        loop {
            let length_here = self.head.end.saturating_sub(offset).min(length);
            let bytes = info.near(offset, length_here)?;
            match read_entry(self.data.slice(&bytes), self.head, &abbreviations) {
                Ok((tag, attributes)) => return take(tag, attributes),
                Err(gimli::Error::UnexpectedEof(_)) if grows(&mut length, length_here) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the entry that an attribute refers to.
    pub(crate) fn reference(&self, value: AttributeValue<Slice<'_>>) -> Option<Reference> {
        match value {
            AttributeValue::UnitRef(offset) => {
                Some(Reference::Here(self.head.start.saturating_add(offset.0 as u64)))
            }
            AttributeValue::DebugInfoRef(offset) => Some(Reference::Here(offset.0 as u64)),
            AttributeValue::DebugInfoRefSup(offset) => {
                Some(Reference::Supplementary(offset.0 as u64))
            }
            _ => None,
        }
    }

    /// Returns the string of an attribute, empty where the supplementary file that has it is
    /// missing: dwz moves the names of units there, too, and lines do not need them.
    fn string_or_empty(&self, value: AttributeValue<Slice<'_>>) -> Result<Vec<u8>> {
        match self.string(value) {
            Err(DwarfError::NoSupplementary) => Ok(Vec::new()),
            read => read,
        }
    }

    /// Returns the string of an attribute, empty if the attribute is no string.
    ///
    /// # Errors
    ///
    /// When it lies outside of its section, or in a missing file.
    pub(crate) fn string(&self, value: AttributeValue<Slice<'_>>) -> Result<Vec<u8>> {
        let (section, offset) = match value {
            AttributeValue::String(text) => return Ok(text.slice().to_vec()),
            AttributeValue::DebugStrRef(offset) => (SectionId::DebugStr, offset.0 as u64),
            AttributeValue::DebugLineStrRef(offset) => (SectionId::DebugLineStr, offset.0 as u64),
            AttributeValue::DebugStrRefSup(offset) => {
                let shared = self.files.supplementary()?;
                return shared.section(SectionId::DebugStr)?.string(offset.0 as u64);
            }
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let word = word(self.head.encoding.format);
                let at = element(self.bases.str_offsets, index.0 as u64, word)?;
                let section = self.data.section(SectionId::DebugStrOffsets)?;
                (SectionId::DebugStr, number(&self.data, &section, at, word)?)
            }
            _ => return Ok(Vec::new()),
        };
        self.data.section(section)?.string(offset)
    }

    /// Returns the address of an attribute. None if the attribute is no address.
    ///
    /// # Errors
    ///
    /// When it lies outside of the table of addresses.
    #[inline]
    fn address(&self, value: AttributeValue<Slice<'_>>) -> Result<Option<u64>> {
        match value {
            AttributeValue::Addr(address) => Ok(Some(address)),
            AttributeValue::DebugAddrIndex(index) => self.indexed_address(index.0 as u64).map(Some),
            _ => Ok(None),
        }
    }

    fn indexed_address(&self, index: u64) -> Result<u64> {
        let size = u64::from(self.head.encoding.address_size);
        let at = element(self.bases.addresses, index, size)?;
        let section = self.linked.section(SectionId::DebugAddr)?;
        number(&self.linked, &section, at, size)
    }

    /// Passes the ranges of addresses of an entry to `take` (DWARF 5, 2.17).
    ///
    /// # Errors
    ///
    /// When they are malformed, or too many.
    #[inline]
    pub(crate) fn for_each_range(
        &self,
        attributes: &RangeAttributes<'_>,
        mut take: impl FnMut(Range<u64>),
    ) -> Result<()> {
        if let Some(value) = attributes.ranges {
            self.listed_ranges(value)?.into_iter().for_each(take);
            return Ok(());
        }
        let Some(low) = attributes.low else { return Ok(()) };
        let Some(low) = self.address(low)? else { return Ok(()) };
        let high = match attributes.high {
            Some(high) => match self.address(high)? {
                Some(address) => address,
                // Since DWARF 4, the end may be a size.
                None => low.saturating_add(high.udata_value().unwrap_or_default()),
            },
            None => low,
        };
        if low < high {
            take(low..high);
        }
        Ok(())
    }

    fn listed_ranges(&self, value: AttributeValue<Slice<'_>>) -> Result<Vec<Range<u64>>> {
        let is_old = self.head.encoding.version < 5;
        let offset = match value {
            // GNU split DWARF 4 counts from DW_AT_GNU_ranges_base of the skeleton.
            AttributeValue::RangeListsRef(offset) if is_old && self.data.is_split() => {
                (offset.0 as u64).saturating_add(self.bases.ranges)
            }
            AttributeValue::RangeListsRef(offset) => offset.0 as u64,
            AttributeValue::DebugRngListsIndex(index) => {
                let word = word(self.head.encoding.format);
                let at = element(self.bases.rnglists, index.0 as u64, word)?;
                let section = self.data.section(SectionId::DebugRngLists)?;
                let offset = number(&self.data, &section, at, word)?;
                offset.saturating_add(self.bases.rnglists)
            }
            _ => return Ok(Vec::new()),
        };
        // `.debug_ranges` has addresses and stays in the linked file; `.debug_rnglists` may have
        // indexes of addresses and is split off.
        let (data, id) = if is_old {
            (&self.linked, SectionId::DebugRanges)
        } else {
            (&self.data, SectionId::DebugRngLists)
        };
        let section = data.section(id)?;
        let mut length = 256;
        loop {
            let bytes = section.near(offset, length)?;
            let is_all = (bytes.len() as u64) < length;
            let indexed = |index| self.indexed_address(index);
            match ranges::read(data.slice(&bytes), self.head.encoding, self.low_pc, indexed) {
                Err(DwarfError::Malformed(gimli::Error::UnexpectedEof(_))) if !is_all => {
                    if length > LIST {
                        return Err(DwarfError::Limit("a list of ranges without end"));
                    }
                    length *= 4;
                }
                read => return read,
            }
        }
    }
}

/// Multiplies the length to read, if there may be more bytes and an entry may have that many.
fn grows(length: &mut u64, read: u64) -> bool {
    let grows = read == *length && *length < ENTRY;
    *length *= 8;
    grows
}

fn read_entry<'a>(
    bytes: Slice<'a>,
    head: UnitHead,
    abbreviations: &Abbreviations,
) -> gimli::Result<(gimli::DwTag, Attributes<'a>)> {
    let mut entries = EntriesRaw::new(bytes, head.encoding, abbreviations, UnitOffset(0));
    let Some(abbreviation) = entries.read_abbreviation()? else {
        return Ok((gimli::DwTag(0), Vec::new()));
    };
    let mut attributes = Vec::with_capacity(abbreviation.attributes().len());
    entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
    Ok((abbreviation.tag(), attributes))
}

/// The abbreviations by their codes, which compilers number from 1 without gaps.
fn numbered(abbreviations: &Abbreviations) -> impl Iterator<Item = &Abbreviation> {
    (1..).map_while(|code| abbreviations.get(code))
}

fn abbreviations_bytes(abbreviations: &Abbreviations) -> usize {
    let attributes = |abbreviation: &Abbreviation| match abbreviation.attributes().len() {
        0..=INLINE_ATTRIBUTES => 0,
        more => more.next_power_of_two() * size_of::<AttributeSpecification>(),
    };
    numbered(abbreviations).map(|one| size_of::<Abbreviation>() + attributes(one)).sum()
}

fn is_cxx(language: gimli::DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
}

/// Returns the offset of an element of a table.
fn element(base: u64, index: u64, size: u64) -> Result<u64> {
    let offset = index.checked_mul(size).and_then(|offset| offset.checked_add(base));
    offset.ok_or(DwarfError::Limit("an index without bounds"))
}

/// Reads a number of `size` bytes.
fn number(data: &DwarfFile, section: &PagedSection, offset: u64, size: u64) -> Result<u64> {
    use gimli::Reader;
    let bytes = section.near(offset, size)?;
    let mut slice = data.slice(&bytes);
    let number = match size {
        4 => slice.read_u32().map(u64::from),
        8 => slice.read_u64(),
        2 => slice.read_u16().map(u64::from),
        _ => slice.read_u8().map(u64::from),
    };
    Ok(number?)
}
