//! The calls inlined into one function.

use std::ops::Range;

use gimli::SectionId;

use super::abbreviation::{has_addresses, is_function_with_code};
use super::debug_file::Slice;
use super::error::{DwarfError, Result};
use super::unit::{RangeAttributes, Reference, Unit};

/// The largest number of ranges of the inlined calls of a function.
const RANGES: usize = 1 << 22;

/// The file number of a call without one.
pub(crate) const NO_FILE: u32 = u32::MAX;

/// The entries of a function in `.debug_info`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntryRange {
    pub(crate) start: u64,
    pub(crate) length: u32,
}

/// An inlined call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlinedCall {
    /// The index of the first of its ranges, which end where those of the next call begin.
    first_range: u32,
    /// The index of the first call after it that is not inlined into it.
    end: u32,
    /// The offset of its entry after that of the function.
    entry: u32,
    /// The number of the source file of the call among those of the unit's lines. Before DWARF 5
    /// the numbers begin at 1.
    pub(crate) file: u32,
    /// The line of the call, 0 when unknown.
    pub(crate) line: u32,
    /// The column of the call, 0 when unknown.
    pub(crate) column: u32,
    /// The function that was inlined.
    pub(crate) origin: Option<Reference>,
}

/// Begin and end of ranges, counted from a base.
type RelativeRanges = Box<[(u32, u32)]>;

/// The calls inlined into a function, outer before inner.
#[derive(Debug, Default)]
pub(crate) struct InlinedCalls {
    /// The offset of the function's entry.
    start: u64,
    /// The address that ranges count from.
    base: u64,
    calls: Box<[InlinedCall]>,
    /// The calls again, in a sixth of their memory: a lookup passes over hundreds of calls in large
    /// functions.
    spans: Box<[Span]>,
    ranges: RelativeRanges,
}

/// The parts of a call that decide whether it covers an address.
#[derive(Clone, Copy, Debug)]
struct Span {
    /// The index of the first of its ranges, which end where those of the next call begin.
    first_range: u32,
    /// The index of the first call after it that is not inlined into it.
    end: u32,
}

impl InlinedCalls {
    /// Reads the calls of a function.
    ///
    /// # Errors
    ///
    /// When its entries are malformed.
    pub(crate) fn read(unit: &Unit, function: EntryRange) -> Result<Self> {
        let info = unit.data.section(SectionId::DebugInfo)?;
        let bytes = info.range(function.start, function.length.into())?;
        let abbreviations = unit.abbreviations()?;
        let mut entries = unit.walk(&bytes, &abbreviations);
        let (mut calls, mut ranges) = (Vec::new(), Vec::new());
        // The calls around the walk's position: their depth and number.
        let mut open: Vec<(isize, u32)> = Vec::new();
        // A function nested in this one has its own calls: the depth of that function.
        let mut nested: Option<isize> = None;
        let mut is_first = true;
        while !entries.is_empty() {
            let (at, depth) = (entries.next_offset().0, entries.next_depth());
            close(&mut calls, &mut open, depth);
            nested = nested.filter(|begun| depth > *begun);
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            let is_call = abbreviation.tag() == gimli::DW_TAG_inlined_subroutine;
            if !std::mem::take(&mut is_first)
                && nested.is_none()
                && is_function_with_code(abbreviation)
            {
                nested = Some(depth);
            }
            if !is_call || nested.is_some() || !has_addresses(abbreviation) {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut call = InlinedCall::new(at as u32, ranges.len() as u32);
            let mut addresses = RangeAttributes::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                addresses.take(&attribute);
                call.take(unit, &attribute);
            }
            unit.for_each_range(&addresses, |range| ranges.push(range))?;
            if ranges.len() > RANGES {
                return Err(DwarfError::Limit("more inlined calls than any function has"));
            }
            // The call has no code of its own; the calls inside of it belong to the outer one.
            if ranges.len() == call.first_range as usize {
                continue;
            }
            open.push((depth, calls.len() as u32));
            calls.push(call);
        }
        close(&mut calls, &mut open, isize::MIN);
        let (base, ranges) = relative(&ranges)?;
        let span = |call: &InlinedCall| Span { first_range: call.first_range, end: call.end };
        let spans = calls.iter().map(span).collect();
        Ok(Self { start: function.start, base, calls: calls.into(), spans, ranges })
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        // The reference counts, and the allocator's share of four blocks.
        const BLOCKS: usize = 80;
        BLOCKS
            + size_of::<Self>()
            + size_of_val(&*self.calls)
            + size_of_val(&*self.spans)
            + size_of_val(&*self.ranges)
    }

    /// Returns the calls at an address, outermost first.
    pub(crate) fn at(&self, address: u64) -> Vec<InlinedCall> {
        let mut found = Vec::new();
        // Below all inlined calls.
        let Some(address) = address.checked_sub(self.base) else { return found };
        let (mut next, mut end) = (0, self.spans.len());
        while let Some(span) = self.spans[..end].get(next) {
            let ranges = span.first_range as usize..self.ranges_end(next);
            let mut ranges = self.ranges[ranges].iter();
            if ranges.any(|&(begin, end)| (begin.into()..end.into()).contains(&address)) {
                found.push(self.calls[next]);
                // Of calls that overlap the first one counts.
                end = span.end as usize;
                next += 1;
            } else {
                next = span.end as usize;
            }
        }
        found
    }

    /// Returns the offset of the entry of a call in `.debug_info`.
    pub(crate) fn entry(&self, call: &InlinedCall) -> u64 {
        self.start + u64::from(call.entry)
    }

    fn ranges_end(&self, call: usize) -> usize {
        self.spans.get(call + 1).map_or(self.ranges.len(), |next| next.first_range as usize)
    }
}

/// Ends the calls that an entry at `depth` is not inside of.
#[inline]
fn close(calls: &mut [InlinedCall], open: &mut Vec<(isize, u32)>, depth: isize) {
    let end = calls.len() as u32;
    while let Some((_, call)) = open.pop_if(|(begun, _)| depth <= *begun) {
        calls[call as usize].end = end;
    }
}

/// Returns the lowest address, and ranges that count from it: half of the memory.
fn relative(ranges: &[Range<u64>]) -> Result<(u64, RelativeRanges)> {
    let base = ranges.iter().map(|range| range.start).min().unwrap_or_default();
    let distance = |address: u64| u32::try_from(address - base);
    let pair = |range: &Range<u64>| Ok((distance(range.start)?, distance(range.end)?));
    let pairs: std::result::Result<_, std::num::TryFromIntError> =
        ranges.iter().map(pair).collect();
    let too_far = DwarfError::Limit("inlined calls more than 4 GiB apart");
    pairs.map(|pairs| (base, pairs)).map_err(|_| too_far)
}

impl InlinedCall {
    fn new(entry: u32, first_range: u32) -> Self {
        Self { first_range, end: 0, entry, file: NO_FILE, line: 0, column: 0, origin: None }
    }

    #[inline]
    fn take(&mut self, unit: &Unit, attribute: &gimli::Attribute<Slice<'_>>) {
        let number = || attribute.udata_value().and_then(|number| u32::try_from(number).ok());
        match attribute.name() {
            gimli::DW_AT_abstract_origin => self.origin = unit.reference(attribute.value()),
            gimli::DW_AT_call_file => {
                let number = match attribute.value() {
                    gimli::AttributeValue::FileIndex(index) => u32::try_from(index).ok(),
                    _ => number(),
                };
                self.file = number.unwrap_or(NO_FILE);
            }
            gimli::DW_AT_call_line => self.line = number().unwrap_or(0),
            gimli::DW_AT_call_column => self.column = number().unwrap_or(0),
            _ => {}
        }
    }
}
