//! The bytes of code: pages of a file, or of the memory of a process, with a cache.
//!
//! Memory is bounded. A file that was removed or replaced is not read.

use std::fs::File;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nprof_object::ImageAddress;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::arch::Machine;
use crate::image::cfi::UnwindTables;
use crate::image::elf::Elf;

/// Bytes read at once.
pub(super) const PAGE_BYTES: u64 = 8 << 10;

/// Bytes of memory read at once: the next page may not be mapped.
const MEMORY_PAGE_BYTES: u64 = 4 << 10;

/// The most cached pages; the cache is cleared when it is full.
const PAGES_MAX: usize = 128;

/// The most pages of memory of which the time of reading is known.
const READ_MAX: usize = 1 << 16;

/// The source of the code of an image.
pub enum CodeSource<'a> {
    /// A file.
    File {
        /// Its headers.
        elf: &'a Elf,
        /// Opens the file, or returns it if it is open. None if it was removed or replaced.
        open: &'a dyn Fn() -> Option<Rc<File>>,
        /// Its unwind tables, if it has any.
        tables: Option<&'a mut UnwindTables>,
    },
    /// The memory of a process: image addresses are its addresses.
    Memory {
        /// Reads bytes at an address and returns their number.
        read: &'a dyn Fn(u64, &mut [u8]) -> usize,
        /// The current batch of samples.
        batch: u64,
    },
}

impl CodeSource<'_> {
    /// Returns the architecture of the code. None if that is unknown.
    pub(super) fn machine(&self) -> Option<Machine> {
        match self {
            Self::File { elf, .. } => elf.machine,
            Self::Memory { .. } => Some(Machine::NATIVE),
        }
    }

    /// Returns the architecture of the code if it can be analyzed.
    pub(super) fn analyzed_machine(&self) -> Option<Machine> {
        let is_memory = matches!(self, Self::Memory { .. });
        self.machine().filter(|machine| !is_memory || machine.has_generated_code())
    }

    /// Returns the file offset or address in memory of an image address, and the bytes of code from
    /// there on. None if it is no executable code.
    pub(super) fn place(&self, address: ImageAddress) -> Option<(u64, u64)> {
        match self {
            Self::File { elf, .. } => {
                elf.file_offset(address).map(|(offset, left)| (offset.0, left))
            }
            Self::Memory { .. } => Some((address.0, u64::MAX - address.0)),
        }
    }

    /// True if it is a file of which all code is at most half of the cached pages.
    fn is_small(&self) -> bool {
        let Self::File { elf, .. } = self else { return false };
        elf.code_bytes() <= PAGES_MAX as u64 / 2 * PAGE_BYTES
    }

    /// Returns the number of bytes read at once.
    fn page_bytes(&self) -> u64 {
        match self {
            Self::File { .. } => PAGE_BYTES,
            Self::Memory { .. } => MEMORY_PAGE_BYTES,
        }
    }
}

/// The file of a source: most rules need only cached pages, so it is opened when it is needed.
pub(super) enum SourceFile {
    NotOpened,
    Missing,
    Open(Rc<File>),
}

impl SourceFile {
    /// Returns the file, opened by this function unless it was. None if it is missing.
    pub(super) fn get(&mut self, open: &dyn Fn() -> Option<Rc<File>>) -> Option<&File> {
        if let Self::NotOpened = self {
            *self = open().map_or(Self::Missing, Self::Open);
        }
        match self {
            Self::Open(file) => Some(file),
            _ => None,
        }
    }
}

/// The cached pages.
#[derive(Debug, Default)]
pub(super) struct CodePages {
    /// By file offset, or by address in memory.
    pages: FxHashMap<u64, Box<[u8]>>,
    /// The batch in which a page of memory was read last, and the hash of its bytes.
    read: FxHashMap<u64, (u64, u64)>,
    /// True if a page that was dropped had other bytes when it was read again.
    has_changed: bool,
}

impl CodePages {
    /// Returns the approximate memory.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * PAGE_BYTES as usize
            + self.read.capacity() * size_of::<(u64, (u64, u64), u8)>()
    }

    /// True if the page of a place is cached, or should be: all code of its file is at most half of the cache.
    pub(super) fn keeps(&self, place: u64, source: &CodeSource<'_>) -> bool {
        let page_bytes = source.page_bytes();
        source.is_small() || self.pages.contains_key(&(place / page_bytes * page_bytes))
    }

    /// Returns the bytes from a place to the end of its page; empty if they cannot be read.
    pub(super) fn bytes_from(
        &mut self,
        place: u64,
        source: &CodeSource<'_>,
        file: &mut SourceFile,
    ) -> &[u8] {
        let page_bytes = source.page_bytes();
        let start = place / page_bytes * page_bytes;
        if !self.pages.contains_key(&start) {
            let page = match source {
                CodeSource::File { open, .. } => read_file_page(file, *open, start),
                CodeSource::Memory { read, .. } => read_memory_page(*read, start),
            };
            let Some(page) = page else { return &[] };
            if let CodeSource::Memory { batch, .. } = source {
                let hash = FxBuildHasher.hash_one(&page);
                let before = self.read.insert(start, (*batch, hash));
                self.has_changed |= before.is_some_and(|(_, before)| before != hash);
            }
            if self.pages.len() >= PAGES_MAX {
                self.pages.clear();
            }
            self.pages.insert(start, page);
        }
        self.pages.get(&start).and_then(|page| page.get((place - start) as usize..)).unwrap_or(&[])
    }

    /// Reads the pages of memory with these places again that were read at least `batches` batches
    /// ago. Returns true if one has changed, so that results from before may be wrong.
    pub(super) fn renew(
        &mut self,
        places: RangeInclusive<u64>,
        batches: u64,
        source: &CodeSource<'_>,
    ) -> bool {
        let &CodeSource::Memory { read, batch } = source else { return false };
        let mut has_changed = self.has_changed || self.read.len() >= READ_MAX;
        let pages = places.start() / MEMORY_PAGE_BYTES..=places.end() / MEMORY_PAGE_BYTES;
        for start in pages.map(|page| page * MEMORY_PAGE_BYTES) {
            let Some((read_in, hash)) = self.read.get_mut(&start) else { continue };
            if *read_in + batches > batch {
                continue;
            }
            *read_in = batch;
            // A process that has ended leaves the results of its time.
            let page = read_memory_page(read, start);
            has_changed |= page.is_some_and(|page| FxBuildHasher.hash_one(&page) != *hash);
        }
        has_changed
    }
}

/// Reads the page of a file that starts at an offset.
fn read_file_page(
    file: &mut SourceFile,
    open: &dyn Fn() -> Option<Rc<File>>,
    start: u64,
) -> Option<Box<[u8]>> {
    let file = file.get(open)?;
    let mut page = vec![0; PAGE_BYTES as usize];
    let mut length = 0;
    while length < page.len() {
        match file.read_at(&mut page[length..], start.checked_add(length as u64)?).ok()? {
            0 => break,
            read => length += read,
        }
    }
    page.truncate(length);
    Some(page.into())
}

/// Reads a page of memory. None if it is not present, or may not be read.
fn read_memory_page(read: &dyn Fn(u64, &mut [u8]) -> usize, start: u64) -> Option<Box<[u8]>> {
    let mut page = vec![0; MEMORY_PAGE_BYTES as usize];
    let length = read(start, &mut page);
    page.truncate(length);
    (length > 0).then(|| page.into())
}
