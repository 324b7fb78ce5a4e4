//! The functions of a unit and the calls inlined into them, as compact tables.
//!
//! A unit is walked over once, from its first entry to its last and without recursion, for the
//! addresses of its functions. The inlined calls of a function are read when an address first
//! falls into it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use gimli::{Abbreviation, EntriesRaw, SectionId};
use rustc_hash::FxHashMap;

use super::debug_file::Slice;
use super::error::{DwarfError, Result};
use super::unit::{RangeAttributes, Reference, Unit};

/// The most ranges of functions in a unit, and of inlined calls in a function.
const RANGES: usize = 1 << 22;

/// How many ranges are looked at for an address that lies in several of them.
const OVERLAPS: usize = 64;

/// Where the entries of a function are in `.debug_info`.
type EntryRange = Range<u64>;

/// A range of addresses of a function.
#[derive(Clone, Copy, Debug)]
struct FunctionRange {
    begin: u64,
    end: u64,
    function: u32,
}

/// The functions of one unit.
pub(crate) struct Functions {
    /// By where they begin.
    function_ranges: Box<[FunctionRange]>,
    entries: Box<[EntryRange]>,
    inlined: RefCell<FxHashMap<u32, Rc<InlinedCalls>>>,
    inlined_bytes: Cell<usize>,
    is_complete: bool,
    /// Why the table ends before the unit does.
    fault: Option<DwarfError>,
}

impl Functions {
    /// Walks over a unit. What is malformed ends the walk; what was found before is kept.
    ///
    /// Unless `is_thorough`, what lies inside of functions and types is passed over where the
    /// compiler tells where that ends (gcc does). Functions with code of their own lie there in
    /// some languages: who finds none for an address has to ask again.
    pub(crate) fn read(unit: &Unit, is_thorough: bool) -> Self {
        let mut walk = FunctionWalk { is_thorough, ..FunctionWalk::default() };
        let fault = walk.over(unit).err();
        walk.function_ranges
            .sort_unstable_by_key(|piece| (piece.begin, std::cmp::Reverse(piece.end)));
        Self {
            function_ranges: walk.function_ranges.into(),
            entries: walk.entries.into(),
            inlined: RefCell::default(),
            inlined_bytes: Cell::default(),
            is_complete: !walk.has_skipped,
            fault,
        }
    }

    /// Whether nothing was passed over.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Why some functions are not in the table.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.function_ranges) + size_of_val(&*self.entries) + self.inlined_bytes.get()
    }

    /// The function at an address: of those that cover it, the one that begins last.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let after = self.function_ranges.partition_point(|piece| piece.begin <= address);
        let before = self.function_ranges[..after].iter().rev().take(OVERLAPS);
        before.into_iter().find(|piece| address < piece.end).map(|piece| piece.function)
    }

    /// Where the entry of a function is.
    pub(crate) fn entry(&self, function: u32) -> u64 {
        self.entries.get(function as usize).map_or(0, |entries| entries.start)
    }

    /// The calls inlined into a function.
    ///
    /// # Errors
    ///
    /// When its entries are malformed.
    pub(crate) fn inlined(&self, unit: &Unit, function: u32) -> Result<Rc<InlinedCalls>> {
        if let Some(inlined) = self.inlined.borrow().get(&function) {
            return Ok(Rc::clone(inlined));
        }
        let entries = self.entries.get(function as usize).cloned().unwrap_or_default();
        let inlined = Rc::new(InlinedCalls::read(unit, entries)?);
        self.inlined_bytes.set(self.inlined_bytes.get() + inlined.bytes());
        self.inlined.borrow_mut().insert(function, Rc::clone(&inlined));
        Ok(inlined)
    }
}

/// What is found on the way over a unit.
#[derive(Default)]
struct FunctionWalk {
    is_thorough: bool,
    /// Whether anything was passed over.
    has_skipped: bool,
    function_ranges: Vec<FunctionRange>,
    entries: Vec<EntryRange>,
    /// The functions that have begun and not ended: their depth and number.
    open: Vec<(isize, u32)>,
}

impl FunctionWalk {
    fn over(&mut self, unit: &Unit) -> Result<()> {
        let start = unit.head.entries;
        let info = unit.data.section(SectionId::DebugInfo)?;
        let bytes = info.range(start, unit.length()?)?;
        let abbreviations = unit.abbreviations()?;
        let mut entries = unit.walk(&bytes, abbreviations);
        // Where the walk began anew behind what was passed over.
        let (mut base, mut base_depth) = (0, 0);
        let walked = loop {
            if entries.is_empty() {
                break Ok(());
            }
            let at = base + entries.next_offset().0;
            let depth = base_depth + entries.next_depth();
            self.close(depth, start + at as u64);
            match self.entry(unit, &mut entries, start + at as u64, depth) {
                Ok(None) => {}
                Ok(Some(next)) => {
                    let next = next.saturating_sub(start) as usize;
                    let Some(rest) = bytes.get(next..).filter(|_| next > at) else { continue };
                    entries = unit.walk(rest, abbreviations);
                    (base, base_depth) = (next, depth);
                    self.has_skipped = true;
                }
                Err(fault) => break Err(fault),
            }
        };
        self.close(isize::MIN, unit.head.end);
        walked
    }

    /// Takes the next entry; gives where to go on, if not at the next one.
    #[inline]
    fn entry(
        &mut self,
        unit: &Unit,
        entries: &mut EntriesRaw<'_, Slice<'_>>,
        at: u64,
        depth: isize,
    ) -> Result<Option<u64>> {
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
        let is_code = is_code(abbreviation);
        let skips = !self.is_thorough && is_skippable(abbreviation);
        if !is_code && !skips {
            entries.skip_attributes(abbreviation.attributes())?;
            return Ok(None);
        }
        let mut extent = RangeAttributes::default();
        let mut sibling = None;
        for &specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(specification)?;
            match attribute.name() {
                gimli::DW_AT_sibling => sibling = unit.reference(attribute.value()),
                _ => extent.take(&attribute),
            }
        }
        let next = match sibling.filter(|_| skips) {
            Some(Reference::Here(next)) => Some(next),
            _ => None,
        };
        if is_code {
            self.add(unit, &extent, at, depth)?;
        }
        Ok(next)
    }

    fn add(
        &mut self,
        unit: &Unit,
        extent: &RangeAttributes<'_>,
        at: u64,
        depth: isize,
    ) -> Result<()> {
        let function = self.entries.len() as u32;
        // A function whose ranges cannot be read is one that has none.
        let ranges = unit.ranges(extent).unwrap_or_default();
        if ranges.is_empty() {
            return Ok(());
        }
        if self.function_ranges.len() + ranges.len() > RANGES {
            return Err(DwarfError::Limit("more functions than any unit has"));
        }
        let function_ranges = ranges.into_iter().map(|Range { start, end }| (start, end));
        self.function_ranges.extend(function_ranges.map(|(begin, end)| FunctionRange {
            begin,
            end,
            function,
        }));
        self.entries.push(at..at);
        self.open.push((depth, function));
        Ok(())
    }

    /// Ends the functions whose entries end before the entry at `depth`.
    #[inline]
    fn close(&mut self, depth: isize, at: u64) {
        while let Some((_, function)) = self.open.pop_if(|(begun, _)| depth <= *begun) {
            self.entries[function as usize].end = at;
        }
    }
}

/// Whether what is inside of an entry is passed over, if it says where that ends.
fn is_skippable(abbreviation: &Abbreviation) -> bool {
    let is_meant = matches!(
        abbreviation.tag(),
        gimli::DW_TAG_subprogram
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_subroutine_type
    );
    // gcc puts it last.
    let last = || abbreviation.attributes().last().map(gimli::AttributeSpecification::name);
    is_meant && abbreviation.has_children() && last() == Some(gimli::DW_AT_sibling)
}

/// Whether an entry is of a function that has code.
fn is_code(abbreviation: &Abbreviation) -> bool {
    abbreviation.tag() == gimli::DW_TAG_subprogram && has_addresses(abbreviation)
}

fn has_addresses(abbreviation: &Abbreviation) -> bool {
    let mut attributes = abbreviation.attributes().iter();
    attributes
        .any(|attribute| matches!(attribute.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges))
}

/// An inlined call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedCall {
    /// The first of its ranges, and the one behind its last.
    ranges: (u32, u32),
    /// The number of the first call that is not inside of it.
    end: u32,
    /// The entry itself, in the unit's file.
    pub(crate) entry: u64,
    /// What the call was to.
    pub(crate) origin: Option<Reference>,
    /// The file of the call by its number among those of the unit's lines; 0 in old units and
    /// all `1` bits where it has none.
    pub(crate) file: u64,
    /// The line of the call, 0 when unknown.
    pub(crate) line: u32,
    /// The column of the call, 0 when unknown.
    pub(crate) column: u32,
}

/// The calls inlined into a function, outer before inner.
#[derive(Debug, Default)]
pub(crate) struct InlinedCalls {
    calls: Vec<InlinedCall>,
    ranges: Vec<Range<u64>>,
}

impl InlinedCalls {
    fn read(unit: &Unit, place: EntryRange) -> Result<Self> {
        let info = unit.data.section(SectionId::DebugInfo)?;
        let bytes = info.range(place.start, place.end.saturating_sub(place.start))?;
        let abbreviations = unit.abbreviations()?;
        let mut entries = unit.walk(&bytes, abbreviations);
        let mut inlined = Self::default();
        // The calls that have begun and not ended: their depth and number.
        let mut open: Vec<(isize, u32)> = Vec::new();
        // A function inside of this one has its own calls.
        let mut other: Option<isize> = None;
        let mut is_first = true;
        while !entries.is_empty() {
            let (at, depth) = (entries.next_offset().0 as u64, entries.next_depth());
            while let Some((_, call)) = open.pop_if(|(begun, _)| depth <= *begun) {
                inlined.calls[call as usize].end = inlined.calls.len() as u32;
            }
            other = other.filter(|begun| depth > *begun);
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let is_call = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
            if !std::mem::take(&mut is_first) && other.is_none() && is_code(abbreviation) {
                other = Some(depth);
            }
            if !is_call || other.is_some() || !has_addresses(abbreviation) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut call = InlinedCall::at(place.start + at);
            let mut extent = RangeAttributes::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                extent.take(&attribute);
                call.take(unit, &attribute);
            }
            let ranges = unit.ranges(&extent)?;
            if ranges.is_empty() {
                continue;
            }
            let first = inlined.ranges.len();
            if first + ranges.len() > RANGES {
                return Err(DwarfError::Limit("more inlined calls than any function has"));
            }
            inlined.ranges.extend(ranges);
            call.ranges = (first as u32, inlined.ranges.len() as u32);
            open.push((depth, inlined.calls.len() as u32));
            inlined.calls.push(call);
        }
        let end = inlined.calls.len() as u32;
        for (_, call) in open {
            inlined.calls[call as usize].end = end;
        }
        inlined.calls.shrink_to_fit();
        inlined.ranges.shrink_to_fit();
        Ok(inlined)
    }

    fn bytes(&self) -> usize {
        64 + size_of_val(&*self.calls) + size_of_val(&*self.ranges)
    }

    /// The calls at an address, outermost first.
    pub(crate) fn at(&self, address: u64) -> Vec<InlinedCall> {
        let mut found = Vec::new();
        let (mut next, mut end) = (0, self.calls.len());
        while let Some(call) = self.calls[..end].get(next) {
            let ranges = &self.ranges[call.ranges.0 as usize..call.ranges.1 as usize];
            if ranges.iter().any(|range| range.contains(&address)) {
                found.push(*call);
                // Of calls beside each other the first one counts.
                end = call.end as usize;
                next += 1;
            } else {
                next = call.end as usize;
            }
        }
        found
    }
}

impl InlinedCall {
    fn at(entry: u64) -> Self {
        Self { ranges: (0, 0), end: 0, entry, origin: None, file: u64::MAX, line: 0, column: 0 }
    }

    fn take(&mut self, unit: &Unit, attribute: &gimli::Attribute<Slice<'_>>) {
        let number = || attribute.udata_value().unwrap_or_default();
        match attribute.name() {
            gimli::DW_AT_abstract_origin => self.origin = unit.reference(attribute.value()),
            gimli::DW_AT_call_file => {
                self.file = match attribute.value() {
                    gimli::AttributeValue::FileIndex(index) => index,
                    _ => number(),
                }
            }
            gimli::DW_AT_call_line => self.line = u32::try_from(number()).unwrap_or(0),
            gimli::DW_AT_call_column => self.column = u32::try_from(number()).unwrap_or(0),
            _ => {}
        }
    }
}
