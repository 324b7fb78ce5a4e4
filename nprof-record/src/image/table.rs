//! The images code was mapped from: what they are called, where their code stands, and their
//! unwind tables. Each distinct file is opened once, when it is first mapped, so that it can be
//! read even if it is gone when it is first needed.
//!
//! What is kept is bounded. Of too many tables, those that were not used for longest are dropped,
//! and read again when they are needed: if their file is still where it was. And images no
//! process has mapped any more are forgotten with an epoch.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use nprof_object::path::split_deleted;
use nprof_object::{FileOffset, ImageAddress, ImageOffset, vdso};
use nprof_stream::ImageKind;
use object::ReadCache;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::arch;
use crate::arch::rule::AnalyzedRule;
use crate::arch::rule::UnwindRule;
use crate::image::cfi::UnwindTables;
use crate::image::code_bytes::{CodeCache, CodeSource};
use crate::image::elf::{self, Elf};
use crate::image::key::ImageIndex;
use crate::image::mapped_file;
use crate::os::task_serial::{ProcessId, TaskSerial};
use crate::perf::record::{Identity, Mmap};
use crate::unwind::{FrameAddress, UnwindInfo};

/// Files held open at most, besides those whose tables were read.
const OPEN_MAX: usize = 128;

/// Places looked at for what signal handlers return to, per image; beyond that all are forgotten.
const MEMO_MAX: usize = 1 << 16;

/// The most that the unwind tables of all images may take, and what is remembered of them, bytes.
/// Those of one image are kept whatever they take.
const TABLES_MAX: usize = 256 << 20;

/// ImageTable met in an epoch at most, so that those that are not mapped any more do not pile up.
const NEW_MAX: usize = 1 << 16;

/// What tells images apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ImageIdentity {
    /// A file, by its path and what the kernel said of it.
    File(Vec<u8>, Identity),
    /// Memory of one process, by its name.
    Anonymous(Vec<u8>, ProcessId),
    Vdso,
}

/// Where the unwind tables are.
#[derive(Debug)]
enum TableState {
    /// In the file, not read yet.
    Closed,
    /// The same, with the file held open.
    Open(Box<ReadCache<File>>),
    /// Read; `None` when there are none.
    Read(Option<Box<UnwindTables>>),
}

/// An image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kind: ImageKind,
    /// The path as the process saw it, or a name in brackets.
    pub(crate) path: Vec<u8>,
    /// Empty when there is none.
    pub(crate) build_id: Vec<u8>,
    /// The process whose memory it is, for anonymous memory.
    pub(crate) owner: Option<ProcessId>,
    /// Where its file was found, and its inode.
    file: Option<(PathBuf, u64)>,
    elf: Option<Elf>,
    tables: TableState,
    /// What the tables take, bytes, as far as counted.
    bytes: usize,
    /// When they were last used: by the number of uses of all tables.
    used: u64,
    /// By file offset: whether code without a table is what signal handlers return to.
    signal_returns: FxHashMap<FileOffset, bool>,
    /// What its code was found to say where there is no table.
    text: CodeCache,
}

/// The images that are known.
#[derive(Debug, Default)]
pub(crate) struct ImageTable {
    images: Vec<Image>,
    known: FxHashMap<ImageIdentity, ImageIndex>,
    /// Places of images that were forgotten.
    free: Vec<ImageIndex>,
    /// ImageTable met in this epoch.
    new: usize,
    /// Files held open.
    open: usize,
    /// What all tables take, bytes.
    bytes: usize,
    uses: u64,
}

impl ImageTable {
    /// The image.
    pub(crate) fn get(&self, index: ImageIndex) -> &Image {
        &self.images[index as usize]
    }

    /// Whether the code of an image may have been made by the process that runs it: it is in no
    /// ELF object.
    pub(crate) fn may_contain_jit(&self, index: ImageIndex) -> bool {
        let image = self.get(index);
        match image.kind {
            ImageKind::Elf => image.elf.is_none(),
            kind => kind == ImageKind::Anonymous,
        }
    }

    /// The image a mapping is of, and the image's offset of its first byte.
    pub(crate) fn image_of(
        &mut self,
        mmap: &Mmap<'_>,
        serial: TaskSerial,
    ) -> (ImageIndex, ImageOffset) {
        let (path, _) = split_deleted(mmap.path);
        match mapping_kind(path) {
            ImageKind::Vdso => {
                (self.intern(ImageIdentity::Vdso, open_vdso), ImageOffset(mmap.offset.0))
            }
            ImageKind::Elf => {
                let key = ImageIdentity::File(path.to_vec(), mmap.identity);
                let hold = self.open < OPEN_MAX;
                (self.intern(key, || open_file(path, mmap, hold)), ImageOffset(mmap.offset.0))
            }
            _ => {
                let name = if path == b"//anon" { b"[anon]" } else { path };
                let owner = ProcessId { pid: mmap.pid, serial };
                let key = ImageIdentity::Anonymous(name.to_vec(), owner);
                let image = || Image::without_file(ImageKind::Anonymous, name, Some(owner));
                (self.intern(key, image), ImageOffset(mmap.start.0))
            }
        }
    }

    fn intern(&mut self, key: ImageIdentity, make: impl FnOnce() -> Image) -> ImageIndex {
        if let Some(&index) = self.known.get(&key) {
            return index;
        }
        let image = make();
        self.new += 1;
        self.open += usize::from(image.is_open());
        let index = match self.free.pop() {
            Some(index) => {
                self.images[index as usize] = image;
                index
            }
            None => {
                self.images.push(image);
                (self.images.len() - 1) as ImageIndex
            }
        };
        self.known.insert(key, index);
        index
    }

    /// Whether a new epoch should begin, for there to be fewer.
    pub(crate) fn is_full(&self) -> bool {
        self.new >= NEW_MAX
    }

    /// An epoch begins: forgets all images but those that are mapped. Their indices will be
    /// those of others.
    pub(crate) fn begin_epoch(&mut self, mapped: impl Iterator<Item = ImageIndex>) {
        let mapped: FxHashSet<_> = mapped.collect();
        self.new = 0;
        let (images, free) = (&mut self.images, &mut self.free);
        self.known.retain(|_, &mut index| {
            let stays = mapped.contains(&index);
            if !stays {
                let none = Image::without_file(ImageKind::Anonymous, b"", None);
                let gone = std::mem::replace(&mut images[index as usize], none);
                self.open -= usize::from(gone.is_open());
                self.bytes -= gone.bytes;
                free.push(index);
            }
            stays
        });
    }

    /// What is known of the code at an offset of an image.
    pub(crate) fn unwind_info(&mut self, index: ImageIndex, offset: ImageOffset) -> UnwindInfo {
        let image = &mut self.images[index as usize];
        let Some(elf) = &image.elf else { return UnwindInfo::NoTable };
        let offset = FileOffset(offset.0);
        let Some(address) = elf.image_address(offset) else { return UnwindInfo::NoTable };
        let is_entry = elf.is_entry(address);
        self.open -= usize::from(image.is_open());
        image.read_tables();
        let unwind_info = match &mut image.tables {
            TableState::Read(Some(cfi)) => cfi.row(address),
            _ => None,
        };
        let unwind_info = match unwind_info {
            Some(row) => UnwindInfo::Rule(row),
            None => match image.row_of_system_call(offset, address) {
                Some(row) => UnwindInfo::Rule(row),
                None if is_entry => UnwindInfo::Entry,
                None if image.is_signal_return(offset) => UnwindInfo::SignalReturn,
                None => UnwindInfo::NoTable,
            },
        };
        self.uses += 1;
        image.used = self.uses;
        let bytes = image.count();
        self.bytes = self.bytes - std::mem::replace(&mut image.bytes, bytes) + bytes;
        if self.bytes > TABLES_MAX {
            self.drop_tables(index, TABLES_MAX / 4 * 3);
        }
        unwind_info
    }

    /// What the code at an address says of its caller, the offset being of what is inside of it.
    pub(crate) fn analyze(
        &mut self,
        index: ImageIndex,
        offset: ImageOffset,
        address: FrameAddress,
    ) -> AnalyzedRule {
        let behind = address.value().0.wrapping_sub(address.address_for_lookup().0);
        let image = &mut self.images[index as usize];
        let Some(inside) = image.image_address(offset) else { return AnalyzedRule::Unknown };
        let at = inside.wrapping_add(behind);
        let followed =
            image.text(|text, source| Some(text.analyze(at, address.is_return(), source)));
        followed.unwrap_or(AnalyzedRule::Unknown)
    }

    /// Whether a call ends behind the byte at an offset; `None` where there is no file.
    pub(crate) fn is_after_call(&mut self, index: ImageIndex, offset: ImageOffset) -> Option<bool> {
        let image = &mut self.images[index as usize];
        let address = image.image_address(offset)?.wrapping_add(1);
        image.text(|text, source| Some(text.call_before(address, source)?.is_some()))
    }

    /// Drops the tables that were not used for longest until all take `limit` bytes at most; but
    /// not those of the image `keep`.
    fn drop_tables(&mut self, keep: ImageIndex, limit: usize) {
        let can_drop = |(index, image): &(usize, &Image)| {
            *index != keep as usize && image.bytes > 0 && image.file.is_some()
        };
        let images = self.images.iter().enumerate().filter(can_drop);
        let mut by_use: Vec<_> = images.map(|(index, image)| (image.used, index)).collect();
        by_use.sort_unstable();
        for (_, index) in by_use {
            if self.bytes <= limit {
                return;
            }
            let image = &mut self.images[index];
            image.tables = TableState::Closed;
            image.signal_returns = FxHashMap::default();
            image.text = CodeCache::default();
            self.bytes -= std::mem::take(&mut image.bytes);
        }
    }
}

impl Image {
    fn without_file(kind: ImageKind, path: &[u8], owner: Option<ProcessId>) -> Self {
        Self {
            kind,
            path: path.to_vec(),
            build_id: Vec::new(),
            owner,
            file: None,
            elf: None,
            tables: TableState::Closed,
            bytes: 0,
            used: 0,
            signal_returns: FxHashMap::default(),
            text: CodeCache::default(),
        }
    }

    /// Returns the image address of an offset, which is a file offset if the image is a file.
    fn image_address(&self, offset: ImageOffset) -> Option<ImageAddress> {
        self.elf.as_ref()?.image_address(FileOffset(offset.0))
    }

    fn is_open(&self) -> bool {
        matches!(self.tables, TableState::Open(_))
    }

    /// Makes the tables be read.
    fn read_tables(&mut self) {
        let cfi = match &self.tables {
            TableState::Read(_) => return,
            TableState::Open(cache) => elf::read_tables(cache),
            TableState::Closed => {
                let cache = reopen(self.file.as_ref(), self.elf.as_ref());
                cache.and_then(|cache| elf::read_tables(&cache))
            }
        };
        self.tables = TableState::Read(cfi.map(Box::new));
    }

    /// What is kept of the code, and where more of it comes from.
    fn text<T>(
        &mut self,
        ask: impl FnOnce(&mut CodeCache, &mut CodeSource<'_>) -> Option<T>,
    ) -> Option<T> {
        let (file, elf) = (self.file.as_ref(), self.elf.as_ref()?);
        let cfi = match &mut self.tables {
            TableState::Read(cfi) => cfi.as_deref_mut(),
            _ => None,
        };
        let open = || reopen(file, Some(elf)).map(ReadCache::into_inner);
        ask(&mut self.text, &mut CodeSource { elf, open: &open, cfi })
    }

    /// What the tables take, and what is remembered of them, bytes.
    fn count(&self) -> usize {
        let cfi = match &self.tables {
            TableState::Read(Some(cfi)) => cfi.bytes(),
            _ => 0,
        };
        let signal_returns = self.signal_returns.capacity() * size_of::<(u64, bool, u8)>();
        cfi + signal_returns + self.text.bytes()
    }

    /// The rule behind a system call whose function's table ends just before it: where one makes
    /// a thread, the new one goes its own way from there (clone and clone3 of glibc). What called
    /// it is where it was before.
    fn row_of_system_call(
        &mut self,
        offset: FileOffset,
        address: ImageAddress,
    ) -> Option<Rc<UnwindRule>> {
        let length = arch::SYSTEM_CALL.len() as u64;
        let TableState::Read(Some(cfi)) = &mut self.tables else { return None };
        let row = cfi.row(ImageAddress(address.0.checked_sub(length + 1)?))?;
        let mut code = [0; arch::SYSTEM_CALL.len()];
        let (path, inode) = self.file.as_ref()?;
        let file = mapped_file::open_same(path, *inode)?;
        file.read_exact_at(&mut code, offset.0.checked_sub(length)?).ok()?;
        (code == arch::SYSTEM_CALL).then_some(row)
    }

    /// Whether the code at `offset` is the one signal handlers return to. The offset may be of an
    /// address inside of the call before it, so the code is looked for at the next byte, too.
    fn is_signal_return(&mut self, offset: FileOffset) -> bool {
        let Some((path, inode)) = &self.file else { return false };
        if self.signal_returns.len() >= MEMO_MAX {
            self.signal_returns.clear();
        }
        *self.signal_returns.entry(offset).or_insert_with(|| {
            let mut code = [0; arch::SIGNAL_RETURN.len() + 1];
            let read = mapped_file::open_same(path, *inode)
                .is_some_and(|file| file.read_exact_at(&mut code, offset.0).is_ok());
            read && (code.starts_with(&arch::SIGNAL_RETURN) || code.ends_with(&arch::SIGNAL_RETURN))
        })
    }
}

/// Opens the file of an image again, if it is still the one it was.
fn reopen(file: Option<&(PathBuf, u64)>, elf: Option<&Elf>) -> Option<ReadCache<File>> {
    let (path, inode) = file?;
    let cache = ReadCache::new(mapped_file::open_same(path, *inode)?);
    (Elf::read(&cache).as_ref() == elf).then_some(cache)
}

/// Whether a mapping's name is that of a file.
pub(crate) fn is_file(path: &[u8]) -> bool {
    mapping_kind(path) == ImageKind::Elf
}

/// What a mapping's name says it is.
fn mapping_kind(path: &[u8]) -> ImageKind {
    const NO_FILES: [&[u8]; 6] =
        [b"//anon", b"/memfd:", b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"/drm mm object"];
    match path {
        b"[vdso]" => ImageKind::Vdso,
        _ if NO_FILES.iter().any(|name| path.starts_with(name)) => ImageKind::Anonymous,
        [b'/', ..] => ImageKind::Elf,
        _ => ImageKind::Anonymous,
    }
}

/// Opens the file behind a mapping and reads its headers.
fn open_file(path: &[u8], mmap: &Mmap<'_>, hold: bool) -> Image {
    let mut image = Image::without_file(ImageKind::Elf, path, None);
    let inode = mmap.identity.inode;
    let open = |path: PathBuf| {
        let cache = ReadCache::new(mapped_file::open_same(&path, inode)?);
        let elf = Elf::read(&cache)?;
        Some((path, cache, elf))
    };
    let found = mapped_file::candidates(mmap).into_iter().find_map(open);
    let Some((path, cache, elf)) = found else { return image };
    image.build_id.clone_from(&elf.build_id);
    image.elf = Some(elf);
    image.file = Some((path, inode));
    if hold {
        image.tables = TableState::Open(Box::new(cache));
    }
    image
}

/// The vDSO, read from our own memory: every process has the same.
fn open_vdso() -> Image {
    let mut image = Image::without_file(ImageKind::Vdso, b"[vdso]", None);
    let Some(bytes) = vdso::read_own().ok().flatten() else { return image };
    let cache = ReadCache::new(Cursor::new(bytes));
    if let Some(elf) = Elf::read(&cache) {
        image.build_id.clone_from(&elf.build_id);
        image.elf = Some(elf);
    }
    image.tables = TableState::Read(elf::read_tables(&cache).map(Box::new));
    image
}

#[cfg(test)]
mod tests;
