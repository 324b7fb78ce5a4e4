//! A section read in pages: for strings, addresses and entries that are read one by one from all
//! over the section. The latest pages and the latest long part are kept.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::error::{DwarfError, Result};
use super::section::Section;

/// The size of a page in bytes.
const PAGE: u64 = 8 << 10;

/// The largest number of pages kept of one section: 2 MiB.
const KEPT_PAGES: usize = 256;

/// The longest part of a section that is kept, in bytes: the entries of one unit. C++ units of
/// templates have up to 7 MB.
const KEPT_PART: u64 = 8 << 20;

/// The longest string in bytes.
const STRING: usize = nprof_stream::limits::STRING;

/// Bytes of a section.
pub(crate) enum Bytes<'a> {
    /// Bytes of a section in memory.
    Borrowed(&'a [u8]),
    /// Bytes of a page that is kept.
    Page(Rc<[u8]>, Range<usize>),
    /// Bytes of the long part that is kept.
    Part(Rc<Vec<u8>>, Range<usize>),
    /// Bytes that were copied or read for the caller.
    Owned(Vec<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Page(page, range) => &page[range.clone()],
            Self::Part(part, range) => &part[range.clone()],
            Self::Owned(bytes) => bytes,
        }
    }
}

impl<'a> From<Cow<'a, [u8]>> for Bytes<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        match bytes {
            Cow::Borrowed(bytes) => Self::Borrowed(bytes),
            Cow::Owned(bytes) => Self::Owned(bytes),
        }
    }
}

/// A long part of the section.
#[derive(Debug)]
struct Part {
    start: u64,
    bytes: Rc<Vec<u8>>,
}

/// A section with the bytes that were read of it last.
#[derive(Debug)]
pub(crate) struct PagedSection {
    section: Section,
    pages: RefCell<FxHashMap<u64, Rc<[u8]>>>,
    part: RefCell<Option<Part>>,
}

impl PagedSection {
    /// Wraps a section; reads nothing.
    pub(crate) fn new(section: Section) -> Self {
        Self { section, pages: RefCell::default(), part: RefCell::default() }
    }

    /// Returns the size of the section in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.section.len()
    }

    /// True if all of it is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.section.bytes() > 0
    }

    /// Returns the memory that the section takes, if it is in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.section.bytes()
    }

    /// Returns the memory that the bytes take that are kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        let part = self.part.borrow().as_ref().map_or(0, |part| part.bytes.capacity());
        self.pages.borrow().len() * (PAGE as usize + 32) + part
    }

    /// Reads a part of the section; shorter where the section ends before it does.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn range(&self, offset: u64, length: u64) -> Result<Bytes<'_>> {
        if let Some(kept) = self.kept_part(offset, length) {
            return Ok(kept);
        }
        Ok(self.section.read(offset, length)?.into())
    }

    /// Reads a long part of the section, and keeps it for reads inside of it that follow: the
    /// functions of a unit are read one by one after the walk over the whole unit.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn keep(&self, offset: u64, length: u64) -> Result<Bytes<'_>> {
        if let Some(kept) = self.kept_part(offset, length) {
            return Ok(kept);
        }
        // The part before goes first, so that there are never two in memory.
        *self.part.borrow_mut() = None;
        match self.section.read(offset, length)? {
            Cow::Owned(bytes) if length <= KEPT_PART => {
                let bytes = Rc::new(bytes);
                *self.part.borrow_mut() = Some(Part { start: offset, bytes: Rc::clone(&bytes) });
                let range = 0..bytes.len();
                Ok(Bytes::Part(bytes, range))
            }
            bytes => Ok(bytes.into()),
        }
    }

    /// Drops the bytes that are kept.
    pub(crate) fn drop_kept(&self) {
        self.pages.borrow_mut().clear();
        *self.part.borrow_mut() = None;
    }

    /// The bytes of a range, if the part that is kept has all of them.
    fn kept_part(&self, offset: u64, length: u64) -> Option<Bytes<'_>> {
        let part = self.part.borrow();
        let part = part.as_ref()?;
        let start = usize::try_from(offset.checked_sub(part.start)?).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= part.bytes.len()).then(|| Bytes::Part(Rc::clone(&part.bytes), start..end))
    }

    /// Reads a short part of the section, by pages that are kept; shorter where the section ends
    /// before it does.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn near(&self, offset: u64, length: u64) -> Result<Bytes<'_>> {
        // Pages would copy them.
        if let Section::Memory(_) = self.section {
            return Ok(self.section.read(offset, length)?.into());
        }
        if let Some(kept) = self.kept_part(offset, length) {
            return Ok(kept);
        }
        let end = offset.saturating_add(length).min(self.len());
        if offset < end && offset / PAGE == (end - 1) / PAGE {
            let page = self.page(offset / PAGE)?;
            let start = ((offset % PAGE) as usize).min(page.len());
            let end = (start + (end - offset) as usize).min(page.len());
            return Ok(Bytes::Page(page, start..end));
        }
        self.across_pages(offset, end)
    }

    fn across_pages(&self, offset: u64, end: u64) -> Result<Bytes<'_>> {
        let mut bytes = Vec::with_capacity(end.saturating_sub(offset) as usize);
        let mut at = offset;
        while at < end {
            let page = self.page(at / PAGE)?;
            let skip = (at % PAGE) as usize;
            let part = page.get(skip..).unwrap_or_default();
            let part = &part[..part.len().min((end - at) as usize)];
            if part.is_empty() {
                break;
            }
            bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(Bytes::Owned(bytes))
    }

    /// Reads the string at an offset, up to its zero; cuts it at the longest string of a stream.
    ///
    /// # Errors
    ///
    /// When it has no end, or the file cannot be read.
    pub(crate) fn string(&self, offset: u64) -> Result<Vec<u8>> {
        // Most names are shorter; mangled ones of templates have kilobytes.
        let mut length = 128;
        loop {
            let bytes = self.near(offset, length)?;
            if let Some(end) = memchr::memchr(0, &bytes) {
                return Ok(bytes[..end].to_vec());
            }
            if (bytes.len() as u64) < length {
                return Err(DwarfError::Malformed(gimli::Error::UnexpectedEof(
                    gimli::ReaderOffsetId(offset),
                )));
            }
            if bytes.len() >= STRING {
                return Ok(bytes[..STRING].to_vec());
            }
            length = (length * 8).min(STRING as u64);
        }
    }

    fn page(&self, number: u64) -> Result<Rc<[u8]>> {
        let mut pages = self.pages.borrow_mut();
        if let Some(page) = pages.get(&number) {
            return Ok(Rc::clone(page));
        }
        // Simpler than tracking the oldest page; each one is read again at most once.
        if pages.len() >= KEPT_PAGES {
            pages.clear();
        }
        let page: Rc<[u8]> = (&*self.section.read(number * PAGE, PAGE)?).into();
        pages.insert(number, Rc::clone(&page));
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_parts_and_strings_across_pages() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut contents: Vec<u8> = (0..3 * PAGE).map(|i| 1 + (i % 251) as u8).collect();
        contents[PAGE as usize + 3] = 0;
        std::fs::write(&path, &contents).unwrap();
        let file = Rc::new(std::fs::File::open(&path).unwrap());
        let size = contents.len() as u64;
        let in_file = PagedSection::new(Section::File { file, start: 0, size });
        let in_memory = PagedSection::new(Section::Memory(contents.clone().into()));
        for pages in [in_file, in_memory] {
            let at = PAGE as usize - 5;
            assert_eq!(&*pages.near(at as u64, 20).unwrap(), &contents[at..at + 20]);
            assert_eq!(pages.string(at as u64).unwrap(), &contents[at..at + 8]);
            assert_eq!(pages.near(size - 2, 20).unwrap().len(), 2);
            assert_eq!(pages.near(size + 2, 20).unwrap().len(), 0);
            assert!(pages.string(PAGE * 2).is_err());
            assert!(pages.string(u64::MAX).is_err());
        }
    }
}
