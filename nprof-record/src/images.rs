//! The images code was mapped from: what they are called, where their code stands, and their
//! unwind tables. Each distinct file is opened once, when it is first mapped, so that it can be
//! read even if it is gone when it is first needed.

use std::fs::{File, OpenOptions};
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nprof_format::ImageKind;
use object::ReadCache;
use rustc_hash::FxHashMap;

use crate::arch;
use crate::cfi::Cfi;
use crate::elf::{self, Elf};
use crate::maps::{ImageIndex, Maps};
use crate::process::Serial;
use crate::ring::{Identity, Mmap};
use crate::unwind::{Code, Look};

/// Files held open at most, besides those whose tables were read.
const OPEN_MAX: usize = 128;

/// Places looked at for what signal handlers return to, per image; beyond that all are forgotten.
const MEMO_MAX: usize = 1 << 16;

/// What the kernel puts behind the path of a file that was unlinked.
const DELETED: &[u8] = b" (deleted)";

/// A process: its id, and the serial of its first thread.
pub(crate) type Owner = (u32, Serial);

/// What tells images apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// A file, by its path and what the kernel said of it.
    File(Vec<u8>, Identity),
    /// Memory of one process, by its name.
    Anonymous(Vec<u8>, Owner),
    Vdso,
}

/// Where the unwind tables are.
#[derive(Debug)]
enum Tables {
    /// In the file, not read yet.
    Closed,
    /// The same, with the file held open.
    Open(Box<ReadCache<File>>),
    /// Read; `None` when there are none.
    Read(Option<Box<Cfi>>),
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
    pub(crate) owner: Option<Owner>,
    /// Where its file was found.
    file: Option<PathBuf>,
    elf: Option<Elf>,
    tables: Tables,
    /// By file offset: whether code without a table is what signal handlers return to.
    signal_returns: FxHashMap<u64, bool>,
}

/// Every image seen so far.
#[derive(Debug, Default)]
pub(crate) struct Images {
    images: Vec<Image>,
    known: FxHashMap<Key, ImageIndex>,
    open: usize,
}

impl Images {
    /// The image.
    pub(crate) fn get(&self, index: ImageIndex) -> &Image {
        &self.images[index as usize]
    }

    /// Whether the code of an image may have been made by the process that runs it: it is in no
    /// ELF object.
    pub(crate) fn may_be_made(&self, index: ImageIndex) -> bool {
        let image = self.get(index);
        match image.kind {
            ImageKind::Elf => image.elf.is_none(),
            kind => kind == ImageKind::Anonymous,
        }
    }

    /// The image a mapping is of, and the image's offset of its first byte.
    pub(crate) fn of_mapping(&mut self, mmap: &Mmap<'_>, serial: Serial) -> (ImageIndex, u64) {
        let (path, deleted) = match mmap.path.strip_suffix(DELETED) {
            Some(path) => (path, true),
            None => (mmap.path, false),
        };
        match nature(path) {
            ImageKind::Vdso => (self.intern(Key::Vdso, open_vdso), mmap.offset),
            ImageKind::Elf => {
                let key = Key::File(path.to_vec(), mmap.identity);
                let hold = self.open < OPEN_MAX;
                let before = self.images.len();
                let image = self.intern(key, || open_file(path, deleted, mmap, hold));
                let is_open = |image: &Image| matches!(image.tables, Tables::Open(_));
                self.open += usize::from(self.images.get(before).is_some_and(is_open));
                (image, mmap.offset)
            }
            _ => {
                let name = if path == b"//anon" { b"[anon]" } else { path };
                let owner = (mmap.pid, serial);
                let key = Key::Anonymous(name.to_vec(), owner);
                let image = || Image::without_file(ImageKind::Anonymous, name, Some(owner));
                (self.intern(key, image), mmap.start)
            }
        }
    }

    fn intern(&mut self, key: Key, make: impl FnOnce() -> Image) -> ImageIndex {
        if let Some(&index) = self.known.get(&key) {
            return index;
        }
        let index = self.images.len() as ImageIndex;
        self.images.push(make());
        self.known.insert(key, index);
        index
    }

    /// What is known of the code at an offset of an image.
    fn look(&mut self, index: ImageIndex, offset: u64) -> Look {
        let image = &mut self.images[index as usize];
        let Some(elf) = &image.elf else { return Look::NoTable };
        let Some(address) = elf.image_address(offset) else { return Look::NoTable };
        let is_entry = elf.is_entry(address);
        let was_open = matches!(image.tables, Tables::Open(_));
        image.read_tables();
        self.open -= usize::from(was_open);
        if let Tables::Read(Some(cfi)) = &mut image.tables
            && let Some(row) = cfi.row(address)
        {
            return Look::Row(row);
        }
        if is_entry {
            return Look::Entry;
        }
        if image.is_signal_return(offset) { Look::SignalReturn } else { Look::NoTable }
    }
}

impl Image {
    fn without_file(kind: ImageKind, path: &[u8], owner: Option<Owner>) -> Self {
        Self {
            kind,
            path: path.to_vec(),
            build_id: Vec::new(),
            owner,
            file: None,
            elf: None,
            tables: Tables::Closed,
            signal_returns: FxHashMap::default(),
        }
    }

    /// Makes the tables be read.
    fn read_tables(&mut self) {
        let cfi = match &self.tables {
            Tables::Read(_) => return,
            Tables::Open(cache) => elf::read_tables(cache),
            Tables::Closed => {
                let file = self.file.as_deref().and_then(open_regular);
                file.and_then(|file| elf::read_tables(&ReadCache::new(file)))
            }
        };
        self.tables = Tables::Read(cfi.map(Box::new));
    }

    /// Whether the code at `offset` is the one signal handlers return to. The offset may be of an
    /// address inside of the call before it, so the code is looked for at the next byte, too.
    fn is_signal_return(&mut self, offset: u64) -> bool {
        let Some(path) = &self.file else { return false };
        if self.signal_returns.len() >= MEMO_MAX {
            self.signal_returns.clear();
        }
        *self.signal_returns.entry(offset).or_insert_with(|| {
            let mut code = [0; arch::SIGNAL_RETURN.len() + 1];
            let read = open_regular(path)
                .is_some_and(|file| file.read_exact_at(&mut code, offset).is_ok());
            read && (code.starts_with(&arch::SIGNAL_RETURN) || code.ends_with(&arch::SIGNAL_RETURN))
        })
    }
}

/// Whether a mapping's name is that of a file.
pub(crate) fn is_file(path: &[u8]) -> bool {
    nature(path) == ImageKind::Elf
}

/// What a mapping's name says it is.
fn nature(path: &[u8]) -> ImageKind {
    const NO_FILES: [&[u8]; 6] =
        [b"//anon", b"/memfd:", b"/dev/zero", b"/SYSV", b"/anon_hugepage", b"/drm mm object"];
    match path {
        b"[vdso]" => ImageKind::Vdso,
        _ if NO_FILES.iter().any(|name| path.starts_with(name)) => ImageKind::Anonymous,
        [b'/', ..] => ImageKind::Elf,
        _ => ImageKind::Anonymous,
    }
}

fn open_regular(path: &Path) -> Option<File> {
    // Not to wait should it be a pipe by now.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().is_ok_and(|metadata| metadata.is_file()).then_some(file)
}

/// Opens the file behind a mapping: at its path, at its path in the process's root directory, or
/// as the very thing the process mapped.
fn open_file(path: &[u8], deleted: bool, mmap: &Mmap<'_>, hold: bool) -> Image {
    let mut image = Image::without_file(ImageKind::Elf, path, None);
    let mut candidates = candidates(path, deleted, mmap).into_iter();
    let Some((path, cache, elf)) = candidates.find_map(|path| open_candidate(path, mmap.identity))
    else {
        return image;
    };
    image.build_id.clone_from(&elf.build_id);
    image.elf = Some(elf);
    image.file = Some(path);
    if hold {
        image.tables = Tables::Open(Box::new(cache));
    }
    image
}

/// Opens the file behind a mapping, whatever it is.
pub(crate) fn open_mapped(mmap: &Mmap<'_>) -> Option<File> {
    let plain = mmap.path.strip_suffix(DELETED);
    let candidates = candidates(plain.unwrap_or(mmap.path), plain.is_some(), mmap);
    candidates.iter().find_map(|path| open_same(path, mmap.identity))
}

/// Where the file behind a mapping may be found.
fn candidates(path: &[u8], deleted: bool, mmap: &Mmap<'_>) -> Vec<PathBuf> {
    let plain = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let rooted = PathBuf::from(format!("/proc/{}/root", mmap.pid))
        .join(plain.strip_prefix("/").unwrap_or(&plain));
    let end = mmap.start.wrapping_add(mmap.length);
    let mapped = PathBuf::from(format!("/proc/{}/map_files/{:x}-{end:x}", mmap.pid, mmap.start));
    if deleted { vec![mapped] } else { vec![plain, rooted, mapped] }
}

/// Opens a file if it is the one the kernel mapped, as far as can be told: by its inode. The
/// device is not compared, layered file systems report another one.
fn open_same(path: &Path, identity: Identity) -> Option<File> {
    let file = open_regular(path)?;
    (file.metadata().ok()?.ino() == identity.inode).then_some(file)
}

fn open_candidate(path: PathBuf, identity: Identity) -> Option<(PathBuf, ReadCache<File>, Elf)> {
    let cache = ReadCache::new(open_same(&path, identity)?);
    let elf = Elf::read(&cache)?;
    Some((path, cache, elf))
}

/// The vDSO, read from our own memory: every process has the same.
fn open_vdso() -> Image {
    let mut image = Image::without_file(ImageKind::Vdso, b"[vdso]", None);
    let Some(bytes) = read_vdso() else { return image };
    let cache = ReadCache::new(Cursor::new(bytes));
    if let Some(elf) = Elf::read(&cache) {
        image.build_id.clone_from(&elf.build_id);
        image.elf = Some(elf);
    }
    image.tables = Tables::Read(elf::read_tables(&cache).map(Box::new));
    image
}

fn read_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let (start, end) = named_range(&maps, "[vdso]")?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// The addresses of the mapping of that name, in the text of /proc/PID/maps.
fn named_range(maps: &str, name: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with(name))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The code of one process: its mappings, and the images behind them.
#[derive(Debug)]
pub(crate) struct ProcessCode<'a> {
    pub(crate) maps: &'a Maps,
    pub(crate) images: &'a mut Images,
}

impl Code for ProcessCode<'_> {
    fn look(&mut self, address: u64) -> Look {
        match self.maps.find(address) {
            Some((image, offset)) => self.images.look(image, offset),
            None => Look::Unmapped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmap<'a>(path: &'a [u8], identity: Identity) -> Mmap<'a> {
        Mmap {
            pid: std::process::id(),
            start: 0x4000,
            length: 0x1000,
            offset: 0x2000,
            identity,
            path,
        }
    }

    #[test]
    fn names_tell_what_a_mapping_is() {
        for (name, kind) in [
            (&b"/usr/lib/x.so"[..], ImageKind::Elf),
            (b"[vdso]", ImageKind::Vdso),
            (b"[heap]", ImageKind::Anonymous),
            (b"//anon", ImageKind::Anonymous),
            (b"/memfd:jit", ImageKind::Anonymous),
            (b"anon_inode:[x]", ImageKind::Anonymous),
            (b"", ImageKind::Anonymous),
        ] {
            assert_eq!(nature(name), kind);
        }
    }

    #[test]
    fn a_file_is_opened_once_and_only_if_it_is_the_one() {
        let mut images = Images::default();
        let path = std::env::current_exe().expect("a path");
        let inode = path.metadata().expect("this program").ino();
        let path = path.as_os_str().as_bytes();
        let right = mmap(path, Identity { inode, ..Identity::default() });
        let (first, offset) = images.of_mapping(&right, 1);
        assert_eq!((first, offset), (0, 0x2000));
        assert_eq!(images.of_mapping(&right, 2).0, first);
        assert!(images.get(first).elf.is_some());
        let wrong = mmap(path, Identity { inode: inode + 1, ..Identity::default() });
        let (second, _) = images.of_mapping(&wrong, 1);
        assert!(images.get(second).elf.is_none());
        assert!(images.get(second).build_id.is_empty());
        assert_eq!(images.open, 1);
    }

    #[test]
    fn anonymous_memory_belongs_to_its_process_and_counts_addresses() {
        let mut images = Images::default();
        let anon = mmap(b"//anon", Identity::default());
        let (first, offset) = images.of_mapping(&anon, 1);
        assert_eq!(offset, 0x4000);
        assert_ne!(images.of_mapping(&anon, 2).0, first);
        assert_eq!(
            (images.get(first).path.as_slice(), images.get(first).owner),
            (&b"[anon]"[..], Some((std::process::id(), 1)))
        );
    }

    #[test]
    fn the_vdso_can_be_unwound() {
        let mut images = Images::default();
        let (vdso, _) = images.of_mapping(&mmap(b"[vdso]", Identity::default()), 1);
        let image = images.get(vdso);
        assert!(matches!(image.tables, Tables::Read(Some(_))), "{image:?}");
        assert!(!image.build_id.is_empty());
    }

    #[test]
    fn the_range_of_a_name_is_found() {
        let maps = "7f-80 r-xp 0 0 0\n7ffd0-7ffd2 r-xp 00000000 00:00 0    [vdso]\n";
        assert_eq!(named_range(maps, "[vdso]"), Some((0x7ffd0, 0x7ffd2)));
        assert_eq!(named_range(maps, "[none]"), None);
    }
}
