//! The files of descriptors, as the links in /proc/PID/fd show them later.
//!
//! A program may have closed a descriptor by then, and have opened another file with its number: servers do
//! so for each connection.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use crate::sys;

/// A file, as the program had it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    /// The number of its inode.
    pub(crate) inode: u64,
    /// Its type, as `st_mode` has it. None if it is unknown.
    pub(crate) kind: Option<u32>,
    /// True if `inode` is the number that stat(2) shows: that of the kernel differs on some file systems.
    pub(crate) is_shown: bool,
}

/// The file systems of which stat(2) shows the inode numbers of the kernel, by statfs(2). Of one with layers it
/// shows those of a layer.
const WITH_KERNEL_INODES: [i64; 6] = [
    libc::EXT4_SUPER_MAGIC,
    libc::XFS_SUPER_MAGIC,
    libc::BTRFS_SUPER_MAGIC,
    libc::TMPFS_MAGIC,
    // Terminals (devpts).
    0x1cd1,
    // epoll, timers and events (anon_inodefs): they share one inode.
    0x0904_1934,
];

impl FileId {
    /// Reads that of an open descriptor of a task. None if it has none with this number.
    pub(crate) fn of(tid: u32, descriptor: u32) -> Option<Self> {
        let file = fs::metadata(format!("/proc/{tid}/fd/{descriptor}")).ok()?;
        let kind = Some(file.mode() & libc::S_IFMT);
        Some(Self { inode: file.ino(), kind, is_shown: true })
    }

    /// True if a descriptor is that of this file, as far as its link and its metadata show.
    fn may_be(self, link: &[u8], tid: u32, descriptor: u32) -> bool {
        if let Some(inode) = inode_of(link) {
            let is_kind = self.kind.is_none_or(|kind| kind == kind_of(link));
            return is_kind && inode == self.inode;
        }
        let Some(found) = Self::of(tid, descriptor) else { return false };
        let is_kind = self.kind.is_none_or(|kind| Some(kind) == found.kind);
        is_kind
            && (found.inode == self.inode
                || !self.is_shown
                    && found.kind != Some(libc::S_IFIFO)
                    && !shows_kernel_inode(tid, descriptor))
    }

    /// Returns the link of a socket. None for other files.
    fn link(self) -> Option<Vec<u8>> {
        let is_socket = self.kind == Some(libc::S_IFSOCK);
        is_socket.then(|| format!("socket:[{}]", self.inode).into_bytes())
    }
}

/// True if stat(2) shows the inode number of the kernel for a descriptor.
fn shows_kernel_inode(tid: u32, descriptor: u32) -> bool {
    let path = CString::new(format!("/proc/{tid}/fd/{descriptor}"));
    path.is_ok_and(|path| {
        sys::file_system_of(&path).is_ok_and(|found| WITH_KERNEL_INODES.contains(&found))
    })
}

/// Returns the link of a descriptor of a task, such as `/etc/hosts` or `socket:[4711]`. `file` is the one that it
/// was; None if that is unknown. None if it is closed, or that of another file by now.
pub(crate) fn link_of(tid: u32, descriptor: u32, file: Option<FileId>) -> Option<Vec<u8>> {
    let link = fs::read_link(format!("/proc/{tid}/fd/{descriptor}")).ok();
    let link = link.map(|path| path.into_os_string().into_vec());
    let Some(file) = file else { return link };
    link.filter(|link| file.may_be(link, tid, descriptor)).or_else(|| file.link())
}

/// Returns the number of the inode in the link of a socket or a pipe. None for other files.
fn inode_of(link: &[u8]) -> Option<u64> {
    let after = link.strip_prefix(b"socket:[").or_else(|| link.strip_prefix(b"pipe:["))?;
    std::str::from_utf8(after.strip_suffix(b"]")?).ok()?.parse().ok()
}

/// Returns the type of the file of such a link.
fn kind_of(link: &[u8]) -> u32 {
    if link.starts_with(b"socket:") { libc::S_IFSOCK } else { libc::S_IFIFO }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn link_is_that_of_the_same_file_only() {
        let own = std::process::id();
        let null = fs::File::open("/dev/null").expect("it exists");
        let (reader, writer) = io::pipe().expect("a pipe");
        let (socket, peer) = UnixStream::pair().expect("sockets");
        let numbers = [null.as_raw_fd(), reader.as_raw_fd(), socket.as_raw_fd(), peer.as_raw_fd()];
        let ids = numbers.map(|number| FileId::of(own, number as u32).expect("it is open"));
        for (at, number) in numbers.into_iter().enumerate() {
            let link = |file| link_of(own, number as u32, file);
            assert!(link(None).is_some());
            for (other, id) in ids.into_iter().enumerate() {
                let found = link(Some(id));
                let kernel = link(Some(FileId { is_shown: false, ..id }));
                assert_eq!(found, kernel);
                if at == other {
                    assert_eq!(found, link(None));
                } else if other >= 2 {
                    let socket = format!("socket:[{}]", id.inode).into_bytes();
                    assert_eq!(found, Some(socket), "a socket is known by its inode");
                } else {
                    assert_eq!(found, None, "{at} {other}");
                }
            }
        }
        assert_eq!(link_of(own, numbers[0] as u32, Some(ids[0])), Some(b"/dev/null".to_vec()));
        drop((reader, writer));
        assert_eq!(link_of(own, u32::MAX, None), None);
        assert_eq!(link_of(own, u32::MAX, Some(ids[1])), None);
    }

    #[test]
    fn another_file_with_the_number_is_known_by_the_inode_of_the_kernel() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
            return eprintln!("SKIPPED: no file system in memory");
        };
        let path = |name| directory.path().join(name);
        let [first, second] =
            ["first", "second"].map(|name| fs::File::create(path(name)).expect("created"));
        let own = std::process::id();
        let of = |file: &fs::File| FileId::of(own, file.as_raw_fd() as u32).expect("it is open");
        let known = FileId { is_shown: false, ..of(&first) };
        let link = |file: &fs::File| link_of(own, file.as_raw_fd() as u32, Some(known));
        assert_eq!(link(&first), Some(path("first").into_os_string().into_vec()));
        assert_eq!(link(&second), None);
    }
}
