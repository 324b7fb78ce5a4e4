//! The units of a file by the addresses of their code.
//!
//! What the first entry of each unit says counts: gcc, clang and rustc all write it. The table
//! made for the purpose (`.debug_aranges`) is not read: clang and rustc leave it out by default,
//! files linked of both kinds have it for a part, and nothing in it says for which.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::debug_file::Data;
use super::error::Fault;
use super::line_table::Lines;
use super::linked_files::Files;
use super::unit::Unit;

/// The most ranges of all units.
const RANGES: usize = 1 << 24;

/// How many units are looked into for one address that lies in several.
const OVERLAPS: usize = 8;

/// A range of addresses of a unit.
#[derive(Clone, Copy, Debug)]
struct Piece {
    begin: u64,
    end: u64,
    unit: u32,
}

/// Which units have code where.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// As the units themselves say.
    told: Pieces,
    /// As the lines say of those that do not: several units may share them, so that these are asked
    /// after the others.
    by_lines: Pieces,
    /// Units that do not say, which may have code nevertheless, until their lines were asked.
    silent: Vec<u32>,
    /// What was wrong with a unit.
    fault: Option<Fault>,
}

/// Ranges of units that may overlap.
#[derive(Debug, Default)]
struct Pieces {
    /// By where they begin.
    pieces: Vec<Piece>,
    /// For each piece, the furthest end up to it.
    furthest: Vec<u64>,
}

impl Index {
    /// Reads the first entry of each unit.
    pub(crate) fn read(files: &Rc<Files>, data: &Rc<Data>) -> Self {
        let mut index = Self { fault: data.fault().cloned(), ..Self::default() };
        for (number, head) in data.units().iter().enumerate().filter(|(_, head)| !head.is_type) {
            match Unit::open(files, data, *head, None) {
                Ok(unit) if unit.is_partial => {}
                Ok(unit) if unit.ranges.is_empty() && unit.lines.is_some() => {
                    index.silent.push(number as u32);
                }
                Ok(unit) => index.told.add(number as u32, unit.ranges.iter().cloned()),
                Err(fault) => index.fault = Some(fault),
            }
        }
        index.told.sort();
        index
    }

    /// Why units may be missing.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.told.bytes() + self.by_lines.bytes()
    }

    /// Whether there are units left that did not say where their code is.
    pub(crate) fn has_silent(&self) -> bool {
        !self.silent.is_empty()
    }

    /// Asks the lines of the units that did not say where their code is.
    pub(crate) fn ask_lines(&mut self, files: &Rc<Files>, data: &Rc<Data>) {
        // By where they are: units may share them, by thousands.
        let mut known: FxHashMap<u64, Vec<Range<u64>>> = FxHashMap::default();
        for number in std::mem::take(&mut self.silent) {
            let Some(head) = data.units().get(number as usize) else { continue };
            let Ok(unit) = Unit::open(files, data, *head, None) else { continue };
            let Some(at) = unit.lines else { continue };
            let ranges = known.entry(at).or_insert_with(|| match Lines::read(&unit) {
                Ok(Some(lines)) => lines.ranges().collect(),
                Ok(None) | Err(_) => Vec::new(),
            });
            self.by_lines.add(number, ranges.iter().cloned());
        }
        self.by_lines.sort();
    }

    /// The units that may have code at an address: those that say so first, and of these the ones
    /// that begin last.
    pub(crate) fn at(&self, address: u64) -> Vec<u32> {
        let mut units = self.told.at(address);
        units.extend(self.by_lines.at(address));
        units
    }
}

impl Pieces {
    fn bytes(&self) -> usize {
        size_of_val(&*self.pieces) + size_of_val(&*self.furthest)
    }

    /// The units of the pieces at an address, the ones that begin last first.
    fn at(&self, address: u64) -> Vec<u32> {
        let mut units = Vec::new();
        let mut at = self.pieces.partition_point(|piece| piece.begin <= address);
        while at > 0 && units.len() < OVERLAPS && self.furthest[at - 1] > address {
            at -= 1;
            let piece = self.pieces[at];
            if address < piece.end && !units.contains(&piece.unit) {
                units.push(piece.unit);
            }
        }
        units
    }

    fn add(&mut self, unit: u32, ranges: impl Iterator<Item = Range<u64>>) {
        // What was not linked begins at 0.
        let pieces = ranges.filter(|range| range.start > 0).map(|range| Piece {
            begin: range.start,
            end: range.end,
            unit,
        });
        let room = RANGES.saturating_sub(self.pieces.len());
        self.pieces.extend(pieces.take(room));
    }

    fn sort(&mut self) {
        self.pieces.sort_unstable_by_key(|piece| (piece.begin, std::cmp::Reverse(piece.end)));
        let furthest = self.pieces.iter().scan(0, |furthest: &mut u64, piece| {
            *furthest = piece.end.max(*furthest);
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
        let mut index = Pieces::default();
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
        let mut index = Index::default();
        index.told.add(1, std::iter::once(0x1000..0x2000));
        index.told.sort();
        (2..100).for_each(|unit| index.by_lines.add(unit, std::iter::once(0x1800..0x1900)));
        index.by_lines.sort();
        assert_eq!(index.at(0x1850)[0], 1);
        assert_eq!(index.at(0x1850).len(), 1 + OVERLAPS);
    }
}
