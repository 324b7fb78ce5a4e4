//! The code of an image, read from its file page by page where rules are found by following it,
//! and what was found. What is kept is bounded; a file that is gone or was replaced is not read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nprof_object::ImageAddress;
use rustc_hash::FxHashMap;

use crate::arch::code_analysis;
use crate::arch::code_bytes::{Bytes, Call, CodeBytes, INSTRUCTION_MAX};
use crate::arch::rule::AnalyzedRule;
use crate::arch::rule::UnwindRule;
use crate::image::cfi::UnwindTables;
use crate::image::elf::Elf;

/// Bytes read at once, and how many such pages are kept; beyond that all are forgotten.
const PAGE: u64 = 8 << 10;
const PAGES_MAX: usize = 128;

/// Places whose rule is remembered; beyond that all are forgotten.
const MEMO_MAX: usize = 1 << 16;

/// What a rule takes, bytes, about.
const ROW_BYTES: usize = 256;

/// The longest call, bytes.
const CALL_MAX: usize = 8;

/// What is kept of an image's code.
#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    /// By file offset.
    pages: FxHashMap<u64, Box<[u8]>>,
    /// By image address, and whether it is returned to.
    followed: FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    /// The calls that end at image addresses; `None` outside where the code cannot be read.
    calls: FxHashMap<ImageAddress, Option<Option<Call>>>,
}

impl CodeCache {
    /// What it takes, bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let followed = self.followed.capacity() * size_of::<(u64, bool, AnalyzedRule, u8)>();
        let rows = followed + self.followed.len() * ROW_BYTES;
        let calls = self.calls.capacity() * size_of::<(u64, Option<Option<Call>>, u8)>();
        self.pages.len() * PAGE as usize + rows + calls
    }

    /// What the code at an address says of its caller, where no table does.
    pub(crate) fn analyze(
        &mut self,
        address: ImageAddress,
        returns: bool,
        source: &mut CodeSource<'_>,
    ) -> AnalyzedRule {
        if let Some(followed) = self.followed.get(&(address, returns)) {
            return followed.clone();
        }
        let is_start = returns && self.call_before(address, source) == Some(Some(Call::Indirect));
        let mut reader = self.reader(source);
        let followed = if is_start && code_analysis::is_thread_exit(&mut reader, address) {
            AnalyzedRule::ThreadStart
        } else {
            let row = code_analysis::rule(&mut reader, address, returns);
            row.map_or(AnalyzedRule::Unknown, |row| AnalyzedRule::Rule(Rc::new(row)))
        };
        if self.followed.len() >= MEMO_MAX {
            self.followed.clear();
        }
        self.followed.insert((address, returns), followed.clone());
        followed
    }

    /// The call that ends at an address, if one does; `None` outside where the code cannot be read.
    pub(crate) fn call_before(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> Option<Option<Call>> {
        if let Some(call) = self.calls.get(&address) {
            return *call;
        }
        let mut reader = self.reader(source);
        // Near the start of the code less than the longest stands before it.
        let call = (2..=CALL_MAX).rev().find_map(|length| {
            let code = reader.code(ImageAddress(address.0.checked_sub(length as u64)?));
            let code = code.bytes.get(..code.length)?.get(..length)?;
            Some(code_analysis::call_before(code))
        });
        let is_read = call.is_some() || reader.is_read(address.wrapping_sub(1));
        if self.calls.len() >= MEMO_MAX {
            self.calls.clear();
        }
        *self.calls.entry(address).or_insert(is_read.then_some(call.flatten()))
    }

    fn reader<'a, 'b>(&'a mut self, source: &'a mut CodeSource<'b>) -> Reader<'a, 'b> {
        Reader { pages: &mut self.pages, followed: &self.followed, file: None, source }
    }
}

/// Where the code of an image comes from.
pub(crate) struct CodeSource<'a> {
    pub(crate) elf: &'a Elf,
    /// Opens its file, if it is still there.
    pub(crate) open: &'a dyn Fn() -> Option<File>,
    pub(crate) cfi: Option<&'a mut UnwindTables>,
}

/// Reads code for one rule.
struct Reader<'a, 'b> {
    pages: &'a mut FxHashMap<u64, Box<[u8]>>,
    followed: &'a FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    /// Opened when it is first needed; `None` inside when it cannot be.
    file: Option<Option<File>>,
    source: &'a mut CodeSource<'b>,
}

impl Reader<'_, '_> {
    /// Whether what stands at an address is known, be it no code.
    fn is_read(&mut self, address: ImageAddress) -> bool {
        self.source.elf.file_offset(address).is_none() || self.code(address).length > 0
    }

    /// What stands at a file offset, up to the end of its page.
    fn page(&mut self, offset: u64) -> &[u8] {
        let start = offset / PAGE * PAGE;
        if !self.pages.contains_key(&start) {
            let file = self.file.get_or_insert_with(self.source.open);
            let Some(page) = file.as_ref().and_then(|file| read_page(file, start)) else {
                return &[];
            };
            if self.pages.len() >= PAGES_MAX {
                self.pages.clear();
            }
            self.pages.insert(start, page);
        }
        self.pages.get(&start).and_then(|page| page.get((offset - start) as usize..)).unwrap_or(&[])
    }
}

fn read_page(file: &File, start: u64) -> Option<Box<[u8]>> {
    let mut page = vec![0; PAGE as usize];
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

impl CodeBytes for Reader<'_, '_> {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let mut code = Bytes::default();
        let Some((mut offset, left)) = self.source.elf.file_offset(address) else { return code };
        let wanted = left.min(INSTRUCTION_MAX as u64) as usize;
        while code.length < wanted {
            let page = self.page(offset.0);
            let length = page.len().min(wanted - code.length);
            if length == 0 {
                break;
            }
            code.bytes[code.length..code.length + length].copy_from_slice(&page[..length]);
            code.length += length;
            offset = offset.wrapping_add(length as u64);
        }
        code
    }

    fn row(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        self.source.cfi.as_mut()?.row(address)
    }

    fn known(&self, address: ImageAddress) -> Option<AnalyzedRule> {
        let followed = |returns| self.followed.get(&(address, returns));
        followed(false).or_else(|| followed(true)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::arch::rule::Cfa;
    use nprof_object::FileOffset;
    use object::ReadCache;
    use std::cell::Cell;

    /// This program, and the image address of a place in its code that `is` so, given what stands
    /// before it and from it on.
    fn own(is: impl Fn(&[u8], &[u8]) -> bool) -> (File, Elf, ImageAddress) {
        let path = std::env::current_exe().expect("a path");
        let bytes = std::fs::read(&path).expect("this program");
        let file = File::open(path).expect("this program");
        let elf = Elf::read(&ReadCache::new(&file)).expect("an ELF file");
        // Where pages meet.
        let places = (2 * PAGE as usize..bytes.len() - 16).step_by(PAGE as usize);
        let near = places.flat_map(|at| at - 4..at + 4);
        let found = near.filter_map(|at| Some((at, elf.image_address(FileOffset(at as u64))?)));
        let mut found = found.filter(|(at, _)| is(&bytes[..*at], &bytes[*at..]));
        let (_, address) = found.next().expect("there is such a place");
        (file, elf, address)
    }

    #[test]
    fn code_is_read_once_and_only_if_the_file_is_there() {
        let (file, elf, address) = own(|_, behind| behind[0] == 0xc3);
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            file.try_clone().ok()
        };
        let mut text = CodeCache::default();
        let mut source = CodeSource { elf: &elf, open: &open, cfi: None };
        for _ in 0..2 {
            let followed = text.analyze(address, false, &mut source);
            let AnalyzedRule::Rule(row) = followed else { panic!("{followed:?}") };
            assert_eq!(row.cfa, Cfa::Register(arch::SP, 8));
        }
        assert_eq!(opened.get(), 1);
        assert!(text.bytes() >= PAGE as usize && text.pages.len() <= 2);
        let mut gone = CodeSource { elf: &elf, open: &|| None, cfi: None };
        assert_eq!(CodeCache::default().analyze(address, false, &mut gone), AnalyzedRule::Unknown);
        assert_eq!(CodeCache::default().call_before(address, &mut gone), None);
        assert_eq!(
            text.analyze(ImageAddress(0), true, &mut source),
            AnalyzedRule::Unknown,
            "no code is there"
        );
    }

    #[test]
    fn a_call_is_seen_across_pages() {
        let (file, elf, address) = own(|before, _| before[before.len() - 5] == 0xe8);
        let open = || file.try_clone().ok();
        let mut source = CodeSource { elf: &elf, open: &open, cfi: None };
        let mut text = CodeCache::default();
        assert!(text.call_before(address, &mut source).flatten().is_some());
        assert!(text.call_before(address, &mut source).flatten().is_some());
        assert_eq!(text.call_before(ImageAddress(0), &mut source), Some(None), "no code is there");
    }
}
