//! The units of a file by the addresses of their code.
//!
//! What the first entry of each unit says counts: gcc, clang and rustc all write it. The table
//! made for the purpose (`.debug_aranges`) is not read: clang and rustc leave it out by default,
//! files linked of both kinds have it for a part, and nothing in it says for which.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::debug_file::DwarfFile;
use super::error::DwarfError;
use super::line_table::LineTable;
use super::linked_files::LinkedFiles;
use super::unit::Unit;

/// The most ranges of all units.
const RANGES: usize = 1 << 24;

/// How many units are looked into for one address that lies in several.
const OVERLAPS: usize = 8;

/// A range of addresses of a unit.
#[derive(Clone, Copy, Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: u32,
}

/// Which units have code where.
#[derive(Debug, Default)]
pub(crate) struct UnitIndex {
    /// As the units themselves say.
    declared: UnitRanges,
    /// As the lines say of those that do not: several units may share them, so that these are asked
    /// after the others.
    from_lines: UnitRanges,
    /// UnitCache that do not say, which may have code nevertheless, until their lines were asked.
    without_ranges: Vec<u32>,
    /// What was wrong with a unit.
    fault: Option<DwarfError>,
}

/// Ranges of units that may overlap.
#[derive(Debug, Default)]
struct UnitRanges {
    /// By where they begin.
    ranges: Vec<UnitRange>,
    /// For each range, the furthest end up to it.
    furthest: Vec<u64>,
}

impl UnitIndex {
    /// Reads the first entry of each unit.
    pub(crate) fn read(files: &Rc<LinkedFiles>, data: &Rc<DwarfFile>) -> Self {
        let mut index = Self { fault: data.fault().cloned(), ..Self::default() };
        for (number, head) in data.units().iter().enumerate().filter(|(_, head)| !head.is_type) {
            match Unit::open(files, data, *head, None) {
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

    /// Why units may be missing.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.declared.bytes() + self.from_lines.bytes()
    }

    /// Whether there are units left that did not say where their code is.
    pub(crate) fn has_units_without_ranges(&self) -> bool {
        !self.without_ranges.is_empty()
    }

    /// Asks the lines of the units that did not say where their code is.
    pub(crate) fn read_lines(&mut self, files: &Rc<LinkedFiles>, data: &Rc<DwarfFile>) {
        // By where they are: units may share them, by thousands.
        let mut known: FxHashMap<u64, Vec<Range<u64>>> = FxHashMap::default();
        for number in std::mem::take(&mut self.without_ranges) {
            let Some(head) = data.units().get(number as usize) else { continue };
            let Ok(unit) = Unit::open(files, data, *head, None) else { continue };
            let Some(at) = unit.lines else { continue };
            let ranges = known.entry(at).or_insert_with(|| match LineTable::read(&unit) {
                Ok(Some(lines)) => lines.ranges().collect(),
                Ok(None) | Err(_) => Vec::new(),
            });
            self.from_lines.add(number, ranges.iter().cloned());
        }
        self.from_lines.sort();
    }

    /// The units that may have code at an address: those that say so first, and of these the ones
    /// that begin last.
    pub(crate) fn at(&self, address: u64) -> Vec<u32> {
        let mut units = self.declared.at(address);
        units.extend(self.from_lines.at(address));
        units
    }
}

impl UnitRanges {
    fn bytes(&self) -> usize {
        size_of_val(&*self.ranges) + size_of_val(&*self.furthest)
    }

    /// The units of the ranges at an address, the ones that begin last first.
    fn at(&self, address: u64) -> Vec<u32> {
        let mut units = Vec::new();
        let mut at = self.ranges.partition_point(|range| range.begin <= address);
        while at > 0 && units.len() < OVERLAPS && self.furthest[at - 1] > address {
            at -= 1;
            let range = self.ranges[at];
            if address < range.end && !units.contains(&range.unit) {
                units.push(range.unit);
            }
        }
        units
    }

    fn add(&mut self, unit: u32, ranges: impl Iterator<Item = Range<u64>>) {
        // What was not linked begins at 0.
        let ranges = ranges.filter(|range| range.start > 0).map(|range| UnitRange {
            begin: range.start,
            end: range.end,
            unit,
        });
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
    fn units_that_overlap_are_all_found() {
        let mut index = UnitRanges::default();
        index.add(1, [0x1000..0x9000, 0..0x100].into_iter());
        index.add(2, [0x2000..0x3000, 0x4000..0x5000].into_iter());
        index.add(3, std::iter::once(0x2800..0x2900));
        index.sort();
        assert_eq!(index.at(0x50), [] as [u32; 0]);
        assert_eq!(index.at(0xfff), [] as [u32; 0]);
        assert_eq!(index.at(0x1000), [1]);
        assert_eq!(index.at(0x2880), [3, 2, 1]);
        assert_eq!(index.at(0x2900), [2, 1]);
        assert_eq!(index.at(0x8fff), [1]);
        assert_eq!(index.at(0x9000), [] as [u32; 0]);
    }

    #[test]
    fn units_that_say_where_their_code_is_come_first() {
        let mut index = UnitIndex::default();
        index.declared.add(1, std::iter::once(0x1000..0x2000));
        index.declared.sort();
        (2..100).for_each(|unit| index.from_lines.add(unit, std::iter::once(0x1800..0x1900)));
        index.from_lines.sort();
        assert_eq!(index.at(0x1850)[0], 1);
        assert_eq!(index.at(0x1850).len(), 1 + OVERLAPS);
    }
}
