//! The lines of a unit: which file and line an address belongs to.
//!
//! The program is run once to find its sequences (a function each, or all of the unit), and the
//! rows of a sequence are kept when an address first falls into it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Reader, SectionId};
use rustc_hash::FxHashMap;

use super::debug_file::DwarfFile;
use super::error::{DwarfError, Result};
use super::line_program::{Header, Row, StringRef};
use super::unit::Unit;

/// The largest line program that is run, bytes.
const PROGRAM: u64 = 1 << 30;

/// The longest path, bytes.
const PATH: usize = nprof_stream::limits::STRING;

/// Rows without a gap between their addresses.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    begin: u64,
    end: u64,
    /// Where its instructions begin in `.debug_line`, and how many bytes they have.
    place: u64,
    length: u64,
}

/// The lines of one unit.
pub(crate) struct LineTable {
    header: Header,
    /// By where they begin.
    sequences: Box<[Sequence]>,
    rows: RefCell<FxHashMap<usize, Rc<[Row]>>>,
    paths: RefCell<FxHashMap<u64, Arc<[u8]>>>,
    row_bytes: std::cell::Cell<usize>,
    /// Why sequences are missing.
    fault: Option<DwarfError>,
}

impl LineTable {
    /// Runs the line program of a unit once. `None` when it has none.
    ///
    /// # Errors
    ///
    /// When its header is malformed.
    pub(crate) fn read(unit: &Unit) -> Result<Option<Self>> {
        let Some(offset) = unit.lines else { return Ok(None) };
        let section = unit.linked.section(SectionId::DebugLine)?;
        let bytes = section.near(offset, 12)?;
        let mut start = unit.linked.slice(&bytes);
        let all = start.len();
        let (length, _) = start.read_initial_length()?;
        let length = (length as u64).saturating_add((all - start.len()) as u64);
        if length > PROGRAM {
            return Err(DwarfError::Limit("a line program larger than any compiler makes"));
        }
        let bytes = section.range(offset, length)?;
        let program = unit.linked.slice(&bytes);
        let (header, begin) = Header::read(program, unit.head.encoding.address_size)?;
        let mut sequences = Vec::new();
        let (mut first, mut place) = (None, begin);
        let instructions = unit.linked.slice(&bytes[begin..]);
        let run = header.run(instructions, |row, is_end, next| {
            let start = *first.get_or_insert(row.address);
            if is_end {
                let next = begin + next;
                let length = (next - place) as u64;
                let at = offset + place as u64;
                (first, place) = (None, next);
                if start < row.address {
                    sequences.push(Sequence { begin: start, end: row.address, place: at, length });
                }
            }
        });
        sequences.sort_unstable_by_key(|sequence| (sequence.begin, sequence.end));
        Ok(Some(Self {
            header,
            sequences: sequences.into(),
            rows: RefCell::default(),
            paths: RefCell::default(),
            row_bytes: std::cell::Cell::default(),
            fault: run.err(),
        }))
    }

    /// Why some lines are missing.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// The addresses it is about.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        self.sequences.iter().map(|sequence| sequence.begin..sequence.end)
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let files = (self.header.files.len() + self.header.directories.len()) * 48;
        files
            + size_of_val(&*self.sequences)
            + self.row_bytes.get()
            + self.paths.borrow().len() * 128
    }

    /// The row an address belongs to.
    ///
    /// # Errors
    ///
    /// When the file was changed since.
    pub(crate) fn find(&self, unit: &Unit, address: u64) -> Result<Option<Row>> {
        let after = self.sequences.partition_point(|sequence| sequence.begin <= address);
        let before = self.sequences[..after].iter().enumerate().rev().take(8);
        let covering = before.into_iter().find(|(_, sequence)| address < sequence.end);
        let Some((index, sequence)) = covering else { return Ok(None) };
        let rows = self.rows(unit, index, sequence)?;
        let after = rows.partition_point(|row| row.address <= address);
        Ok(after.checked_sub(1).map(|at| rows[at]))
    }

    fn rows(&self, unit: &Unit, index: usize, sequence: &Sequence) -> Result<Rc<[Row]>> {
        if let Some(rows) = self.rows.borrow().get(&index) {
            return Ok(Rc::clone(rows));
        }
        let section = unit.linked.section(SectionId::DebugLine)?;
        let bytes = section.range(sequence.place, sequence.length)?;
        let mut rows: Vec<Row> = Vec::new();
        self.header.run(unit.linked.slice(&bytes), |row, is_end, _| {
            let last = rows.last_mut();
            match last {
                _ if is_end => {}
                // Of rows for one address the last one counts.
                Some(last) if last.address == row.address => *last = row,
                // Addresses only grow within a sequence.
                Some(last) if last.address > row.address => {}
                Some(last)
                    if (last.file, last.line, last.column) == (row.file, row.line, row.column) => {}
                _ => rows.push(row),
            }
        })?;
        let rows: Rc<[Row]> = rows.into();
        self.row_bytes.set(self.row_bytes.get() + size_of_val(&*rows) + 48);
        self.rows.borrow_mut().insert(index, Rc::clone(&rows));
        Ok(rows)
    }

    /// The path of a source file by its number; empty when there is none.
    ///
    /// # Errors
    ///
    /// When its parts lie outside of their sections.
    pub(crate) fn path(&self, unit: &Unit, file: u64) -> Result<Arc<[u8]>> {
        if let Some(path) = self.paths.borrow().get(&file) {
            return Ok(Arc::clone(path));
        }
        let path: Arc<[u8]> = self.whole_path(unit, file)?.into();
        self.paths.borrow_mut().insert(file, Arc::clone(&path));
        Ok(path)
    }

    fn whole_path(&self, unit: &Unit, file: u64) -> Result<Vec<u8>> {
        let is_old = self.header.version < 5;
        // LinkedFiles count from 1 in the older versions, and 0 is the unit's own.
        let index = if is_old { file.checked_sub(1) } else { Some(file) };
        let Some(index) = index else {
            return Ok(joined(unit.directory.clone(), &unit.name));
        };
        let known = usize::try_from(index).ok().and_then(|index| self.header.files.get(index));
        let Some(known) = known else { return Ok(Vec::new()) };
        let directory = if is_old { known.directory.checked_sub(1) } else { Some(known.directory) };
        let mut path = unit.directory.clone();
        if let Some(directory) = directory.and_then(|at| self.header.directories.get(at as usize)) {
            path = joined(path, &text(&unit.linked, directory)?);
        }
        Ok(joined(path, &text(&unit.linked, &known.name)?))
    }
}

fn text(data: &DwarfFile, text: &StringRef) -> Result<Vec<u8>> {
    match text {
        StringRef::Inline(text) => Ok(text.to_vec()),
        StringRef::LineStr(offset) => data.section(SectionId::DebugLineStr)?.string(*offset),
        StringRef::Str(offset) => data.section(SectionId::DebugStr)?.string(*offset),
        StringRef::Unsupported => Ok(Vec::new()),
    }
}

/// A path below another, unless it is absolute.
fn joined(mut path: Vec<u8>, part: &[u8]) -> Vec<u8> {
    if part.is_empty() {
        return path;
    }
    if part.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(part);
    path.truncate(PATH);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together() {
        for (path, part, whole) in [
            ("/src", "a.c", "/src/a.c"),
            ("/src/", "a.c", "/src/a.c"),
            ("/src", "/usr/a.h", "/usr/a.h"),
            ("", "a.c", "a.c"),
            ("/src", "", "/src"),
        ] {
            assert_eq!(joined(path.into(), part.as_bytes()), whole.as_bytes());
        }
    }
}
