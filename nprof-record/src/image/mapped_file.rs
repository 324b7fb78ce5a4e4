//! Finds and opens the files code was mapped from. Whoever owns a directory may have put
//! something else in the place of a file by now, so a file is looked at before it is opened: to
//! open a device or a pipe may do something, or wait. (To look at a file of a file system in user
//! space may wait, too: that is not kept from.)

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nprof_object::path::split_deleted;

use crate::perf::record::Mmap;

/// Opens the file behind a mapping, whatever it is.
pub(crate) fn open(mmap: &Mmap<'_>) -> Option<File> {
    candidates(mmap).iter().find_map(|path| open_same(path, mmap.identity.inode))
}

/// Where the file behind a mapping may be found: at its path, at its path in the process's root
/// directory, or as the very thing the process mapped.
pub(crate) fn candidates(mmap: &Mmap<'_>) -> Vec<PathBuf> {
    let (path, deleted) = split_deleted(mmap.path);
    let plain = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    let rooted = PathBuf::from(format!("/proc/{}/root", mmap.pid))
        .join(plain.strip_prefix("/").unwrap_or(&plain));
    let start = mmap.start;
    let end = start.wrapping_add(mmap.length);
    let mapped = PathBuf::from(format!("/proc/{}/map_files/{start:x}-{end:x}", mmap.pid));
    if deleted { vec![mapped] } else { vec![plain, rooted, mapped] }
}

/// Opens a file if it is a regular one, and the one the kernel mapped, as far as can be told: by
/// its inode. The device is not compared, layered file systems report another one.
pub(crate) fn open_same(path: &Path, inode: u64) -> Option<File> {
    let flags = libc::O_PATH | libc::O_NOCTTY;
    let place = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = place.metadata().ok()?;
    if !metadata.is_file() || metadata.ino() != inode {
        return None;
    }
    // The very file that was looked at.
    let path = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn only_the_regular_file_that_was_mapped_is_opened() {
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
