//! Finds and opens the files of mappings.
//!
//! The owner of a directory can replace a file by a device or a FIFO, and opening one can block or
//! have side effects. So the type is checked before the file is opened. This does not protect
//! against blocking FUSE file systems.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nprof_object::path::split_deleted;

use crate::os::code_mapping::Mmap;
use crate::os::procfs;
use crate::sys;

/// The most descriptors of a process that are searched for the file of a mapping.
const DESCRIPTORS_MAX: usize = 256;

/// The size of a file and the time of its last modification: another version has other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    bytes: u64,
    /// In ns since 1970.
    modified_ns: i64,
}

impl FileVersion {
    /// A version that no file has.
    pub(crate) const NONE: Self = Self { bytes: u64::MAX, modified_ns: i64::MIN };

    /// Returns the version of the file of a mapping at its own path. None if another file is there, or the
    /// mapping is of no file.
    pub(crate) fn at_path_of(mmap: &Mmap<'_>) -> Option<Self> {
        let (path, is_deleted) = split_deleted(&mmap.path);
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let metadata = (!is_deleted).then(|| path.metadata().ok()).flatten()?;
        (metadata.is_file() && metadata.ino() == mmap.identity.inode).then(|| Self::of(&metadata))
    }

    /// Returns the version of an open file.
    pub(crate) fn of_file(file: &File) -> Option<Self> {
        file.metadata().ok().map(|metadata| Self::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Self {
        let modified_ns = metadata.mtime().saturating_mul(1_000_000_000);
        Self {
            bytes: metadata.len(),
            modified_ns: modified_ns.saturating_add(metadata.mtime_nsec()),
        }
    }

    /// True if the file was modified after `time_ns` of the monotonic clock. A time in the future is no
    /// evidence: the clock was set, or the file comes from another machine.
    pub(crate) fn is_after(self, time_ns: u64) -> bool {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ns = i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX);
        let age_ns = u64::try_from(now_ns.saturating_sub(self.modified_ns));
        age_ns.is_ok_and(|age_ns| sys::monotonic_ns().saturating_sub(age_ns) > time_ns)
    }
}

/// Opens the regular file of a mapping. None if it cannot be opened.
pub(crate) fn open(mmap: &Mmap<'_>) -> Option<File> {
    candidates(mmap).find_map(|path| open_same(&path, mmap.identity.inode))
}

/// Returns the paths at which the file of a mapping may be: its own, that in the root directory of
/// the process (as in containers), and links in /proc to the executed file, to the mapped file and
/// to open files.
pub(crate) fn candidates(mmap: &Mmap<'_>) -> impl Iterator<Item = PathBuf> {
    let (path, is_deleted) = split_deleted(&mmap.path);
    let plain = (!is_deleted).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
    let named = plain.clone();
    let (pid, start) = (mmap.pid, mmap.start);
    let end = start.wrapping_add(mmap.length);
    // Only if the file is not at its own path: files are mapped often.
    let in_proc = std::iter::once_with(move || {
        let task = procfs::living_thread(pid).unwrap_or(pid);
        let root = PathBuf::from(format!("/proc/{task}/root"));
        let rooted = named.map(|path| root.join(path.strip_prefix("/").unwrap_or(&path)));
        // The link to the executed file needs the same user, map_files CAP_CHECKPOINT_RESTORE or
        // CAP_SYS_ADMIN.
        let links = ["exe".to_owned(), format!("map_files/{start:x}-{end:x}")];
        let links = links.map(|name| PathBuf::from(format!("/proc/{task}/{name}")));
        // The last resort: a program that loads a library from memory mostly keeps it open.
        let open = std::iter::once_with(move || descriptors(task)).flatten();
        rooted.into_iter().chain(links).chain(open.filter(move |_| is_deleted))
    });
    plain.into_iter().chain(in_proc.flatten())
}

/// Returns the links to the open files of a process.
fn descriptors(task: u32) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{task}/fd")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).take(DESCRIPTORS_MAX)
}

/// Opens a file if it is a regular one and has the inode of the mapping.
///
/// The device is not compared: overlayfs and btrfs report another one in stat(2) than in mappings.
pub(crate) fn open_same(path: &Path, inode: u64) -> Option<File> {
    // O_PATH opens neither devices nor FIFOs themselves (open(2)).
    let flags = libc::O_PATH | libc::O_NOCTTY;
    let place = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = place.metadata().ok()?;
    if !metadata.is_file() || metadata.ino() != inode {
        return None;
    }
    // Through the descriptor, so that it is the checked file even if the path is replaced now.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

/// True if this process cannot open the two descriptors that [`open_same`] needs.
pub(crate) fn lacks_descriptors() -> bool {
    let is_full =
        |error: io::Error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    let first = File::open("/");
    let second = File::open("/");
    first.is_err_and(is_full) || second.is_err_and(is_full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::code_mapping::Identity;
    use nprof_object::{FileOffset, RuntimeAddress};
    use std::io::Read;

    #[test]
    fn unlinked_file_is_found_among_open_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, b"text").expect("written");
        let held = File::open(&path).expect("it");
        std::fs::remove_file(&path).expect("removed");
        let inode = held.metadata().expect("it").ino();
        let mut mmap = Mmap {
            pid: std::process::id(),
            start: RuntimeAddress(0),
            length: 1,
            offset: FileOffset(0),
            identity: Identity { inode, ..Identity::default() },
            path: [path.as_os_str().as_bytes(), b" (deleted)"].concat().into(),
        };
        assert!(open(&mmap).is_some());
        mmap.identity.inode =
            std::env::current_exe().and_then(|it| it.metadata()).expect("it").ino();
        assert!(open(&mmap).is_some(), "the executed file");
        // Not that of the file: another test may get it as soon as the file is closed.
        mmap.identity.inode = u64::MAX;
        assert!(open(&mmap).is_none());
    }

    #[test]
    fn opens_only_regular_file_with_inode() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name| directory.path().join(name);
        std::fs::write(at("file"), b"text").expect("written");
        let inode = at("file").metadata().expect("it").ino();
        std::os::unix::fs::symlink(at("file"), at("link")).expect("a link");
        for path in [at("file"), at("link")] {
            let mut text = String::new();
            let mut file = open_same(&path, inode).expect("the file");
            file.read_to_string(&mut text).expect("read");
            assert_eq!(text, "text");
        }
        assert!(open_same(&at("file"), inode + 1).is_none());
        let tty = Path::new("/dev/tty").metadata().expect("a device").ino();
        std::fs::remove_file(at("link")).expect("removed");
        std::os::unix::fs::symlink("/dev/tty", at("link")).expect("a link");
        assert!(open_same(&at("link"), tty).is_none(), "a device");
        assert!(
            open_same(directory.path(), directory.path().metadata().expect("it").ino()).is_none()
        );
        assert!(open_same(&at("none"), inode).is_none());
    }
}
