//! A unit: what its first entry says, and what the attributes of its entries mean.

use std::cell::OnceCell;
use std::ops::Range;
use std::rc::Rc;

use gimli::{Abbreviations, Attribute, AttributeValue, EntriesRaw, SectionId, UnitOffset};

use super::bases::Bases;
use super::debug_file::{DwarfFile, Slice, UnitHead, word};
use super::error::{DwarfError, Result};
use super::linked_files::LinkedFiles;
use super::ranges;
use super::section::SplitUnit;

/// The most bytes one list of ranges takes, about.
const LIST: u64 = 1 << 20;

/// The most bytes the attributes of one entry take.
const ENTRY: u64 = 1 << 20;

/// The largest unit that is walked over, bytes.
const UNIT: u64 = 1 << 30;

/// What the first entry of a unit says, and what is needed to make sense of the others.
pub(crate) struct Unit {
    files: Rc<LinkedFiles>,
    /// The file it is in.
    pub(crate) data: Rc<DwarfFile>,
    /// The file that was linked, with addresses and lines; `data` unless the unit was split off.
    pub(crate) linked: Rc<DwarfFile>,
    pub(crate) head: UnitHead,
    bases: Bases,
    /// What ranges count from.
    low_pc: u64,
    /// The code it is about; empty when it does not say.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Whether it has only what other units have in common, and so no code.
    pub(crate) is_partial: bool,
    /// The directory of the compilation.
    pub(crate) directory: Vec<u8>,
    /// The source file.
    pub(crate) name: Vec<u8>,
    /// Where its lines are in `.debug_line`.
    pub(crate) lines: Option<u64>,
    /// Whether its names have scopes and parameters as those of C++ have.
    pub(crate) is_cxx: bool,
    /// The file that it was split off into, and what the two have in common.
    pub(crate) split: Option<(Vec<u8>, u64)>,
    abbreviations: OnceCell<Rc<Abbreviations>>,
}

/// The attributes of an entry that say which addresses it is about.
#[derive(Clone, Copy, Default)]
pub(crate) struct RangeAttributes<'a> {
    low: Option<AttributeValue<Slice<'a>>>,
    high: Option<AttributeValue<Slice<'a>>>,
    ranges: Option<AttributeValue<Slice<'a>>>,
}

impl<'a> RangeAttributes<'a> {
    /// Takes note of an attribute, if it is one of those.
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

/// An entry another one refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reference {
    /// In the same file, counted from the beginning of `.debug_info`.
    Here(u64),
    /// In the file that is shared by several.
    Supplementary(u64),
}

/// The attributes of one entry, as they were read.
pub(crate) type Attributes<'a> = Vec<Attribute<Slice<'a>>>;

impl Unit {
    /// Reads the first entry of a unit. A split one has some of its bases from its `skeleton`.
    ///
    /// # Errors
    ///
    /// When the entry or what it refers to is malformed.
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
            abbreviations: OnceCell::new(),
        };
        let info = data.section(SectionId::DebugInfo)?;
        let first = data.first_abbreviation(head.abbreviations)?;
        let mut length = 128;
        loop {
            let length_here = (head.end - head.entries).min(length);
            let bytes = info.near(head.entries, length_here)?;
            let read = read_entry(data.slice(&bytes), head, &first);
            let read = match read {
                Err(gimli::Error::InvalidAbbreviationCode(_)) => {
                    let all = data.abbreviations(head.abbreviations)?;
                    read_entry(data.slice(&bytes), head, &all)
                }
                other => other,
            };
            match read {
                Ok((tag, attributes)) => {
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
        let mut extent = RangeAttributes::default();
        let mut split_id = self.head.id;
        // Strings and addresses count from bases that may stand behind them.
        for attribute in attributes {
            let offset = attribute.offset_value().unwrap_or_default() as u64;
            match attribute.name() {
                gimli::DW_AT_str_offsets_base => self.bases.str_offsets = offset,
                gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base => {
                    self.bases.addresses = offset;
                }
                gimli::DW_AT_rnglists_base => self.bases.rnglists = offset,
                gimli::DW_AT_GNU_ranges_base => self.bases.ranges = offset,
                gimli::DW_AT_GNU_dwo_id => split_id = attribute.udata_value().unwrap_or_default(),
                _ => extent.take(attribute),
            }
        }
        self.head.id = split_id;
        let mut split = None;
        for attribute in attributes {
            let value = attribute.value();
            match (attribute.name(), value) {
                (gimli::DW_AT_name, value) => self.name = self.string(value)?,
                (gimli::DW_AT_comp_dir, value) => self.directory = self.string(value)?,
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => {
                    split = Some(self.string(value)?);
                }
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
        // Within its own file a split unit has the same attribute, or none.
        self.split = split.filter(|_| !self.data.is_split()).map(|name| (name, split_id));
        if let Some(low) = extent.low {
            self.low_pc = self.address(low)?.unwrap_or_default();
        }
        self.ranges = self.ranges(&extent)?;
        Ok(())
    }

    /// The unit in another file that this skeleton refers to. None if it is no skeleton.
    pub(crate) fn split_unit(&self) -> Option<SplitUnit> {
        let (name, id) = self.split.as_ref()?;
        Some(SplitUnit { name: name.clone(), directory: self.directory.clone(), id: *id })
    }

    /// The abbreviations of its entries.
    ///
    /// # Errors
    ///
    /// When they are malformed.
    pub(crate) fn abbreviations(&self) -> Result<&Abbreviations> {
        if let Some(known) = self.abbreviations.get() {
            return Ok(known);
        }
        let known = self.data.abbreviations(self.head.abbreviations)?;
        Ok(self.abbreviations.get_or_init(|| known))
    }

    /// How many bytes all its entries take.
    ///
    /// # Errors
    ///
    /// When that is more than any compiler makes.
    pub(crate) fn length(&self) -> Result<u64> {
        let length = self.head.end - self.head.entries;
        if length > UNIT {
            return Err(DwarfError::Limit("a unit larger than any compiler makes"));
        }
        Ok(length)
    }

    /// Walks over entries: `bytes` begin with the one at `offset` in `.debug_info`, which is where
    /// the offsets of the walk count from.
    pub(crate) fn walk<'a, 'b>(
        &self,
        bytes: &'b [u8],
        abbreviations: &'a Abbreviations,
    ) -> EntriesRaw<'a, Slice<'b>> {
        let slice = self.data.slice(bytes);
        EntriesRaw::new(slice, self.head.encoding, abbreviations, UnitOffset(0))
    }

    /// Gives the tag and the attributes of the entry at an offset in `.debug_info` to `take`.
    ///
    /// # Errors
    ///
    /// When there is no entry, or it is malformed, or what `take` says.
    pub(crate) fn entry<T>(
        &self,
        offset: u64,
        mut take: impl FnMut(gimli::DwTag, Attributes<'_>) -> Result<T>,
    ) -> Result<T> {
        let info = self.data.section(SectionId::DebugInfo)?;
        let abbreviations = self.abbreviations()?;
        let mut length = 128;
        loop {
            let length_here = self.head.end.saturating_sub(offset).min(length);
            let bytes = info.near(offset, length_here)?;
            match read_entry(self.data.slice(&bytes), self.head, abbreviations) {
                Ok((tag, attributes)) => return take(tag, attributes),
                Err(gimli::Error::UnexpectedEof(_)) if grows(&mut length, length_here) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Where an attribute refers to.
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

    /// The string of an attribute, empty when it has none.
    ///
    /// # Errors
    ///
    /// When it lies outside of its section, or in a file that was not found.
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
                let at = indexed(self.bases.str_offsets, index.0 as u64, word)?;
                (SectionId::DebugStr, self.number(SectionId::DebugStrOffsets, at, word)?)
            }
            _ => return Ok(Vec::new()),
        };
        self.data.section(section)?.string(offset)
    }

    /// The address an attribute has, if any.
    ///
    /// # Errors
    ///
    /// When it lies outside of the table of addresses.
    pub(crate) fn address(&self, value: AttributeValue<Slice<'_>>) -> Result<Option<u64>> {
        match value {
            AttributeValue::Addr(address) => Ok(Some(address)),
            AttributeValue::DebugAddrIndex(index) => self.indexed_address(index.0 as u64).map(Some),
            _ => Ok(None),
        }
    }

    fn indexed_address(&self, index: u64) -> Result<u64> {
        let size = u64::from(self.head.encoding.address_size);
        let at = indexed(self.bases.addresses, index, size)?;
        let section = self.linked.section(SectionId::DebugAddr)?;
        number(&self.linked, &section, at, size)
    }

    fn number(&self, id: SectionId, at: u64, size: u64) -> Result<u64> {
        number(&self.data, &*self.data.section(id)?, at, size)
    }

    /// The addresses an entry is about.
    ///
    /// # Errors
    ///
    /// When they are malformed, or too many.
    pub(crate) fn ranges(&self, extent: &RangeAttributes<'_>) -> Result<Vec<Range<u64>>> {
        if let Some(value) = extent.ranges {
            return self.listed_ranges(value);
        }
        let Some(low) = extent.low else { return Ok(Vec::new()) };
        let Some(low) = self.address(low)? else { return Ok(Vec::new()) };
        let high = match extent.high {
            Some(high) => match self.address(high)? {
                Some(address) => address,
                None => low.saturating_add(high.udata_value().unwrap_or_default()),
            },
            None => low,
        };
        Ok(Some(low..high).filter(|range| !range.is_empty()).into_iter().collect())
    }

    fn listed_ranges(&self, value: AttributeValue<Slice<'_>>) -> Result<Vec<Range<u64>>> {
        let is_old = self.head.encoding.version < 5;
        let offset = match value {
            // The older way counts from a base in the skeleton.
            AttributeValue::RangeListsRef(offset) if is_old && self.data.is_split() => {
                (offset.0 as u64).saturating_add(self.bases.ranges)
            }
            AttributeValue::RangeListsRef(offset) => offset.0 as u64,
            AttributeValue::DebugRngListsIndex(index) => {
                let word = word(self.head.encoding.format);
                let at = indexed(self.bases.rnglists, index.0 as u64, word)?;
                let offset = self.number(SectionId::DebugRngLists, at, word)?;
                offset.saturating_add(self.bases.rnglists)
            }
            _ => return Ok(Vec::new()),
        };
        let (data, id) = match is_old {
            true => (&self.linked, SectionId::DebugRanges),
            false => (&self.data, SectionId::DebugRngLists),
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
                other => return other,
            }
        }
    }
}

/// Asks for more bytes, if there may be more and an entry may have so many.
fn grows(length: &mut u64, had: u64) -> bool {
    let more = had == *length && *length < ENTRY;
    *length *= 8;
    more
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
    let mut attributes = Vec::new();
    entries.read_attributes(abbreviation.attributes(), &mut attributes)?;
    Ok((abbreviation.tag(), attributes))
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

/// Where the element of a table is.
fn indexed(base: u64, index: u64, size: u64) -> Result<u64> {
    let at = index.checked_mul(size).and_then(|at| at.checked_add(base));
    at.ok_or(DwarfError::Limit("an index without bounds"))
}

/// The number at a place in a section.
fn number(
    data: &DwarfFile,
    section: &super::paged_section::PagedSection,
    at: u64,
    size: u64,
) -> Result<u64> {
    use gimli::Reader;
    let bytes = section.near(at, size)?;
    let mut slice = data.slice(&bytes);
    let number = match size {
        4 => slice.read_u32().map(u64::from),
        8 => slice.read_u64(),
        2 => slice.read_u16().map(u64::from),
        _ => slice.read_u8().map(u64::from),
    };
    Ok(number?)
}
