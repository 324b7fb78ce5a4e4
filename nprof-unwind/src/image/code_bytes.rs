//! The code of an image for code analysis, with a cache of the results.
//!
//! Memory is bounded. A process can change code in its memory, so that the results there are dropped
//! when its pages have changed.

use std::os::unix::fs::FileExt;
use std::rc::Rc;

use nprof_object::ImageAddress;
use rustc_hash::FxHashMap;

use crate::arch::Machine;
use crate::arch::code_bytes::{Bytes, Call, CodeBytes, INSTRUCTION_MAX};
use crate::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use crate::arch::x86_64::code_analysis;
use crate::arch::x86_64::generated_code;
use crate::image::code_pages::{CodePages, CodeSource, SourceFile};

/// The most cached rules and calls; each cache is cleared when it is full.
const MEMO_MAX: usize = 1 << 16;

/// The approximate size of a rule.
const RULE_BYTES: usize = 256;

/// Batches of samples after which a page of memory is read again. There are ten batches a second or
/// fewer, and reading a page takes some 10 microseconds.
const MEMORY_BATCHES: u64 = 10;

/// The distance from an address to the code that its analysis may read, unless that follows a jump.
const NEAR_BYTES: u64 = 16 << 10;

/// The instruction before an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBefore {
    /// The code cannot be read.
    Unreadable,
    /// No call ends at the address.
    NoCall,
    /// This call ends at the address.
    Call(Call),
}

/// The cached code of an image, and the results of its analysis.
#[derive(Debug, Default)]
pub struct CodeCache {
    pages: CodePages,
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
    pub fn bytes(&self) -> usize {
        let entries = self.analyzed.capacity() * size_of::<(u64, bool, AnalyzedRule, u8)>();
        let analyzed = entries + self.analyzed.len() * RULE_BYTES;
        let calls = self.calls.capacity() * size_of::<(u64, CallBefore, u8)>()
            + self.frames.capacity() * size_of::<(u64, GeneratedFrame, u8)>();
        let since_entry = self.since_entry.capacity() * size_of::<(u64, u64, usize, u8)>();
        let since_prologues = self.since_prologues.capacity() * size_of::<(u64, Rc<[u8]>, u8)>();
        let rules = self.since_entry.len() + self.prologue_rules;
        let since_entry = since_entry + rules * RULE_BYTES;
        self.pages.bytes() + analyzed + calls + since_entry + since_prologues
    }

    /// Returns the rule that code analysis finds at an address without a table.
    pub fn analyze(
        &mut self,
        address: ImageAddress,
        is_return: bool,
        source: &mut CodeSource<'_>,
    ) -> AnalyzedRule {
        let Some(machine) = source.analyzed_machine() else { return AnalyzedRule::Unknown };
        self.renew(address, source);
        if let Some(rule) = self.analyzed.get(&(address, is_return)) {
            return rule.clone();
        }
        // Threads start in a function that is called through a pointer and then exit: musl's
        // `start`, the child side of clone.
        let before = is_return.then(|| self.call_before(address, source));
        let reader = &mut self.reader(source);
        let analyzed = match before {
            Some(CallBefore::Call(Call::Indirect)) if machine.is_thread_exit(reader, address) => {
                AnalyzedRule::ThreadStart
            }
            Some(CallBefore::NoCall) if machine.never_returns(reader, address) => {
                AnalyzedRule::StackBottom
            }
            _ => {
                let rule = machine.rule(reader, address, is_return);
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
    pub fn rule_since_call(
        &mut self,
        call_end: ImageAddress,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> Option<Rc<UnwindRule>> {
        if source.analyzed_machine() != Some(Machine::X86_64) {
            return None;
        }
        let entry = code_analysis::call_target(&mut self.reader(source), call_end)?;
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
    /// `Machine::rules_since_prologues`.
    pub fn rules_since_prologues(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> Rc<[UnwindRule]> {
        let Some(machine) = source.analyzed_machine() else { return Rc::default() };
        if let Some(rules) = self.since_prologues.get(&address) {
            return rules.clone();
        }
        let rules = machine.rules_since_prologues(&mut self.reader(source), address);
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
    pub fn call_before(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> CallBefore {
        self.renew(address, source);
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
    pub fn generated_frame(
        &mut self,
        address: ImageAddress,
        source: &mut CodeSource<'_>,
    ) -> GeneratedFrame {
        if !source.machine().is_some_and(Machine::has_generated_code) {
            return GeneratedFrame::Unknown;
        }
        self.renew(address, source);
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

    /// Reads the page of memory at an address again if that was not done for some time.
    fn renew(&mut self, address: ImageAddress, source: &CodeSource<'_>) {
        if self.pages.renew(address.0..=address.0, MEMORY_BATCHES, source) {
            *self = Self::default();
        }
    }

    /// Returns true if the memory near an address has changed since it was read in an earlier batch.
    /// The results from before are then dropped.
    pub fn has_changed(&mut self, address: ImageAddress, source: &CodeSource<'_>) -> bool {
        let first = address.0.saturating_sub(NEAR_BYTES);
        let has_changed = self.pages.renew(first..=address.0.saturating_add(NEAR_BYTES), 1, source);
        if has_changed {
            *self = Self::default();
        }
        has_changed
    }

    /// Returns a reader of the code.
    fn reader<'a, 'b>(&'a mut self, source: &'a mut CodeSource<'b>) -> Reader<'a, 'b> {
        let file = SourceFile::NotOpened;
        Reader { pages: &mut self.pages, analyzed: &self.analyzed, file, source }
    }
}

/// Reads the code for one rule.
struct Reader<'a, 'b> {
    pages: &'a mut CodePages,
    analyzed: &'a FxHashMap<(ImageAddress, bool), AnalyzedRule>,
    file: SourceFile,
    source: &'a mut CodeSource<'b>,
}

impl Reader<'_, '_> {
    /// Returns the call that ends at an address.
    fn call_before(&mut self, address: ImageAddress) -> CallBefore {
        let Some(machine) = self.source.machine() else { return CallBefore::Unreadable };
        // The longest first. At the start of the code there are fewer bytes before the address.
        for length in machine.call_lengths() {
            let Some(start) = address.0.checked_sub(length as u64) else { continue };
            let code = self.code_of(ImageAddress(start), length);
            let Some(code) = code.bytes[..code.length].get(..length) else { continue };
            let call = machine.call_before(code);
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

    /// Returns `length` bytes of code, or more. Of a large program it reads no more where the page is not
    /// cached: its return addresses are on many pages, and each is looked up once.
    fn code_of(&mut self, address: ImageAddress, length: usize) -> Bytes {
        if let Some((offset, left)) = self.source.place(address)
            && left >= length as u64
            && !self.pages.keeps(offset, self.source)
            && let CodeSource::File { open, .. } = self.source
            && let Some(file) = self.file.get(*open)
        {
            let mut code = Bytes::default();
            if file.read_exact_at(&mut code.bytes[..length], offset).is_ok() {
                code.length = length;
                return code;
            }
        }
        self.code(address)
    }

    /// True if methods return to an address of the interpreter without a call before it.
    fn is_interpreter_return(&mut self, address: ImageAddress) -> bool {
        if !self.source.machine().is_some_and(Machine::has_generated_code) {
            return false;
        }
        let code = self.code(address);
        generated_code::is_interpreter_return(&code.bytes[..code.length])
    }

    /// True if the byte at an address is readable code, or outside of all code.
    fn is_readable(&mut self, address: ImageAddress) -> bool {
        self.source.place(address).is_none() || self.code(address).length > 0
    }
}

impl CodeBytes for Reader<'_, '_> {
    fn code(&mut self, address: ImageAddress) -> Bytes {
        let mut code = Bytes::default();
        let Some((mut offset, left)) = self.source.place(address) else { return code };
        let wanted = left.min(INSTRUCTION_MAX as u64) as usize;
        // An instruction can span two pages.
        while code.length < wanted {
            let page = self.pages.bytes_from(offset, self.source, &mut self.file);
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
    use crate::image::code_pages::PAGE_BYTES;
    use crate::image::elf::Elf;
    use nprof_object::FileOffset;
    use object::ReadCache;
    use std::cell::Cell;
    use std::fs::File;

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

    /// Returns a function that opens a file again and counts how often.
    fn counting<'a>(file: &'a File, opened: &'a Cell<u32>) -> impl Fn() -> Option<Rc<File>> + 'a {
        || {
            opened.set(opened.get() + 1);
            file.try_clone().ok().map(Rc::new)
        }
    }

    #[test]
    fn code_is_read_once_and_only_from_existing_file() {
        let (file, elf, address) = own(|_, after| after[0] == 0xc3);
        let opened = Cell::new(0);
        let open = counting(&file, &opened);
        let mut code = CodeCache::default();
        let mut source = CodeSource::File { elf: &elf, open: &open, tables: None };
        for _ in 0..2 {
            let analyzed = code.analyze(address, false, &mut source);
            let AnalyzedRule::Rule(rule) = analyzed else { panic!("{analyzed:?}") };
            assert_eq!(rule.cfa, Cfa::Register(arch::SP, 8));
        }
        assert_eq!(opened.get(), 1);
        let pages = code.pages.bytes();
        assert!((1..=2).contains(&(pages / PAGE_BYTES as usize)), "{pages}");
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

    #[test]
    fn return_addresses_of_a_small_program_share_a_page() {
        let file = File::open("/usr/bin/env").expect("a program");
        let elf = Elf::read(&ReadCache::new(&file)).expect("an ELF file");
        let entry = elf.image_address(elf.entry_offset().expect("an entry")).expect("its address");
        let opened = Cell::new(0);
        let open = counting(&file, &opened);
        let mut code = CodeCache::default();
        let mut source = CodeSource::File { elf: &elf, open: &open, tables: None };
        // At most two pages.
        for at in 1..100 {
            code.call_before(ImageAddress(entry.0 + at), &mut source);
        }
        assert!((1..=2).contains(&opened.get()), "{}", opened.get());
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
    fn change_of_a_page_beside_is_found_once_in_the_next_batch() {
        let stub_at = Cell::new(None);
        let read = |address: u64, bytes: &mut [u8]| {
            if stub_at.get() == Some(address) {
                bytes[..TRAMPOLINE.len()].copy_from_slice(&TRAMPOLINE);
            }
            if (0x7000..0x9000).contains(&address) { bytes.len() } else { 0 }
        };
        let mut code = CodeCache::default();
        let address = ImageAddress(0x8006);
        let mut at = |batch, near| {
            let mut source = CodeSource::Memory { read: &read, batch };
            let has_changed = code.has_changed(ImageAddress(near), &source);
            (has_changed, code.analyze(address, true, &mut source) == AnalyzedRule::Unknown)
        };
        assert_eq!(at(0, 0x8006), (false, true), "not generated yet");
        stub_at.set(Some(0x8000));
        assert_eq!(at(0, 0x8006), (false, true), "read in this batch");
        assert_eq!(at(1, 0xf000), (false, true), "far away");
        assert_eq!(at(1, 0x7ff0), (true, false));
        assert_eq!(at(2, 0x8006), (false, false), "as before");
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
        let least = code.pages.bytes() + rules.len() * RULE_BYTES;
        assert!(code.bytes() >= least, "{}", code.bytes());
    }

    #[test]
    fn call_across_pages_is_recognized() {
        let (file, elf, address) = own(|before, _| before[before.len() - 5] == 0xe8);
        let open = || file.try_clone().ok().map(Rc::new);
        let mut source = CodeSource::File { elf: &elf, open: &open, tables: None };
        let mut code = CodeCache::default();
        assert!(matches!(code.call_before(address, &mut source), CallBefore::Call(_)));
        assert_eq!(code.pages.bytes(), 0, "only the call is read");
        code.analyze(address, true, &mut source);
        code.calls.clear();
        assert!(code.pages.bytes() > 0, "the pages are cached");
        assert!(matches!(code.call_before(address, &mut source), CallBefore::Call(_)));
        assert_eq!(
            code.call_before(ImageAddress(0), &mut source),
            CallBefore::NoCall,
            "outside of all code"
        );
    }
}
