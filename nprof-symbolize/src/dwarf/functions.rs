//! The functions of a unit as a compact table. One walk over the unit, without recursion, finds
//! their addresses; the calls inlined into a function are read when an address first lies in it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use gimli::{Abbreviation, EntriesRaw, SectionId};

use super::abbreviation::{has_sibling, is_function_with_code};
use super::debug_file::Slice;
use super::error::{DwarfError, Result};
use super::inlined_calls::{EntryRange, InlinedCalls};
use super::unit::{RangeAttributes, Reference, Unit};

/// The largest number of ranges of functions in a unit.
const RANGES: usize = 1 << 22;

/// The number of ranges that are compared with an address that lies in several of them.
const OVERLAPS: usize = 64;

/// A range of addresses of a function.
#[derive(Clone, Copy, Debug)]
struct FunctionRange {
    begin: u64,
    length: u32,
    function: u32,
}

/// The functions of one unit.
pub(crate) struct Functions {
    /// Sorted by their begin.
    ranges: Box<[FunctionRange]>,
    entries: Box<[EntryRange]>,
    /// By function; empty until the first is read.
    inlined: RefCell<Box<[Option<Rc<InlinedCalls>>]>>,
    inlined_bytes: Cell<usize>,
    is_complete: bool,
    /// The reason why the table ends before the unit does.
    fault: Option<DwarfError>,
}

impl Functions {
    /// Walks over a unit. A malformed entry ends the walk; the functions before it are kept.
    ///
    /// Unless `is_thorough`, the walk skips the children of functions and types by DW_AT_sibling
    /// (gcc writes it), which is most of a C++ unit. Nested functions with code of their own
    /// (GNU C, Ada, Fortran) are missed; callers that find no function retry thoroughly.
    pub(crate) fn read(unit: &Unit, is_thorough: bool) -> Self {
        let mut walk = FunctionWalk { is_thorough, ..FunctionWalk::default() };
        let fault = walk.over(unit).err();
        walk.ranges.sort_unstable_by_key(|range| (range.begin, std::cmp::Reverse(range.length)));
        Self {
            ranges: walk.ranges.into(),
            entries: walk.entries.into(),
            inlined: RefCell::default(),
            inlined_bytes: Cell::default(),
            is_complete: !walk.has_skipped,
            fault,
        }
    }

    /// True if the walk skipped nothing.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the reason why some functions are not in the table.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.ranges)
            + size_of_val(&*self.entries)
            + size_of_val(&**self.inlined.borrow())
            + self.inlined_bytes.get()
    }

    /// Drops the inlined calls, which are read again when they are needed.
    pub(crate) fn drop_inlined(&self) {
        *self.inlined.borrow_mut() = Box::default();
        self.inlined_bytes.set(0);
    }

    /// Returns the function at an address: of those that cover it, the one that begins last.
    pub(crate) fn find(&self, address: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|range| range.begin <= address);
        let before = self.ranges[..after].iter().rev().take(OVERLAPS);
        let mut before = before.into_iter();
        before.find(|range| address - range.begin < range.length.into()).map(|range| range.function)
    }

    /// Returns the offset of the entry of a function.
    pub(crate) fn entry(&self, function: u32) -> u64 {
        self.entries.get(function as usize).map_or(0, |entries| entries.start)
    }

    /// Returns the calls inlined into a function.
    ///
    /// # Errors
    ///
    /// When its entries are malformed.
    pub(crate) fn inlined(&self, unit: &Unit, function: u32) -> Result<Rc<InlinedCalls>> {
        if let Some(Some(inlined)) = self.inlined.borrow().get(function as usize) {
            return Ok(Rc::clone(inlined));
        }
        let entries = self.entries.get(function as usize).copied().unwrap_or_default();
        let inlined = Rc::new(InlinedCalls::read(unit, entries)?);
        self.inlined_bytes.set(self.inlined_bytes.get() + inlined.bytes());
        let mut all = self.inlined.borrow_mut();
        if all.is_empty() {
            *all = vec![None; self.entries.len()].into();
        }
        if let Some(slot) = all.get_mut(function as usize) {
            *slot = Some(Rc::clone(&inlined));
        }
        Ok(inlined)
    }
}

/// The state of the walk over a unit.
#[derive(Default)]
struct FunctionWalk {
    is_thorough: bool,
    /// True if the walk skipped children.
    has_skipped: bool,
    ranges: Vec<FunctionRange>,
    entries: Vec<EntryRange>,
    /// The functions around the walk's position: their depth and number.
    open: Vec<(isize, u32)>,
}

impl FunctionWalk {
    fn over(&mut self, unit: &Unit) -> Result<()> {
        let start = unit.head.entries;
        let info = unit.data.section(SectionId::DebugInfo)?;
        let bytes = info.keep(start, unit.length()?)?;
        let abbreviations = unit.abbreviations()?;
        let mut entries = unit.walk(&bytes, &abbreviations);
        // gimli's walk cannot jump: after skipped children, a new one begins at the sibling, and
        // its offsets and depths count from there.
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
                Ok(Some(sibling)) => {
                    let sibling = sibling.saturating_sub(start) as usize;
                    // A sibling before this entry is malformed; following it might not end.
                    let rest = bytes.get(sibling..).filter(|_| sibling > at);
                    let Some(rest) = rest else { continue };
                    entries = unit.walk(rest, &abbreviations);
                    (base, base_depth) = (sibling, depth);
                    self.has_skipped = true;
                }
                Err(fault) => break Err(fault),
            }
        };
        self.close(isize::MIN, unit.head.end);
        walked
    }

    /// Reads the next entry; returns the offset of its sibling if its children are to be skipped.
    #[inline]
    fn entry(
        &mut self,
        unit: &Unit,
        entries: &mut EntriesRaw<'_, Slice<'_>>,
        at: u64,
        depth: isize,
    ) -> Result<Option<u64>> {
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
        let is_code = is_function_with_code(abbreviation);
        let skips = !self.is_thorough && is_skippable(abbreviation);
        // Most entries are types and variables.
        if !is_code && !skips {
            entries.skip_attributes(abbreviation.attributes())?;
            return Ok(None);
        }
        let mut addresses = RangeAttributes::default();
        let mut sibling = None;
        for &specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(specification)?;
            match attribute.name() {
                gimli::DW_AT_sibling => sibling = unit.reference(attribute.value()),
                _ => addresses.take(&attribute),
            }
        }
        // A function may have both code and skipped children.
        if is_code {
            self.add(unit, &addresses, at, depth)?;
        }
        match sibling.filter(|_| skips) {
            Some(Reference::Here(sibling)) => Ok(Some(sibling)),
            _ => Ok(None),
        }
    }

    fn add(
        &mut self,
        unit: &Unit,
        addresses: &RangeAttributes<'_>,
        at: u64,
        depth: isize,
    ) -> Result<()> {
        let function = self.entries.len() as u32;
        let before = self.ranges.len();
        let ranges = &mut self.ranges;
        // Unreadable ranges cost this function, not those after it.
        let _ = unit.for_each_range(addresses, |range| {
            // No function has 4 GiB of code; the range is malformed.
            if let Ok(length) = u32::try_from(range.end - range.start) {
                ranges.push(FunctionRange { begin: range.start, length, function });
            }
        });
        // Dropped by the linker: its ranges are empty.
        if ranges.len() == before {
            return Ok(());
        }
        if ranges.len() > RANGES {
            return Err(DwarfError::Limit("more functions than any unit has"));
        }
        // `close` sets the length when the walk leaves the function.
        self.entries.push(EntryRange { start: at, length: 0 });
        self.open.push((depth, function));
        Ok(())
    }

    /// Ends the functions that an entry at `depth` is not inside of.
    #[inline]
    fn close(&mut self, depth: isize, at: u64) {
        while let Some((_, function)) = self.open.pop_if(|(begun, _)| depth <= *begun) {
            let entries = &mut self.entries[function as usize];
            entries.length = (at - entries.start) as u32;
        }
    }
}

/// True if the children of an entry may be skipped and the entry has a sibling.
fn is_skippable(abbreviation: &Abbreviation) -> bool {
    let has_uninteresting_children = matches!(
        abbreviation.tag(),
        gimli::DW_TAG_subprogram
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_subroutine_type
    );
    has_uninteresting_children && has_sibling(abbreviation)
}
