//! The code of an image for code analysis: reads its file page by page, and caches the results.
//!
//! Memory is bounded. A file that was removed or replaced is not read.

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

/// Bytes read at once.
const PAGE_BYTES: u64 = 8 << 10;

/// The most cached pages; the cache is cleared when it is full.
const PAGES_MAX: usize = 128;

/// The most cached rules and calls; each cache is cleared when it is full.
const MEMO_MAX: usize = 1 << 16;

/// The approximate size of a rule.
const RULE_BYTES: usize = 256;

/// The longest call instruction that is recognized.
const CALL_MAX_BYTES: usize = 8;

/// The instruction before an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallBefore {
    /// The code cannot be read.
    Unreadable,
    /// No call ends at the address.
    NoCall,
    /// This call ends at the address.
    Call(Call),
}

/// The cached code of an image, and the results of its analysis.
#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    /// By file offset.
    pages: FxHashMap<u64, Box<[u8]>>,
    /// By image address, and true for return addresses.
    analyzed: FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    /// By image address.
    calls: FxHashMap<ImageAddress, CallBefore>,
    /// By the image addresses of the start of a function and of a place in it.
    since_entry: FxHashMap<(ImageAddress, ImageAddress), Option<Rc<UnwindRule>>>,
    /// By image address.
    since_prologues: FxHashMap<ImageAddress, Rc<[UnwindRule]>>,
}

impl CodeCache {
    /// Returns the approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.analyzed.capacity() * size_of::<(u64, bool, AnalyzedRule, u8)>();
        let analyzed = entries + self.analyzed.len() * RULE_BYTES;
        let calls = self.calls.capacity() * size_of::<(u64, CallBefore, u8)>();
        let since_entry = self.since_entry.capacity() * size_of::<(u64, u64, usize, u8)>();
        let rules = self.since_entry.len() + self.since_prologues.len();
        let since_entry = since_entry + rules * RULE_BYTES;
        self.pages.len() * PAGE_BYTES as usize + analyzed + calls + since_entry
    }

    /// Returns the rule that code analysis finds at an address without a table.
    pub(crate) fn analyze(
        &mut self,
        address: ImageAddress,
        is_return: bool,
        source: &mut CodeSource<'_>,
    ) -> AnalyzedRule {
        if let Some(rule) = self.analyzed.get(&(address, is_return)) {
            return rule.clone();
        }
        // Threads start in a function that is called through a pointer and then exit: musl's
        // `start`, the child side of clone.
        let before = is_return.then(|| self.call_before(address, source));
        let reader = &mut self.reader(source);
        let analyzed = match before {
            Some(CallBefore::Call(Call::Indirect))
                if code_analysis::is_thread_exit(reader, address) =>
            {
                AnalyzedRule::ThreadStart
            }
            Some(CallBefore::NoCall) if code_analysis::never_returns(reader, address) => {
                AnalyzedRule::StackBottom
            }
            _ => {
                let rule = code_analysis::rule(reader, address, is_return);
                rule.map_or(AnalyzedRule::Unknown, |rule| AnalyzedRule::Rule(Rc::new(rule)))
            }
        };
        if self.analyzed.len() >= MEMO_MAX {
            self.analyzed.clear();
        }
        self.analyzed.insert((address, is_return), analyzed.clone());
        analyzed
    }

    /// Returns the rule at an address, if the call that ends at `call_end` is of its function.
    pub(crate) fn rule_since_call(
        &mut self,
        call_end: ImageAddress,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> Option<Rc<UnwindRule>> {
        let mut reader = self.reader(source);
        let entry = code_analysis::call_target(&mut reader, call_end)?;
        let key = (entry, address);
        if let Some(rule) = self.since_entry.get(&key) {
            return rule.clone();
        }
        let mut reader = self.reader(source);
        let rule = code_analysis::rule_since_entry(&mut reader, entry, address).map(Rc::new);
        if self.since_entry.len() >= MEMO_MAX {
            self.since_entry.clear();
        }
        self.since_entry.insert(key, rule.clone());
        rule
    }

    /// Returns the rules at an address by the code before it, see
    /// [`code_analysis::rules_since_prologues`].
    pub(crate) fn rules_since_prologues(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> Rc<[UnwindRule]> {
        if let Some(rules) = self.since_prologues.get(&address) {
            return rules.clone();
        }
        let rules = code_analysis::rules_since_prologues(&mut self.reader(source), address);
        let rules: Rc<[UnwindRule]> = rules.into();
        if self.since_prologues.len() >= MEMO_MAX {
            self.since_prologues.clear();
        }
        self.since_prologues.insert(address, rules.clone());
        rules
    }

    /// Returns the call that ends at an address.
    pub(crate) fn call_before(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> CallBefore {
        if let Some(&call) = self.calls.get(&address) {
            return call;
        }
        let call = self.reader(source).call_before(address);
        if self.calls.len() >= MEMO_MAX {
            self.calls.clear();
        }
        self.calls.insert(address, call);
        call
    }

    /// Returns a reader of the code.
    fn reader<'a, 'b>(&'a mut self, source: &'a mut CodeSource<'b>) -> Reader<'a, 'b> {
        let file = SourceFile::NotOpened;
        Reader { pages: &mut self.pages, analyzed: &self.analyzed, file, source }
    }
}

/// The source of the code of an image.
pub(crate) struct CodeSource<'a> {
    pub(crate) elf: &'a Elf,
    /// Opens the file. None if it was removed or replaced.
    pub(crate) open: &'a dyn Fn() -> Option<File>,
    pub(crate) tables: Option<&'a mut UnwindTables>,
}

/// The file of a [`Reader`]: most rules need only cached pages, so it is opened when it is needed.
enum SourceFile {
    NotOpened,
    Missing,
    Open(File),
}

/// Reads the code for one rule.
struct Reader<'a, 'b> {
    pages: &'a mut FxHashMap<u64, Box<[u8]>>,
    analyzed: &'a FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    file: SourceFile,
    source: &'a mut CodeSource<'b>,
}

impl Reader<'_, '_> {
    /// Returns the call that ends at an address.
    fn call_before(&mut self, address: ImageAddress) -> CallBefore {
        // The longest first. At the start of the code there are fewer bytes before the address.
        for length in (2..=CALL_MAX_BYTES).rev() {
            let Some(start) = address.0.checked_sub(length as u64) else { continue };
            let code = self.code(ImageAddress(start));
            let Some(code) = code.bytes[..code.length].get(..length) else { continue };
            return code_analysis::call_before(code).map_or(CallBefore::NoCall, CallBefore::Call);
        }
        if self.is_readable(address.wrapping_sub(1)) {
            CallBefore::NoCall
        } else {
            CallBefore::Unreadable
        }
    }

    /// True if the byte at an address is readable code, or outside of all code.
    fn is_readable(&mut self, address: ImageAddress) -> bool {
        self.source.elf.file_offset(address).is_none() || self.code(address).length > 0
    }

    /// Returns the bytes from a file offset to the end of its page; empty if they cannot be read.
    fn page(&mut self, offset: u64) -> &[u8] {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        if !self.pages.contains_key(&start) {
            let Some(page) = self.read_page(start) else { return &[] };
            if self.pages.len() >= PAGES_MAX {
                self.pages.clear();
            }
            self.pages.insert(start, page);
        }
        self.pages.get(&start).and_then(|page| page.get((offset - start) as usize..)).unwrap_or(&[])
    }

    /// Reads the page that starts at a file offset.
    fn read_page(&mut self, start: u64) -> Option<Box<[u8]>> {
        if let SourceFile::NotOpened = self.file {
            self.file = (self.source.open)().map_or(SourceFile::Missing, SourceFile::Open);
        }
        let SourceFile::Open(file) = &self.file else { return None };
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
}

impl CodeBytes for Reader<'_, '_> {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let mut code = Bytes::default();
        let Some((mut offset, left)) = self.source.elf.file_offset(address) else { return code };
        let wanted = left.min(INSTRUCTION_MAX as u64) as usize;
        // An instruction can span two pages.
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

    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        self.source.tables.as_mut()?.rule(address)
    }

    fn is_go(&self) -> bool {
        self.source.elf.is_go
    }

    fn known(&self, address: ImageAddress) -> Option<AnalyzedRule> {
        let known = |is_return| self.analyzed.get(&(address, is_return));
        known(false).or_else(|| known(true)).cloned()
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

    /// Returns this program and an image address near the border of two pages for which `is` holds,
    /// given the bytes before it and from it on.
    fn own(is: impl Fn(&[u8], &[u8]) -> bool) -> (File, Elf, ImageAddress) {
        let path = std::env::current_exe().expect("a path");
        let bytes = std::fs::read(&path).expect("this program");
        let file = File::open(path).expect("this program");
        let elf = Elf::read(&ReadCache::new(&file)).expect("an ELF file");
        // Near the borders of pages.
        let places = (2 * PAGE_BYTES as usize..bytes.len() - 16).step_by(PAGE_BYTES as usize);
        let near = places.flat_map(|at| at - 4..at + 4);
        let found = near.filter_map(|at| Some((at, elf.image_address(FileOffset(at as u64))?)));
        let mut found = found.filter(|(at, _)| is(&bytes[..*at], &bytes[*at..]));
        let (_, address) = found.next().expect("the program has such an address");
        (file, elf, address)
    }

    #[test]
    fn code_is_read_once_and_only_from_existing_file() {
        let (file, elf, address) = own(|_, after| after[0] == 0xc3);
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            file.try_clone().ok()
        };
        let mut code = CodeCache::default();
        let mut source = CodeSource { elf: &elf, open: &open, tables: None };
        for _ in 0..2 {
            let analyzed = code.analyze(address, false, &mut source);
            let AnalyzedRule::Rule(rule) = analyzed else { panic!("{analyzed:?}") };
            assert_eq!(rule.cfa, Cfa::Register(arch::SP, 8));
        }
        assert_eq!(opened.get(), 1);
        assert!(code.bytes() >= PAGE_BYTES as usize && code.pages.len() <= 2);
        let mut missing = CodeSource { elf: &elf, open: &|| None, tables: None };
        assert_eq!(
            CodeCache::default().analyze(address, false, &mut missing),
            AnalyzedRule::Unknown
        );
        assert_eq!(CodeCache::default().call_before(address, &mut missing), CallBefore::Unreadable);
        assert_eq!(
            code.analyze(ImageAddress(0), true, &mut source),
            AnalyzedRule::Unknown,
            "outside of all code"
        );
    }

    #[test]
    fn call_across_pages_is_recognized() {
        let (file, elf, address) = own(|before, _| before[before.len() - 5] == 0xe8);
        let open = || file.try_clone().ok();
        let mut source = CodeSource { elf: &elf, open: &open, tables: None };
        let mut code = CodeCache::default();
        assert!(matches!(code.call_before(address, &mut source), CallBefore::Call(_)));
        assert!(matches!(code.call_before(address, &mut source), CallBefore::Call(_)));
        assert_eq!(
            code.call_before(ImageAddress(0), &mut source),
            CallBefore::NoCall,
            "outside of all code"
        );
    }
}
