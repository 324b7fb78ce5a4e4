//! The lines of a unit: the source file and line of an address.
//!
//! The first run of the program finds its sequences (one for each section of code: a function
//! with `-ffunction-sections` and in C++ templates, else the whole unit). The rows of a sequence
//! are read when an address first lies in it.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Reader, SectionId};
use nprof_stream::Md5Sum;

use super::debug_file::DwarfFile;
use super::error::{DwarfError, Result};
use super::line_program::{File, Header, Row, StringRef};
use super::unit::Unit;

/// The largest line program that is run, in bytes.
const PROGRAM: u64 = 1 << 30;

/// The longest path in bytes.
const PATH: usize = nprof_stream::limits::STRING;

/// The number of sequences that are compared with an address that lies in several of them.
const OVERLAPS: usize = 8;

/// The memory of rows or a path without their bytes: reference counts and the allocator's share.
const COUNTS: usize = 32;

/// The number of rows after that of the latest lookup that are compared before a binary search.
const NEAR: usize = 16;

/// The number of rows from which a sequence is kept at the first run: C without
/// `-ffunction-sections` has one sequence of all functions, and to run it again takes as long.
const LONG_SEQUENCE: usize = 256;

/// Rows without a gap between their addresses (DWARF 5, 6.2.5: they only grow).
#[derive(Clone, Copy, Debug)]
struct Sequence {
    begin: u64,
    end: u64,
    /// The offset of its instructions in `.debug_line`, and their size in bytes.
    offset: u64,
    length: u64,
}

/// A row of a sequence. Its address counts from the begin of the sequence.
#[derive(Clone, Copy, Debug)]
struct SequenceRow {
    distance: u32,
    file: u32,
    line: u32,
    column: u32,
}

/// A source file, line and column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The number of a file of the unit.
    pub(crate) file: u32,
    /// 0 when there is none.
    pub(crate) line: u32,
    /// 0 when unknown.
    pub(crate) column: u32,
}

/// Values by their index, each read when it is needed.
type Slots<T> = Box<[Option<T>]>;

/// The lines of one unit.
pub(crate) struct LineTable {
    header: Header,
    /// Sorted by their begin.
    sequences: Box<[Sequence]>,
    /// By sequence; empty until the first is read.
    rows: RefCell<Slots<Rc<[SequenceRow]>>>,
    /// By file number; empty until the first is read.
    paths: RefCell<Slots<Arc<[u8]>>>,
    /// The sequence and the row of the latest lookup.
    last: Cell<(usize, usize)>,
    header_bytes: usize,
    row_bytes: Cell<usize>,
    path_bytes: Cell<usize>,
    /// The reason why sequences are missing.
    fault: Option<DwarfError>,
}

impl LineTable {
    /// Runs the line program of a unit. Keeps the rows of long sequences, and of the one at
    /// `address`, which the caller looks up next. None if the unit has no program.
    ///
    /// # Errors
    ///
    /// When the header is malformed.
    pub(crate) fn read(unit: &Unit, address: Option<u64>) -> Result<Option<Self>> {
        let Some(offset) = unit.lines else { return Ok(None) };
        let section = unit.linked.section(SectionId::DebugLine)?;
        // The longest initial length, of 64-bit DWARF.
        let bytes = section.near(offset, 12)?;
        let mut start = unit.linked.slice(&bytes);
        let all = start.len();
        let (length, _) = start.read_initial_length()?;
        let length = (length as u64).saturating_add((all - start.len()) as u64);
        if length > PROGRAM {
            return Err(DwarfError::Limit("a line program larger than any compiler makes"));
        }
        let bytes = section.keep(offset, length)?;
        let program = unit.linked.slice(&bytes);
        let (header, begin) = Header::read(program, unit.head.encoding.address_size)?;
        let mut sequences = Vec::new();
        let mut kept = Vec::new();
        let mut rows = Rows::default();
        let mut from = begin;
        let run = header.run(unit.linked.slice(&bytes[begin..]), |row, is_end, next| {
            if !is_end {
                rows.push(&row);
                return;
            }
            let next = begin + next;
            if let Some(Range { start, end }) = rows.span(row.address) {
                let offset = offset + from as u64;
                let length = (next - from) as u64;
                sequences.push(Sequence { begin: start, end, offset, length });
                let is_next = |address| (start..end).contains(&address);
                if rows.rows.len() >= LONG_SEQUENCE || address.is_some_and(is_next) {
                    kept.push((offset, Rc::from(&*rows.rows)));
                }
            }
            rows.clear();
            from = next;
        });
        sequences.sort_unstable_by_key(|sequence| (sequence.begin, sequence.end));
        let header_bytes = header.bytes();
        let table = Self {
            header,
            sequences: sequences.into(),
            rows: RefCell::default(),
            paths: RefCell::default(),
            last: Cell::default(),
            header_bytes,
            row_bytes: Cell::default(),
            path_bytes: Cell::default(),
            fault: run.err(),
        };
        for (offset, rows) in kept {
            let index = table.sequences.iter().position(|sequence| sequence.offset == offset);
            index.into_iter().for_each(|index| table.insert(index, Rc::clone(&rows)));
        }
        Ok(Some(table))
    }

    /// Returns the reason why some lines are missing.
    pub(crate) fn fault(&self) -> Option<&DwarfError> {
        self.fault.as_ref()
    }

    /// Returns the addresses that have lines.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.sequences.iter().map(|sequence| sequence.begin..sequence.end)
    }

    /// Returns the memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let (rows, paths) = (self.rows.borrow(), self.paths.borrow());
        self.header_bytes
            + size_of_val(&*self.sequences)
            + size_of_val(&**rows)
            + self.row_bytes.get()
            + size_of_val(&**paths)
            + self.path_bytes.get()
    }

    /// Drops rows and paths, which are read again when they are needed.
    pub(crate) fn drop_rows(&self) {
        *self.rows.borrow_mut() = Box::default();
        *self.paths.borrow_mut() = Box::default();
        self.row_bytes.set(0);
        self.path_bytes.set(0);
    }

    /// Returns the source position of an address.
    ///
    /// # Errors
    ///
    /// When the file was changed since the table was read.
    pub(crate) fn find(&self, unit: &Unit, address: u64) -> Result<Option<Position>> {
        let after = self.sequences.partition_point(|sequence| sequence.begin <= address);
        let mut before = (0..after).rev().take(OVERLAPS);
        let Some(index) = before.find(|&index| address < self.sequences[index].end) else {
            return Ok(None);
        };
        let rows = self.rows(unit, index)?;
        let sequence = &self.sequences[index];
        let distance = address - sequence.begin;
        let is_before = |row: &SequenceRow| u64::from(row.distance) <= distance;
        // Sorted lookups find the row at or shortly after that of the one before.
        let (last_index, last) = self.last.get();
        let start = rows.get(last).filter(|row| last_index == index && is_before(row));
        let start = start.map_or(0, |_| last);
        let near = rows[start..].iter().take(NEAR).position(|row| !is_before(row));
        let after = near.unwrap_or_else(|| rows[start..].partition_point(is_before)) + start;
        let row = after.checked_sub(1).map(|at| rows[at]);
        self.last.set((index, after.saturating_sub(1)));
        Ok(row.map(|SequenceRow { file, line, column, .. }| Position { file, line, column }))
    }

    fn rows(&self, unit: &Unit, index: usize) -> Result<Rc<[SequenceRow]>> {
        if let Some(Some(rows)) = self.rows.borrow().get(index) {
            return Ok(Rc::clone(rows));
        }
        let sequence = &self.sequences[index];
        let section = unit.linked.section(SectionId::DebugLine)?;
        let bytes = section.range(sequence.offset, sequence.length)?;
        let mut rows = Rows::default();
        self.header.run(unit.linked.slice(&bytes), |row, is_end, _| {
            if !is_end {
                rows.push(&row);
            }
        })?;
        let rows: Rc<[SequenceRow]> = rows.rows.into();
        self.insert(index, Rc::clone(&rows));
        Ok(rows)
    }

    fn insert(&self, sequence: usize, rows: Rc<[SequenceRow]>) {
        self.row_bytes.set(self.row_bytes.get() + size_of_val(&*rows) + COUNTS);
        let mut all = self.rows.borrow_mut();
        if all.is_empty() {
            *all = vec![None; self.sequences.len()].into();
        }
        all[sequence] = Some(rows);
    }

    /// Returns the path of a source file by its number; empty if there is none.
    ///
    /// # Errors
    ///
    /// When its parts lie outside of their sections.
    pub(crate) fn path(&self, unit: &Unit, file: u32) -> Result<Arc<[u8]>> {
        if let Some(Some(path)) = self.paths.borrow().get(file as usize) {
            return Ok(Arc::clone(path));
        }
        let path: Arc<[u8]> = self.whole_path(unit, file)?.into();
        let mut all = self.paths.borrow_mut();
        if all.is_empty() {
            // Before DWARF 5, numbers begin at 1.
            *all = vec![None; self.header.files.len() + 1].into();
        }
        // A number without a file is malformed; its empty path is not kept.
        if let Some(slot) = all.get_mut(file as usize) {
            self.path_bytes.set(self.path_bytes.get() + path.len() + COUNTS);
            *slot = Some(Arc::clone(&path));
        }
        Ok(path)
    }

    /// Returns the MD5 of a source file by its number. None if the compiler did not state it.
    pub(crate) fn md5(&self, file: u32) -> Option<Md5Sum> {
        // It came with DWARF 5, in which files count from 0.
        self.header.md5(file as usize)
    }

    fn whole_path(&self, unit: &Unit, file: u32) -> Result<Vec<u8>> {
        // Before DWARF 5 files count from 1, and so do directories; 0 is the file, or the
        // directory, of the compilation.
        let is_old = self.header.version < 5;
        let index = if is_old { file.checked_sub(1) } else { Some(file) };
        let Some(index) = index else {
            return Ok(joined(unit.directory.clone(), &unit.name));
        };
        let Some(File { name, directory }) = self.header.files.get(index as usize) else {
            return Ok(Vec::new());
        };
        let directory = if is_old { directory.checked_sub(1) } else { Some(*directory) };
        let directory = directory.and_then(|at| self.header.directories.get(at as usize));
        let mut path = unit.directory.clone();
        if let Some(directory) = directory {
            path = joined(path, &string(&unit.linked, directory)?);
        }
        Ok(joined(path, &string(&unit.linked, name)?))
    }
}

/// The rows of a sequence that runs.
#[derive(Default)]
struct Rows {
    begin: Option<u64>,
    rows: Vec<SequenceRow>,
}

impl Rows {
    #[inline]
    fn push(&mut self, row: &Row) {
        let begin = *self.begin.get_or_insert(row.address);
        let Row { file, line, column, .. } = *row;
        // A row before the begin, or 4 GiB after it, is malformed.
        let Some(distance) = row.address.checked_sub(begin) else { return };
        let Ok(distance) = u32::try_from(distance) else { return };
        let row = SequenceRow { distance, file, line, column };
        match self.rows.last_mut() {
            // Of rows for one address the last one counts.
            Some(last) if last.distance == distance => *last = row,
            // Addresses only grow within a sequence; a lower one is malformed.
            Some(last) if last.distance > distance => {}
            // Rows that differ in the flags only, such as is_stmt and prologue_end.
            Some(last) if (last.file, last.line, last.column) == (file, line, column) => {}
            _ => self.rows.push(row),
        }
    }

    /// Returns the addresses of the sequence that ends at `end`. None if it has no code.
    fn span(&self, end: u64) -> Option<Range<u64>> {
        let begin = self.begin.unwrap_or(end);
        (begin < end).then_some(begin..end)
    }

    fn clear(&mut self) {
        self.begin = None;
        self.rows.clear();
    }
}

fn string(file: &DwarfFile, string: &StringRef) -> Result<Vec<u8>> {
    match string {
        StringRef::Inline(text) => Ok(text.to_vec()),
        StringRef::LineStr(offset) => file.section(SectionId::DebugLineStr)?.string(*offset),
        StringRef::Str(offset) => file.section(SectionId::DebugStr)?.string(*offset),
        StringRef::Unsupported => Ok(Vec::new()),
    }
}

/// Joins a path to another, unless it is absolute.
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
    // A stream cannot hold a longer one.
    path.truncate(PATH);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_relative_paths_and_keeps_absolute_ones() {
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
