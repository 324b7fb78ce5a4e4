//! The units of a file by the addresses of their code.
//!
//! The ranges in the first entry of each unit count: gcc, clang and rustc all write them. The table
//! for the purpose (`.debug_aranges`) is not read: clang and rustc leave it out by default, and a
//! file linked of both kinds has it for an unknown part of its units.

use std::ops::{Deref, Range};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::debug_file::DwarfFile;
use super::error::DwarfError;
use super::line_table::LineTable;
use super::linked_files::LinkedFiles;
use super::unit::Unit;

/// The largest number of ranges of all units.
const RANGES: usize = 1 << 24;

/// The number of units that are searched for an address that lies in several.
const OVERLAPS: usize = 8;

/// A range of addresses of a unit.
#[derive(Clone, Copy, Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: u32,
}

/// The units by the addresses of their code.
#[derive(Debug, Default)]
pub(crate) struct UnitIndex {
    /// The ranges that units declare.
    declared: UnitRanges,
    /// The ranges of lines of units without ranges of their own. Several units may share lines, so
    /// that these units are searched after the others.
    from_lines: UnitRanges,
    /// Units without ranges in their first entry. Their lines may have addresses nevertheless; they
    /// are read only for an address that no other unit has.
    without_ranges: Vec<u32>,
    /// The error of a unit that could not be read.
    fault: Option<DwarfError>,
}

/// Ranges of units that may overlap.
#[derive(Debug, Default)]
struct UnitRanges {
    /// Sorted by their begin.
    ranges: Vec<UnitRange>,
    /// For each range, the highest end of the ranges up to it.
    furthest: Vec<u64>,
}

/// The units that may have code at an address.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Candidates {
    units: [u32; 2 * OVERLAPS],
    count: usize,
}

impl Candidates {
    fn push(&mut self, unit: u32) {
        self.units[self.count] = unit;
        self.count += 1;
    }
}

impl Deref for Candidates {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.units[..self.count]
    }
}

impl UnitIndex {
    /// Reads the first entry of each unit.
    pub(crate) fn read(files: &Rc<LinkedFiles>, data: &Rc<DwarfFile>) -> Self {
        let mut index = Self { fault: data.fault().cloned(), ..Self::default() };
        for (number, head) in data.units().iter().enumerate().filter(|(_, head)| !head.is_type) {
            match Unit::open(files, data, *head, None) {
                // dwz leaves the lines of the original in partial units, but no code.
                Ok(unit) if unit.is_partial => {}
                Ok(unit) if unit.ranges.is_empty() && unit.lines.is_some() => {
                    index.without_ranges.push(number as u32);
                }
                Ok(unit) => index.declared.add(number as u32, unit.ranges.iter().cloned()),
                Err(fault) => index.fault = Some(fault),
            }
        }
        index.declared.sort();
        index
    }

    /// Returns the reason why units may be missing.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.declared.bytes() + self.from_lines.bytes()
    }

    /// True if the addresses of some units are not known yet.
    pub(crate) fn has_units_without_ranges(&self) -> bool {
        !self.without_ranges.is_empty()
    }

    /// Reads the lines of the units without ranges in their first entry.
    pub(crate) fn read_lines(&mut self, files: &Rc<LinkedFiles>, data: &Rc<DwarfFile>) {
        // Thousands of units may share one program (dwz, LTO): each is read once.
        let mut known: FxHashMap<u64, Vec<Range<u64>>> = FxHashMap::default();
        for number in std::mem::take(&mut self.without_ranges) {
            let Some(head) = data.units().get(number as usize) else { continue };
            let Ok(unit) = Unit::open(files, data, *head, None) else { continue };
            let Some(at) = unit.lines else { continue };
            let ranges = known.entry(at).or_insert_with(|| match LineTable::read(&unit, None) {
                Ok(Some(lines)) => lines.ranges().collect(),
                Ok(None) | Err(_) => Vec::new(),
            });
            self.from_lines.add(number, ranges.iter().cloned());
        }
        self.from_lines.sort();
    }

    /// Returns the units that may have code at an address: first those with ranges of their own, and
    /// of these the ones that begin last.
    pub(crate) fn at(&self, address: u64) -> Candidates {
        let mut units = Candidates::default();
        self.declared.find(address, &mut units);
        self.from_lines.find(address, &mut units);
        units
    }
}

impl UnitRanges {
    fn bytes(&self) -> usize {
        size_of_val(&*self.ranges) + size_of_val(&*self.furthest)
    }

    /// Appends the units of the ranges at an address, the ones that begin last first.
    fn find(&self, address: u64, units: &mut Candidates) {
        let known = units.count;
        let mut at = self.ranges.partition_point(|range| range.begin <= address);
        while at > 0 && units.count - known < OVERLAPS && self.furthest[at - 1] > address {
            at -= 1;
            let range = self.ranges[at];
            if address < range.end && !units[known..].contains(&range.unit) {
                units.push(range.unit);
            }
        }
    }

    fn add(&mut self, unit: u32, ranges: impl Iterator<Item = Range<u64>>) {
        // The linker sets the begin of code that it dropped (--gc-sections) to 0.
        let ranges = ranges.filter(|range| range.start > 0).map(|range| UnitRange {
            begin: range.start,
            end: range.end,
            unit,
        });
        // A hostile file may have 2^16 ranges in each of 2^20 units.
        let room = RANGES.saturating_sub(self.ranges.len());
        self.ranges.extend(ranges.take(room));
    }

    fn sort(&mut self) {
        self.ranges.sort_unstable_by_key(|range| (range.begin, std::cmp::Reverse(range.end)));
        let furthest = self.ranges.iter().scan(0, |furthest: &mut u64, range| {
            *furthest = range.end.max(*furthest);
            Some(*furthest)
        });
        self.furthest = furthest.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_units_that_overlap() {
        let mut index = UnitRanges::default();
        index.add(1, [0x1000..0x9000, 0..0x100].into_iter());
        index.add(2, [0x2000..0x3000, 0x4000..0x5000].into_iter());
        index.add(3, std::iter::once(0x2800..0x2900));
        index.sort();
        let at = |address| -> Vec<u32> {
            let mut units = Candidates::default();
            index.find(address, &mut units);
            units.to_vec()
        };
        assert_eq!(at(0x50), [] as [u32; 0]);
        assert_eq!(at(0xfff), [] as [u32; 0]);
        assert_eq!(at(0x1000), [1]);
        assert_eq!(at(0x2880), [3, 2, 1]);
        assert_eq!(at(0x2900), [2, 1]);
        assert_eq!(at(0x8fff), [1]);
        assert_eq!(at(0x9000), [] as [u32; 0]);
    }

    #[test]
    fn prefers_units_with_ranges_to_units_with_lines() {
        let mut index = UnitIndex::default();
        index.declared.add(1, std::iter::once(0x1000..0x2000));
        index.declared.sort();
        (2..100).for_each(|unit| index.from_lines.add(unit, std::iter::once(0x1800..0x1900)));
        index.from_lines.sort();
        assert_eq!(index.at(0x1850)[0], 1);
        assert_eq!(index.at(0x1850).len(), 1 + OVERLAPS);
    }
}
