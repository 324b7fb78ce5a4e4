//! Finds and opens the files of mappings.
//!
//! The owner of a directory can replace a file by a device or a FIFO, and opening one can block or
//! have side effects. So the type is checked before the file is opened. This does not protect
//! against blocking FUSE file systems.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nprof_object::path::split_deleted;

use crate::os::code_mapping::Mmap;
use crate::os::procfs;

/// Opens the regular file of a mapping. None if it cannot be opened.
pub(crate) fn open(mmap: &Mmap<'_>) -> Option<File> {
    candidates(mmap).iter().find_map(|path| open_same(path, mmap.identity.inode))
}

/// Returns the paths at which the file of a mapping may be: its own, that in the root directory of
/// the process (as in containers), and the link to the mapped file in /proc.
pub(crate) fn candidates(mmap: &Mmap<'_>) -> Vec<PathBuf> {
    let (path, is_deleted) = split_deleted(mmap.path);
    let plain = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let task = procfs::living_thread(mmap.pid).unwrap_or(mmap.pid);
    let rooted =
        PathBuf::from(format!("/proc/{task}/root")).join(plain.strip_prefix("/").unwrap_or(&plain));
    let start = mmap.start;
    let end = start.wrapping_add(mmap.length);
    let mapped = PathBuf::from(format!("/proc/{task}/map_files/{start:x}-{end:x}"));
    // map_files is last: it needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
    if is_deleted { vec![mapped] } else { vec![plain, rooted, mapped] }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

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
