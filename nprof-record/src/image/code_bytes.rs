//! The code of an image for code analysis: reads its file, or the memory of its process, page by
//! page, and caches the results.
//!
//! Memory is bounded. A file that was removed or replaced is not read. A process can change code
//! in its memory, so pages of it are compared from time to time.

use std::fs::File;
use std::hash::BuildHasher;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nprof_object::ImageAddress;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::arch::code_analysis;
use crate::arch::code_bytes::{Bytes, Call, CodeBytes, INSTRUCTION_MAX};
use crate::arch::generated_code;
use crate::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use crate::image::cfi::UnwindTables;
use crate::image::elf::Elf;

/// Bytes read at once.
const PAGE_BYTES: u64 = 8 << 10;

/// Bytes of memory read at once: the next page may not be mapped.
const MEMORY_PAGE_BYTES: u64 = 4 << 10;

/// Batches of samples after which a page of memory is read again. There are ten batches a second or
/// fewer, and reading a page takes some 10 microseconds.
const MEMORY_BATCHES: u64 = 10;

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
    /// By file offset, or by address in memory.
    pages: FxHashMap<u64, Box<[u8]>>,
    /// The batch in which a page of memory was compared last, and the hash of its bytes.
    compared: FxHashMap<u64, (u64, u64)>,
    /// By image address, and true for return addresses.
    analyzed: FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    /// By image address.
    calls: FxHashMap<ImageAddress, CallBefore>,
    /// The frames of generated code, by image address.
    frames: FxHashMap<ImageAddress, GeneratedFrame>,
    /// By the image addresses of the start of a function and of a place in it.
    since_entry: FxHashMap<(ImageAddress, ImageAddress), Option<Rc<UnwindRule>>>,
    /// By image address.
    since_prologues: FxHashMap<ImageAddress, Rc<[UnwindRule]>>,
    /// The number of rules in it: an address may have dozens.
    prologue_rules: usize,
}

impl CodeCache {
    /// Returns the approximate memory.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.analyzed.capacity() * size_of::<(u64, bool, AnalyzedRule, u8)>();
        let analyzed = entries + self.analyzed.len() * RULE_BYTES;
        let calls = self.calls.capacity() * size_of::<(u64, CallBefore, u8)>()
            + self.frames.capacity() * size_of::<(u64, GeneratedFrame, u8)>()
            + self.compared.capacity() * size_of::<(u64, (u64, u64), u8)>();
        let since_entry = self.since_entry.capacity() * size_of::<(u64, u64, usize, u8)>();
        let since_prologues = self.since_prologues.capacity() * size_of::<(u64, Rc<[u8]>, u8)>();
        let rules = self.since_entry.len() + self.prologue_rules;
        let since_entry = since_entry + rules * RULE_BYTES;
        let pages = self.pages.len() * PAGE_BYTES as usize;
        pages + analyzed + calls + since_entry + since_prologues
    }

    /// Returns the rule that code analysis finds at an address without a table.
    pub(crate) fn analyze(
        &mut self,
        address: ImageAddress,
        is_return: bool,
        source: &mut CodeSource<'_>,
    ) -> AnalyzedRule {
        self.compare_memory(address, source);
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
        if self.since_prologues.len() + self.prologue_rules >= MEMO_MAX {
            self.since_prologues.clear();
            self.prologue_rules = 0;
        }
        self.prologue_rules += rules.len();
        self.since_prologues.insert(address, rules.clone());
        rules
    }

    /// Returns the call that ends at an address.
    pub(crate) fn call_before(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> CallBefore {
        self.compare_memory(address, source);
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

    /// Returns the kind of the frames of generated code at an address; of V8 also in its file.
    pub(crate) fn generated_frame(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> GeneratedFrame {
        self.compare_memory(address, source);
        if let Some(&frame) = self.frames.get(&address) {
            return frame;
        }
        let reader = &mut self.reader(source);
        let frame = if reader.is_generated() {
            generated_code::generated_frame(reader, address)
        } else if generated_code::is_in_v8_builtin(reader, address) {
            GeneratedFrame::FramePointer
        } else {
            GeneratedFrame::Unknown
        };
        if self.frames.len() >= MEMO_MAX {
            self.frames.clear();
        }
        self.frames.insert(address, frame);
        frame
    }

    /// Reads the page of memory at an address again, if it was not read for some time, and drops all
    /// that is cached if it has changed.
    fn compare_memory(&mut self, address: ImageAddress, source: &CodeSource<'_>) {
        let &CodeSource::Memory { read, batch } = source else { return };
        let start = address.0 / MEMORY_PAGE_BYTES * MEMORY_PAGE_BYTES;
        let last = self.compared.get(&start).copied();
        if last.is_some_and(|(compared, _)| compared + MEMORY_BATCHES > batch) {
            return;
        }
        // A process that has ended leaves the results of its time.
        let Some(page) = read_memory_page(read, start) else { return };
        let hash = FxBuildHasher.hash_one(&page);
        if last.is_some_and(|(_, old)| old != hash) || self.compared.len() >= MEMO_MAX {
            *self = Self::default();
        }
        if self.pages.len() >= PAGES_MAX {
            self.pages.clear();
        }
        self.pages.insert(start, page);
        self.compared.insert(start, (batch, hash));
    }

    /// Returns a reader of the code.
    fn reader<'a, 'b>(&'a mut self, source: &'a mut CodeSource<'b>) -> Reader<'a, 'b> {
        let file = SourceFile::NotOpened;
        Reader { pages: &mut self.pages, analyzed: &self.analyzed, file, source }
    }
}

/// The source of the code of an image.
pub(crate) enum CodeSource<'a> {
    File {
        elf: &'a Elf,
        /// Opens the file. None if it was removed or replaced.
        open: &'a dyn Fn() -> Option<File>,
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
    /// Returns the file offset or address in memory of an image address, and the bytes of code from
    /// there on. None if it is no executable code.
    fn place(&self, address: ImageAddress) -> Option<(u64, u64)> {
        match self {
            Self::File { elf, .. } => {
                elf.file_offset(address).map(|(offset, left)| (offset.0, left))
            }
            Self::Memory { .. } => Some((address.0, u64::MAX - address.0)),
        }
    }

    /// Returns the number of bytes read at once.
    fn page_bytes(&self) -> u64 {
        match self {
            Self::File { .. } => PAGE_BYTES,
            Self::Memory { .. } => MEMORY_PAGE_BYTES,
        }
    }
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
            let call = code_analysis::call_before(code);
            return match call {
                Some(call) => CallBefore::Call(call),
                None if self.is_generated() && self.is_interpreter_return(address) => {
                    CallBefore::Call(Call::Indirect)
                }
                None => CallBefore::NoCall,
            };
        }
        if self.is_readable(address.wrapping_sub(1)) {
            CallBefore::NoCall
        } else {
            CallBefore::Unreadable
        }
    }

    /// True if methods return to an address of the interpreter without a call before it.
    fn is_interpreter_return(&mut self, address: ImageAddress) -> bool {
        let code = self.code(address);
        generated_code::is_interpreter_return(&code.bytes[..code.length])
    }

    /// True if the byte at an address is readable code, or outside of all code.
    fn is_readable(&mut self, address: ImageAddress) -> bool {
        self.source.place(address).is_none() || self.code(address).length > 0
    }

    /// Returns the bytes from a file offset to the end of its page; empty if they cannot be read.
    fn page(&mut self, offset: u64) -> &[u8] {
        let page_bytes = self.source.page_bytes();
        let start = offset / page_bytes * page_bytes;
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
        let open = match &self.source {
            CodeSource::File { open, .. } => open,
            CodeSource::Memory { read, .. } => return read_memory_page(*read, start),
        };
        if let SourceFile::NotOpened = self.file {
            self.file = open().map_or(SourceFile::Missing, SourceFile::Open);
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

/// Reads a page of memory. None if it is not present, or may not be read.
fn read_memory_page(read: &dyn Fn(u64, &mut [u8]) -> usize, start: u64) -> Option<Box<[u8]>> {
    let mut page = vec![0; MEMORY_PAGE_BYTES as usize];
    let length = read(start, &mut page);
    page.truncate(length);
    (length > 0).then(|| page.into())
}

impl CodeBytes for Reader<'_, '_> {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let mut code = Bytes::default();
        let Some((mut offset, left)) = self.source.place(address) else { return code };
        let wanted = left.min(INSTRUCTION_MAX as u64) as usize;
        // An instruction can span two pages.
        while code.length < wanted {
            let page = self.page(offset);
            let length = page.len().min(wanted - code.length);
            if length == 0 {
                break;
            }
            code.bytes[code.length..code.length + length].copy_from_slice(&page[..length]);
            code.length += length;
            offset = offset.saturating_add(length as u64);
        }
        code
    }

    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        match &mut self.source {
            CodeSource::File { tables, .. } => tables.as_mut()?.rule(address),
            CodeSource::Memory { .. } => None,
        }
    }

    fn keeps_frame_pointer_only(&self) -> bool {
        match &self.source {
            CodeSource::File { elf, .. } => elf.is_go,
            CodeSource::Memory { .. } => true,
        }
    }

    fn is_generated(&self) -> bool {
        matches!(self.source, CodeSource::Memory { .. })
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
        let mut source = CodeSource::File { elf: &elf, open: &open, tables: None };
        for _ in 0..2 {
            let analyzed = code.analyze(address, false, &mut source);
            let AnalyzedRule::Rule(rule) = analyzed else { panic!("{analyzed:?}") };
            assert_eq!(rule.cfa, Cfa::Register(arch::SP, 8));
        }
        assert_eq!(opened.get(), 1);
        assert!(code.bytes() >= PAGE_BYTES as usize && code.pages.len() <= 2);
        let mut missing = CodeSource::File { elf: &elf, open: &|| None, tables: None };
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

    /// sub $8,%rsp; call *%rcx; add $8,%rsp; ret: the trampoline of CPython for perf.
    const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];

    #[test]
    fn stub_in_memory_is_analyzed_again_after_a_change() {
        let memory = Cell::new((16, 1));
        let read = |address: u64, bytes: &mut [u8]| {
            let (size, present) = memory.get();
            let mut stub = TRAMPOLINE;
            (stub[3], stub[9]) = (size, size);
            bytes[..stub.len()].copy_from_slice(&stub);
            if address == 0x7000 { present * bytes.len() } else { 0 }
        };
        let mut code = CodeCache::default();
        let mut at = |batch| {
            let mut source = CodeSource::Memory { read: &read, batch };
            match code.analyze(ImageAddress(0x7006), true, &mut source) {
                AnalyzedRule::Rule(rule) => Some(rule.cfa.clone()),
                _ => None,
            }
        };
        assert_eq!(at(0), Some(Cfa::Register(arch::SP, 24)));
        memory.set((32, 1));
        assert_eq!(at(1), Some(Cfa::Register(arch::SP, 24)), "not read again yet");
        assert_eq!(at(MEMORY_BATCHES), Some(Cfa::Register(arch::SP, 40)));
        memory.set((48, 0));
        assert_eq!(at(5 * MEMORY_BATCHES), Some(Cfa::Register(arch::SP, 40)), "it has ended");
    }

    #[test]
    fn each_rule_of_an_address_counts_as_memory() {
        const START: u64 = 0x7000;
        let goal = START + 8 * 16;
        let read = |address: u64, bytes: &mut [u8]| {
            if address != START {
                return 0;
            }
            bytes.fill(0xcc);
            for block in 0..8 {
                // push %rax; jmp goal
                let at = block * 16;
                let distance = (goal - (START + at as u64 + 6)) as u32;
                bytes[at..at + 2].copy_from_slice(&[0x50, 0xe9]);
                bytes[at + 2..at + 6].copy_from_slice(&distance.to_le_bytes());
            }
            bytes.len()
        };
        let mut code = CodeCache::default();
        let mut source = CodeSource::Memory { read: &read, batch: 0 };
        let rules = code.rules_since_prologues(ImageAddress(goal), &mut source);
        assert_eq!(rules.len(), 8);
        let pages = code.pages.len() * PAGE_BYTES as usize;
        assert!(code.bytes() >= pages + rules.len() * RULE_BYTES, "{}", code.bytes());
    }

    #[test]
    fn call_across_pages_is_recognized() {
        let (file, elf, address) = own(|before, _| before[before.len() - 5] == 0xe8);
        let open = || file.try_clone().ok();
        let mut source = CodeSource::File { elf: &elf, open: &open, tables: None };
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
