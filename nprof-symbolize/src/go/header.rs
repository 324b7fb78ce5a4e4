//! The header of a Go table (`runtime.pcHeader`), and the search for it. Pure over bytes.
//!
//! The layouts are those of `runtime/symtab.go` and `debug/gosym`, which changed with Go 1.2, 1.16,
//! 1.18 and 1.20. Only tables of 64-bit little-endian programs are read.

use memchr::memmem;

use crate::dwarf::Section;

/// The size of the largest header in bytes.
const HEADER_BYTES: u64 = 72;

/// The bytes of a file that are searched at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// The bytes of a search that the check of one candidate counts as: it reads the file twice.
const CANDIDATE_BYTES: u64 = 4096;

/// The most functions of one table. Large programs have 200,000.
const MAX_FUNCTIONS: u64 = 1 << 22;

/// The bytes that the searches in one file may still read. A file may claim any size, and hold any
/// number of headers.
#[derive(Debug)]
pub(super) struct SearchRoom(u64);

impl SearchRoom {
    /// The bytes for one file. The largest Go programs have some hundred megabytes, which a search for
    /// the table and one for the module data read once each.
    const BYTES: u64 = 2 << 30;

    /// Creates the room of one file.
    pub(super) fn new() -> Self {
        Self(Self::BYTES)
    }

    /// Takes bytes. None if there are not enough.
    pub(super) fn take(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

/// The layout of a table, by the first Go that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// One part, with offsets from its start.
    Go1_2,
    /// Separate parts for names, files, values and functions.
    Go1_16,
    /// Functions have offsets from the start of the text, instead of addresses.
    Go1_18,
    /// Functions and inlined calls state their first line.
    Go1_20,
}

/// The facts in the header, with the offsets of the parts from the start of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: Version,
    /// The unit of distances between instructions, in bytes.
    pub(super) quantum: u8,
    /// The number of functions.
    pub(super) functions: u64,
    /// The address of the text. None if only the module data has it: in PIE, where the value is
    /// relocated, and since Go 1.26.
    pub(super) text: Option<u64>,
    /// The names of functions.
    pub(super) names: u64,
    /// The files of each compilation unit, by number (`cutab`).
    pub(super) units: u64,
    /// The paths of files; before Go 1.16 their offsets.
    pub(super) files: u64,
    /// The values by address (`pctab`).
    pub(super) values: u64,
    /// The sorted list of functions.
    pub(super) list: u64,
    /// The origin of the offsets of functions' records.
    pub(super) records: u64,
}

impl Header {
    /// Reads the header at the start of `table`. None if there is none, or a part lies outside.
    pub(super) fn read(table: &Section) -> Option<Self> {
        let bytes = table.read(0, HEADER_BYTES).ok()?;
        let &[magic, 0xff, 0xff, 0xff, 0, 0, quantum @ (1 | 2 | 4), 8] = bytes.first_chunk()?
        else {
            return None;
        };
        let version = match magic {
            0xfb => Version::Go1_2,
            0xfa => Version::Go1_16,
            0xf0 => Version::Go1_18,
            0xf1 => Version::Go1_20,
            _ => return None,
        };
        let word = |index: usize| {
            let at = 8 + index * 8;
            bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
        };
        let functions = word(0).filter(|count| (1..=MAX_FUNCTIONS).contains(count))?;
        let list_bytes = version.list_bytes(functions);
        let header = match version {
            Version::Go1_2 => {
                let list = 16;
                let files = table.read(list + list_bytes, 4).ok()?;
                let files = u32::from_le_bytes(files.as_ref().try_into().ok()?).into();
                let (text, names, units, values, records) = (None, 0, 0, 0, 0);
                Self {
                    version,
                    quantum,
                    functions,
                    text,
                    names,
                    units,
                    files,
                    values,
                    list,
                    records,
                }
            }
            Version::Go1_16 | Version::Go1_18 | Version::Go1_20 => {
                // The third word is the address of the text since Go 1.18.
                let (text, first) = if version >= Version::Go1_18 { (word(2)?, 3) } else { (0, 2) };
                let list = word(first + 4)?;
                Self {
                    version,
                    quantum,
                    functions,
                    text: Some(text).filter(|&text| text != 0),
                    names: word(first)?,
                    units: word(first + 1)?,
                    files: word(first + 2)?,
                    values: word(first + 3)?,
                    list,
                    records: list,
                }
            }
        };
        let parts = [header.names, header.units, header.files, header.values];
        let is_inside = header.list.checked_add(list_bytes)? <= table.len()
            && parts.iter().all(|&part| part < table.len());
        is_inside.then_some(header)
    }

    /// Returns the offset of the first header in `file` at or after `start` and before `end`, among
    /// those with an alignment of 8 bytes. None also if the search would exceed `room`.
    pub(super) fn find(file: &Section, start: u64, end: u64, room: &mut SearchRoom) -> Option<u64> {
        // The part of the magic that all versions share, with the zeros after it.
        let finder = memmem::Finder::new(&[0xff, 0xff, 0xff, 0, 0]);
        let mut at = start;
        while at < end {
            // Chunks overlap by a magic.
            let length = (end - at).min(CHUNK_BYTES + 8);
            room.take(length)?;
            let chunk = file.read(at, length).ok()?;
            for found in finder.find_iter(&chunk) {
                let Some(header) = (at + found as u64).checked_sub(1) else { continue };
                if !header.is_multiple_of(8) {
                    continue;
                }
                room.take(CANDIDATE_BYTES)?;
                // A header has at most 2^63 bytes after it: `Header::read` checks the parts.
                if Self::read(&file.part(header, end - header)).is_some() {
                    return Some(header);
                }
            }
            at += CHUNK_BYTES;
        }
        None
    }
}

impl Version {
    /// Returns the size of a number in the list of functions, in bytes.
    pub(super) fn number_bytes(self) -> usize {
        if self >= Self::Go1_18 { 4 } else { 8 }
    }

    /// Returns the size of the list of functions in bytes: two numbers for each, and the address
    /// after the last one.
    pub(super) fn list_bytes(self, functions: u64) -> u64 {
        (functions * 2 + 1) * self.number_bytes() as u64
    }
}
