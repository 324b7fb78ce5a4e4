//! A section read in pages, of which the latest are kept: for strings, addresses and entries that
//! are looked at one by one, all over the section.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::error::{DwarfError, Result};
use super::section::Section;

/// A page, bytes.
const PAGE: u64 = 8 << 10;

/// How many pages are kept of one section.
const KEPT: usize = 512;

/// The longest string, bytes.
const STRING: usize = nprof_stream::limits::STRING;

/// A section, and what was read of it lately.
#[derive(Debug)]
pub(crate) struct PagedSection {
    section: Section,
    kept: RefCell<FxHashMap<u64, Rc<[u8]>>>,
}

impl PagedSection {
    /// Nothing is read yet.
    pub(crate) fn new(section: Section) -> Self {
        Self { section, kept: RefCell::default() }
    }

    /// How many bytes the section has.
    pub(crate) fn len(&self) -> u64 {
        self.section.len()
    }

    /// Whether all of it is in memory.
    pub(crate) fn is_held(&self) -> bool {
        self.section.bytes() > 0
    }

    /// How much memory it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.section.bytes() + self.kept.borrow().len() * PAGE as usize
    }

    /// A long part of the section, which is not kept; shorter where the section ends before that.
    pub(crate) fn range(&self, offset: u64, length: u64) -> Result<Cow<'_, [u8]>> {
        Ok(self.section.read(offset, length)?)
    }

    /// A short part of the section; shorter where the section ends before that.
    pub(crate) fn near(&self, offset: u64, length: u64) -> Result<Cow<'_, [u8]>> {
        if let Section::Memory(_) = self.section {
            return self.range(offset, length);
        }
        let end = offset.saturating_add(length).min(self.len());
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
        Ok(Cow::Owned(bytes))
    }

    /// The string at an offset, up to a zero; cut where it is longer than a stream may hold.
    pub(crate) fn string(&self, offset: u64) -> Result<Vec<u8>> {
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
        let mut kept = self.kept.borrow_mut();
        if let Some(page) = kept.get(&number) {
            return Ok(Rc::clone(page));
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let page: Rc<[u8]> = self.section.read(number * PAGE, PAGE)?.into();
        kept.insert(number, Rc::clone(&page));
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_strings_cross_pages() {
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
