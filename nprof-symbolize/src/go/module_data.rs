//! The module data of a Go program (`runtime.moduledata`): the addresses that its table lacks. Pure
//! over bytes.
//!
//! It is the only structure that begins with the address of the table, followed by that of its
//! names. PIE that another linker linked (cgo) has its addresses in relocations instead.

use memchr::memmem;
use nprof_object::{ImageAddress, Segments};

use super::header::{Header, SearchRoom};
use crate::dwarf::Section;
use crate::elf::headers::Headers;

/// The bytes of a file that are searched at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// The number of words of the module data that are read. `gofunc` is word 38 in Go 1.18, 40 from
/// Go 1.20 on, and 43 in Go 1.27.
pub(super) const WORDS: usize = 48;

/// The words of the module data.
#[derive(Debug)]
pub(super) struct ModuleData(pub(super) [u64; WORDS]);

/// The word with the start of the text (`text`), the same in all versions since Go 1.18.
const TEXT: usize = 22;

/// The word with the address of the names (`funcnametab`).
const NAMES: usize = 1;

/// The size of an entry of `.rela.dyn` in bytes: place, type and symbol, addend.
const RELOCATION_BYTES: u64 = 24;

/// The most bytes of relocations that are read.
const MAX_RELOCATIONS_BYTES: u64 = 256 << 20;

/// The most relocations to the table that are compared with the module data. A linked program has
/// one or two.
const MAX_PLACES: usize = 16;

impl ModuleData {
    /// Finds the module data that refers to a table at `table`. None if there is none.
    pub(super) fn find(
        file: &Section,
        headers: &Headers,
        header: &Header,
        table: ImageAddress,
        room: &mut SearchRoom,
    ) -> Option<Self> {
        let names = table.checked_add(header.names)?;
        let in_place = find_in_place(file, &headers.segments, table, names, room);
        in_place.or_else(|| find_in_relocations(file, headers, table, names, room))
    }

    /// Returns the address of the text.
    pub(super) fn text(&self) -> u64 {
        self.0[TEXT]
    }
}

/// Finds the module data in the bytes of the file.
fn find_in_place(
    file: &Section,
    segments: &Segments,
    table: ImageAddress,
    names: ImageAddress,
    room: &mut SearchRoom,
) -> Option<ModuleData> {
    let start = table.0.to_le_bytes();
    let finder = memmem::Finder::new(&start);
    // Variables are never in code.
    for segment in segments.iter().filter(|segment| !segment.executable) {
        let end = segment.offset.0.saturating_add(segment.size).min(file.len());
        let mut at = segment.offset.0;
        while at < end {
            let length = (end - at).min(CHUNK_BYTES + 8);
            room.take(length)?;
            let chunk = file.read(at, length).ok()?;
            for found in finder.find_iter(&chunk) {
                let place = at + found as u64;
                let words = read_words(file, place, end);
                if place.is_multiple_of(8) && words[NAMES] == names.0 {
                    return Some(ModuleData(words));
                }
            }
            at += CHUNK_BYTES;
        }
    }
    None
}

fn read_words(file: &Section, place: u64, end: u64) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let bytes = file.read(place, (end - place).min(WORDS as u64 * 8)).unwrap_or_default();
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Finds the module data in the relocations that fill in its addresses.
fn find_in_relocations(
    file: &Section,
    headers: &Headers,
    table: ImageAddress,
    names: ImageAddress,
    room: &mut SearchRoom,
) -> Option<ModuleData> {
    let mut places = Vec::new();
    each_relocation(file, headers, room, |place, value| {
        if value == table.0 && places.len() < MAX_PLACES {
            places.push(place);
        }
    });
    for start in places {
        let mut words = [0; WORDS];
        each_relocation(file, headers, room, |place, value| {
            let at = place.wrapping_sub(start) / 8;
            if let Some(word) = usize::try_from(at).ok().and_then(|at| words.get_mut(at)) {
                *word = value;
            }
        });
        if words[NAMES] == names.0 {
            return Some(ModuleData(words));
        }
    }
    None
}

/// Calls `each` with the place and the value of every relocation that adds the load address only, as
/// long as there is room.
fn each_relocation(
    file: &Section,
    headers: &Headers,
    room: &mut SearchRoom,
    mut each: impl FnMut(u64, u64),
) {
    // R_X86_64_RELATIVE and R_AARCH64_RELATIVE.
    let relative = if headers.machine == object::elf::EM_AARCH64.0 { 1027 } else { 8 };
    let tables = headers.sections.iter().filter(|s| s.kind == object::elf::SHT_RELA.0);
    let mut left = MAX_RELOCATIONS_BYTES;
    for table in tables.filter(|table| table.address != 0) {
        let Some(offset) = table.offset else { continue };
        let bytes = table.size.min(left);
        left -= bytes;
        let mut done = 0;
        while done < bytes {
            let length = (bytes - done).min(CHUNK_BYTES / RELOCATION_BYTES * RELOCATION_BYTES);
            if room.take(length).is_none() {
                return;
            }
            let Ok(chunk) = file.read(offset.saturating_add(done), length) else { break };
            let (words, _) = chunk.as_chunks::<8>();
            for entry in words.chunks_exact(3) {
                let [place, kind, value] = [0, 1, 2].map(|index| u64::from_le_bytes(entry[index]));
                if kind == relative {
                    each(place, value);
                }
            }
            done += length;
        }
    }
}
