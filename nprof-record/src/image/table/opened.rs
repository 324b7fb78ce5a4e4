//! One image: opens its file, reads its unwind tables and its code.

use std::cell::Cell;
use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use nprof_object::path::split_deleted;
use nprof_object::{FileOffset, ImageAddress, ImageOffset, vdso};
use nprof_stream::ImageKind;
use nprof_unwind::arch::rule::UnwindRule;
use nprof_unwind::image::cfi::UnwindTables;
use nprof_unwind::image::code_bytes::CodeCache;
use nprof_unwind::image::code_pages::CodeSource;
use nprof_unwind::image::elf::{self, Elf};
use nprof_unwind::image::table_gaps;
use object::ReadCache;
use rustc_hash::FxHashMap;

use crate::image::kept_images::CopyKey;
use crate::image::mapped_file::{self, FileVersion};
use crate::os::code_mapping::Mmap;
use crate::os::procfs;
use crate::os::task_serial::ProcessId;
use crate::sys;

/// The most addresses per image that are remembered as signal returns or not.
const MEMO_MAX: usize = 1 << 16;

/// The state of the unwind tables of an image.
#[derive(Debug)]
pub(super) enum TableState {
    /// Not read.
    Closed,
    /// Not read, and the file is held open.
    Open(File),
    /// Read. None if the file has no tables.
    Read(Option<Box<UnwindTables>>),
}

/// The name of the memory from which the kernel executes the instructions of probes in single steps
/// (`xol_add_vma` in kernel/events/uprobes.c, Linux 4.3 to 7.2).
pub(super) const STEPPED_CODE: &[u8] = b"[uprobes]";

/// An image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kind: ImageKind,
    /// The path in the process, or a name in brackets.
    pub(crate) path: Vec<u8>,
    /// The build ID; empty if there is none.
    pub(crate) build_id: Vec<u8>,
    /// The process of anonymous memory.
    pub(crate) owner: Option<ProcessId>,
    /// The parent that had this memory before a fork.
    pub(super) inherited_from: Option<u32>,
    /// The path at which its file was opened, and its inode.
    pub(super) file: Option<(PathBuf, u64)>,
    /// The version of its ELF file. None if there is none.
    pub(super) version: Option<FileVersion>,
    /// The contents of the vDSO, which has no file.
    contents: Vec<u8>,
    /// True if it is a file that could not be opened.
    pub(super) is_unread: bool,
    /// True if its headers or tables were not read for want of descriptors.
    pub(super) lacks_descriptors: bool,
    pub(crate) elf: Option<Elf>,
    /// The file, held open until the first frame in the image, if copies are kept.
    pub(super) to_copy: Option<File>,
    /// True if a copy was requested: there is a frame in the image.
    pub(super) is_copied: bool,
    /// The key of the copy. None if the file could not be opened.
    pub(super) copy: Option<CopyKey>,
    pub(super) tables: TableState,
    /// The counted memory of the tables and caches.
    pub(super) bytes: usize,
    /// The last use of the tables, as the number of uses of all tables.
    pub(super) used: u64,
    /// True if code without a table is a signal return, by file offset.
    pub(super) signal_returns: FxHashMap<FileOffset, bool>,
    /// The results of code analysis.
    pub(super) code: CodeCache,
    /// Reads memory of a process.
    pub(super) memory_reader: MemoryReader,
}

/// Reads the memory of a process through a thread that lives: the first one may end before others, and
/// takes /proc/PID/pagemap and process_vm_readv(2) with it.
#[derive(Debug, Default)]
pub(super) struct MemoryReader {
    /// A thread, and the batch of samples in which it was found.
    pub(super) thread: Cell<Option<(u32, u64)>>,
}

impl MemoryReader {
    /// Reads bytes at an address of the process and returns their number.
    pub(super) fn read(&self, pid: u32, batch: u64, address: u64, bytes: &mut [u8]) -> usize {
        // An ended thread may have given its id to another process since.
        let thread = self.thread.get().filter(|&(_, found)| found == batch);
        let tid = thread.map_or(pid, |(tid, _)| tid);
        let length = sys::read_memory(tid, address, bytes);
        // Pages may also be absent, so threads are searched once for a batch.
        if length > 0 || thread.is_some() {
            return length;
        }
        let found = procfs::living_thread(pid).unwrap_or(pid);
        self.thread.set(Some((found, batch)));
        if found == tid { 0 } else { sys::read_memory(found, address, bytes) }
    }
}

impl Image {
    /// Returns an image without a file.
    pub(super) fn without_file(kind: ImageKind, path: &[u8], owner: Option<ProcessId>) -> Self {
        Self {
            kind,
            path: path.to_vec(),
            build_id: Vec::new(),
            owner,
            inherited_from: None,
            file: None,
            version: None,
            contents: Vec::new(),
            is_unread: false,
            lacks_descriptors: false,
            elf: None,
            to_copy: None,
            is_copied: false,
            copy: None,
            tables: TableState::Closed,
            bytes: 0,
            used: 0,
            signal_returns: FxHashMap::default(),
            code: CodeCache::default(),
            memory_reader: MemoryReader::default(),
        }
    }

    /// Returns the image address of an offset, which is a file offset if the image is a file, and
    /// an address if it is memory of a process.
    pub(super) fn image_address(&self, offset: ImageOffset) -> Option<ImageAddress> {
        if self.memory_of().is_some() {
            return Some(ImageAddress(offset.0));
        }
        self.elf.as_ref()?.image_address(FileOffset(offset.0))
    }

    /// Returns the process of which the memory holds the code. None if a file does.
    pub(super) fn memory_of(&self) -> Option<u32> {
        self.owner.filter(|_| self.kind == ImageKind::Anonymous).map(|owner| owner.pid)
    }

    /// True if the file is held open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.tables, TableState::Open(_))
    }

    /// Reads the tables unless they were read.
    pub(super) fn read_tables(&mut self) {
        let cfi = match &self.tables {
            TableState::Read(_) => return,
            // Another program may have been written to the file since.
            TableState::Open(file) if FileVersion::of_file(file) != self.version => None,
            TableState::Open(file) => elf::read_tables(&ReadCache::new(file)),
            TableState::Closed => {
                let file = reopen(self.file.as_ref(), self.elf.as_ref(), self.version);
                self.lacks_descriptors |= file.is_none() && mapped_file::lacks_descriptors();
                file.and_then(|file| elf::read_tables(&ReadCache::new(file)))
            }
        };
        self.tables = TableState::Read(cfi.map(Box::new));
    }

    /// Looks up an address in the tables. None if they do not cover it or were not read.
    pub(super) fn table_rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>> {
        match &mut self.tables {
            TableState::Read(Some(tables)) => tables.rule(address),
            _ => None,
        }
    }

    /// Calls a function with the cache of the code and the source of more, in a batch of samples.
    /// `kept` returns its file, or opens it by the function it is given. None without ELF headers.
    pub(super) fn with_code<T>(
        &mut self,
        batch: u64,
        kept: impl Fn(&dyn Fn() -> Option<File>) -> Option<Rc<File>>,
        use_code: impl FnOnce(&mut CodeCache, &mut CodeSource<'_>) -> T,
    ) -> Option<T> {
        if let Some(pid) = self.memory_of() {
            let (reader, parent) = (&self.memory_reader, self.inherited_from);
            let read =
                |address: u64, bytes: &mut [u8]| match reader.read(pid, batch, address, bytes) {
                    // It has exited, or has not accessed the page since the fork.
                    0 => parent.map_or(0, |parent| sys::read_memory(parent, address, bytes)),
                    length => length,
                };
            return Some(use_code(&mut self.code, &mut CodeSource::Memory { read: &read, batch }));
        }
        let (file, elf, version) = (self.file.as_ref(), self.elf.as_ref()?, self.version);
        let tables = match &mut self.tables {
            TableState::Read(tables) => tables.as_deref_mut(),
            _ => None,
        };
        let open = || kept(&|| reopen(file, Some(elf), version));
        Some(use_code(&mut self.code, &mut CodeSource::File { elf, open: &open, tables }))
    }

    /// Returns the memory of the tables and caches.
    pub(super) fn count_bytes(&self) -> usize {
        let tables = match &self.tables {
            TableState::Read(Some(tables)) => tables.bytes(),
            _ => 0,
        };
        let signal_returns = self.signal_returns.capacity() * size_of::<(u64, bool, u8)>();
        tables + signal_returns + self.code.bytes()
    }

    /// Returns the rule after a system call at which the table of its function ends.
    pub(super) fn rule_after_system_call(
        &mut self,
        offset: FileOffset,
        address: ImageAddress,
    ) -> Option<Rc<UnwindRule>> {
        let machine = self.elf.as_ref()?.machine?;
        let TableState::Read(Some(tables)) = &mut self.tables else { return None };
        let (file, contents) = (self.file.as_ref().zip(self.version), &self.contents);
        let read = |at, code: &mut [u8]| read_code(file, contents, at, code);
        table_gaps::rule_after_system_call(machine, tables, offset, address, read)
    }

    /// True if signal handlers return to the code at an offset.
    pub(super) fn is_signal_return(&mut self, offset: FileOffset) -> bool {
        let Some(machine) = self.elf.as_ref().and_then(|elf| elf.machine) else { return false };
        if self.signal_returns.len() >= MEMO_MAX {
            self.signal_returns.clear();
        }
        let (file, contents) = (self.file.as_ref().zip(self.version), &self.contents);
        *self.signal_returns.entry(offset).or_insert_with(|| {
            let read = |at, code: &mut [u8]| read_code(file, contents, at, code);
            table_gaps::is_signal_return(machine, offset, read)
        })
    }
}

/// Reads bytes of an image at an offset, from its contents or this version of its file. False if it has fewer.
fn read_code(
    file: Option<(&(PathBuf, u64), FileVersion)>,
    contents: &[u8],
    offset: u64,
    code: &mut [u8],
) -> bool {
    let start = usize::try_from(offset).ok();
    let known = start.and_then(|start| contents.get(start..)?.get(..code.len()));
    if let Some(known) = known {
        code.copy_from_slice(known);
        return true;
    }
    let file = file.and_then(|((path, inode), version)| {
        let file = mapped_file::open_same(path, *inode)?;
        (FileVersion::of_file(&file) == Some(version)).then_some(file)
    });
    file.is_some_and(|file| file.read_exact_at(code, offset).is_ok())
}

/// Opens the file of an image again. None if it was replaced or changed.
pub(super) fn reopen(
    file: Option<&(PathBuf, u64)>,
    elf: Option<&Elf>,
    version: Option<FileVersion>,
) -> Option<File> {
    let (path, inode) = file?;
    let file = mapped_file::open_same(path, *inode)?;
    let is_same =
        FileVersion::of_file(&file) == version && Elf::read(&ReadCache::new(&file)).as_ref() == elf;
    is_same.then_some(file)
}

/// The memory of a mapping, by its name and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// A file in a file system.
    File,
    /// A file without a place in any file system: a memfd, System V shared memory.
    SharedMemory,
    Vdso,
    /// No file.
    Anonymous,
}

impl Backing {
    pub(super) fn of(mmap: &Mmap<'_>) -> Self {
        // Names of files that the kernel creates internally for shared memory. It calls all of them
        // deleted (simple_dname() in fs/d_path.c), and their device has the major number 0. A file
        // in a directory `/memfd:x` has not both, unless it was deleted from tmpfs.
        const INTERNAL: [&[u8]; 4] = [b"/memfd:", b"/SYSV", b"/anon_hugepage", b"/drm mm object"];
        let (path, is_deleted) = split_deleted(&mmap.path);
        let is_internal = is_deleted && mmap.identity.device.0 == 0;
        match path {
            b"[vdso]" => Self::Vdso,
            // perf's name of anonymous memory; a private mapping of this device is anonymous, too.
            b"//anon" | b"/dev/zero" => Self::Anonymous,
            _ if is_internal && INTERNAL.iter().any(|name| path.starts_with(name)) => {
                Self::SharedMemory
            }
            [b'/', ..] => Self::File,
            _ => Self::Anonymous,
        }
    }
}

/// Opens the file of a mapping and reads its headers. With `hold` it stays open for the tables, with
/// `keep` for a copy.
pub(super) fn open_file(path: &[u8], mmap: &Mmap<'_>, hold: bool, keep: bool) -> Image {
    let mut image = Image::without_file(ImageKind::Elf, path, None);
    let inode = mmap.identity.inode;
    image.is_unread = true;
    // Another file may be at the first path by now.
    for path in mapped_file::candidates(mmap) {
        let Some(file) = mapped_file::open_same(&path, inode) else { continue };
        image.is_unread = false;
        let Some(elf) = Elf::read(&ReadCache::new(&file)) else { continue };
        image.build_id.clone_from(&elf.build_id);
        image.elf = Some(elf);
        image.version = FileVersion::of_file(&file);
        // Opened again: descriptors of one opening share their position.
        image.to_copy = keep.then(|| mapped_file::open_same(&path, inode)).flatten();
        image.file = Some((path, inode));
        if hold {
            image.tables = TableState::Open(file);
        }
        break;
    }
    image.lacks_descriptors = image.is_unread && mapped_file::lacks_descriptors();
    image
}

/// Returns the image of a file that was written to after it was mapped, before it was opened.
pub(super) fn overwritten(path: &[u8]) -> Image {
    let mut image = Image::without_file(ImageKind::Elf, path, None);
    image.is_unread = true;
    image.version = Some(FileVersion::NONE);
    image
}

/// Reads the vDSO from the memory of this process: it is the same in all processes.
pub(super) fn open_vdso() -> Image {
    let mut image = Image::without_file(ImageKind::Vdso, b"[vdso]", None);
    let Some(bytes) = vdso::read_own().ok().flatten() else { return image };
    let cache = ReadCache::new(Cursor::new(bytes));
    if let Some(elf) = Elf::read(&cache) {
        image.build_id.clone_from(&elf.build_id);
        image.elf = Some(elf);
    }
    image.tables = TableState::Read(elf::read_tables(&cache).map(Box::new));
    image.contents = cache.into_inner().into_inner();
    image
}
