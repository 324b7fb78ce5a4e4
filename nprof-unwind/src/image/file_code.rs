//! The code of one file: its unwind tables, and what its instructions show where the tables have nothing.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use nprof_object::{FileOffset, ImageAddress};
use object::ReadCache;
use rustc_hash::FxHashMap;

use crate::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use crate::image::cfi::UnwindTables;
use crate::image::code_bytes::{CallBefore, CodeCache};
use crate::image::code_pages::CodeSource;
use crate::image::elf::{Elf, read_tables};
use crate::image::table_gaps;
use crate::unwind::{FrameAddress, UnwindInfo};

/// The most addresses that are remembered as signal returns or not.
const MEMO_MAX: usize = 1 << 16;

/// The contents of a file.
#[derive(Debug)]
pub enum Contents {
    /// A path at which it was opened.
    Path(PathBuf),
    /// Its bytes: of the vDSO.
    Bytes(Vec<u8>),
}

impl Contents {
    fn open(&self) -> Option<File> {
        match self {
            Self::Path(path) => File::open(path).ok(),
            Self::Bytes(_) => None,
        }
    }

    /// Reads bytes at an offset. False if there are fewer.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> bool {
        match self {
            Self::Path(_) => {
                self.open().is_some_and(|file| file.read_exact_at(buffer, offset).is_ok())
            }
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).ok();
                let found = start.and_then(|start| bytes.get(start..)?.get(..buffer.len()));
                found.map(|found| buffer.copy_from_slice(found)).is_some()
            }
        }
    }
}

/// The code of a file.
#[derive(Debug)]
pub struct FileCode {
    elf: Elf,
    contents: Contents,
    /// None if they were not read, or dropped.
    tables: Option<Option<Box<UnwindTables>>>,
    signal_returns: FxHashMap<FileOffset, bool>,
    code: CodeCache,
}

impl FileCode {
    /// Returns the code of a file with these headers. The tables are read when they are needed.
    pub fn new(elf: Elf, contents: Contents) -> Self {
        let (signal_returns, code) = (FxHashMap::default(), CodeCache::default());
        Self { elf, contents, tables: None, signal_returns, code }
    }

    /// Returns the headers.
    pub fn elf(&self) -> &Elf {
        &self.elf
    }

    /// Returns the memory of the tables and caches.
    pub fn bytes(&self) -> usize {
        let tables = self.tables.iter().flatten().map(|tables| tables.bytes()).sum::<usize>();
        let signal_returns = self.signal_returns.capacity() * size_of::<(u64, bool, u8)>();
        tables + signal_returns + self.code.bytes()
    }

    /// Drops the tables and caches; they are read again when they are needed.
    pub fn drop_tables(&mut self) {
        self.tables = None;
        self.signal_returns = FxHashMap::default();
        self.code = CodeCache::default();
    }

    /// Returns the unwind information at an offset.
    pub fn unwind_info(&mut self, offset: FileOffset) -> UnwindInfo {
        let Some(address) = self.elf.image_address(offset) else { return UnwindInfo::NoTable };
        let tables = self.tables.get_or_insert_with(|| read(&self.contents, &self.elf));
        if let Some(rule) = tables.as_mut().and_then(|tables| tables.rule(address)) {
            return UnwindInfo::Rule(rule);
        }
        let Some(machine) = self.elf.machine else { return UnwindInfo::NoTable };
        let contents = &self.contents;
        let read = |at, buffer: &mut [u8]| contents.read(at, buffer);
        let rule = tables.as_mut().and_then(|tables| {
            table_gaps::rule_after_system_call(machine, tables, offset, address, read)
        });
        if let Some(rule) = rule {
            return UnwindInfo::Rule(rule);
        }
        if self.elf.is_entry(address) {
            return UnwindInfo::Entry;
        }
        if self.signal_returns.len() >= MEMO_MAX {
            self.signal_returns.clear();
        }
        let is_return = self.signal_returns.entry(offset);
        let is_return =
            is_return.or_insert_with(|| table_gaps::is_signal_return(machine, offset, read));
        if *is_return { UnwindInfo::SignalReturn } else { UnwindInfo::NoTable }
    }

    /// Analyzes the code at a frame's address; `offset` is that of its address for lookup.
    pub fn analyze(&mut self, offset: FileOffset, address: FrameAddress) -> AnalyzedRule {
        let Some(at) = self.address_in_image(offset, address) else {
            return AnalyzedRule::Unknown;
        };
        self.with_code(|code, source| code.analyze(at, address.is_return(), source))
    }

    /// Returns the rule at a frame's address, if the call that ends after the byte at `call` is of
    /// its function; `offset` is that of its address for lookup.
    pub fn rule_since_call(
        &mut self,
        call: FileOffset,
        offset: FileOffset,
        address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        let call_end = self.elf.image_address(call)?.wrapping_add(1);
        let at = self.address_in_image(offset, address)?;
        self.with_code(|code, source| code.rule_since_call(call_end, at, source))
    }

    /// Returns the rules at a frame's address by the code before it; `offset` is that of its address
    /// for lookup.
    pub fn rules_since_prologues(
        &mut self,
        offset: FileOffset,
        address: FrameAddress,
    ) -> Rc<[UnwindRule]> {
        let Some(at) = self.address_in_image(offset, address) else { return Rc::default() };
        self.with_code(|code, source| code.rules_since_prologues(at, source))
    }

    /// Returns the kind of the frames of generated code at an offset.
    pub fn generated_frame(&mut self, offset: FileOffset) -> GeneratedFrame {
        match self.elf.image_address(offset) {
            Some(at) => self.with_code(|code, source| code.generated_frame(at, source)),
            None => GeneratedFrame::Unknown,
        }
    }

    /// True if a call ends after the byte at an offset. None if the code cannot be read.
    pub fn is_after_call(&mut self, offset: FileOffset) -> Option<bool> {
        let address = self.elf.image_address(offset)?.wrapping_add(1);
        match self.with_code(|code, source| code.call_before(address, source)) {
            CallBefore::Unreadable => None,
            CallBefore::NoCall => Some(false),
            CallBefore::Call(_) => Some(true),
        }
    }

    /// Returns the image address of a frame; `offset` is that of its address for lookup.
    fn address_in_image(&self, offset: FileOffset, address: FrameAddress) -> Option<ImageAddress> {
        let after_lookup = address.value().0.wrapping_sub(address.address_for_lookup().0);
        Some(self.elf.image_address(offset)?.wrapping_add(after_lookup))
    }

    fn with_code<T>(
        &mut self,
        use_code: impl FnOnce(&mut CodeCache, &mut CodeSource<'_>) -> T,
    ) -> T {
        let (elf, contents) = (&self.elf, &self.contents);
        let open = || contents.open().map(Rc::new);
        let tables = self.tables.as_mut().and_then(Option::as_deref_mut);
        use_code(&mut self.code, &mut CodeSource::File { elf, open: &open, tables })
    }
}

/// Reads the unwind tables. None if the file has none, or was replaced since its headers were read.
fn read(contents: &Contents, elf: &Elf) -> Option<Box<UnwindTables>> {
    let tables = match contents {
        Contents::Bytes(bytes) => read_tables(&ReadCache::new(Cursor::new(bytes))),
        Contents::Path(_) => {
            let cache = ReadCache::new(contents.open()?);
            if Elf::read(&cache).as_ref() != Some(elf) {
                return None;
            }
            read_tables(&cache)
        }
    };
    tables.map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_has_rules_that_are_read_again_after_they_were_dropped() {
        let path = std::env::current_exe().expect("a path");
        let elf = Elf::read(&ReadCache::new(File::open(&path).expect("this program")));
        let elf = elf.expect("an ELF file");
        let entry = elf.entry_offset().expect("an entry");
        let mut code = FileCode::new(elf, Contents::Path(path));
        assert_eq!(code.bytes(), 0);
        for _ in 0..2 {
            assert!(matches!(code.unwind_info(entry), UnwindInfo::Rule(_)));
            assert!(code.bytes() > 0);
            code.drop_tables();
        }
        assert_eq!(code.bytes(), 0);
        assert_eq!(code.unwind_info(FileOffset(u64::MAX)), UnwindInfo::NoTable);
    }
}
