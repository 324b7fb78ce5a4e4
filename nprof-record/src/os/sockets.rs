//! The names of sockets: their peers, or the addresses at which they listen.
//!
//! They are read from the tables of /proc. A duplicate of the descriptor (pidfd_getfd(2)) would have them at once, but
//! a socket that the program closes at that time would stay open, with its events in epoll(7).

use std::cell::RefCell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustc_hash::FxHashMap;

use crate::sys;

/// The time from one reading of a table to the next is at least this multiple of the time that it takes, and this
/// time. The kernel visits its whole hash table for those of TCP: 3 ms with 24 GiB of memory.
const PAUSE_TIMES: u64 = 100;
const PAUSE_MIN_NS: u64 = 10_000_000;

/// The time after which a socket that was in no table is searched again: pairs of sockets never have a name.
const ABSENT_NS: u64 = 1_000_000_000;

/// The most names that are kept, and the most sockets without one.
const NAMES_MAX: usize = 1 << 16;

/// The files of /proc/PID/net, and the protocols in names: none of local sockets. Those that take longest are last.
const TABLES: [(&str, Option<&str>); 5] = [
    ("unix", None),
    ("udp", Some("udp")),
    ("udp6", Some("udp")),
    ("tcp", Some("tcp")),
    ("tcp6", Some("tcp")),
];

/// The names of sockets, by the numbers of their inodes.
#[derive(Debug, Default)]
pub(crate) struct SocketNames(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    names: FxHashMap<u64, Vec<u8>>,
    tables: [Table; TABLES.len()],
    /// The times at which the search for sockets without a name began, by the numbers of their inodes.
    searched_since_ns: FxHashMap<u64, u64>,
}

/// The readings of a table.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    /// The start of the last one that succeeded.
    read_ns: u64,
    /// The time from which on it may be read again.
    due_ns: u64,
}

impl SocketNames {
    /// Returns the name of the socket that a link of /proc/PID/fd shows, such as `tcp:10.0.0.1:5432` or
    /// `unix:/run/server`. None for other files, and for a socket without peer and address.
    pub(crate) fn name(&self, pid: u32, link: &[u8]) -> Option<Vec<u8>> {
        let inode = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
        let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
        let mut known = self.0.borrow_mut();
        if !known.names.contains_key(&inode) {
            known.search(pid, inode);
        }
        known.names.get(&inode).cloned()
    }
}

impl Known {
    /// Reads tables of the network namespace of a process until a socket is found: each at most once in a second.
    fn search(&mut self, pid: u32, inode: u64) {
        let now_ns = sys::monotonic_ns();
        if self.names.len().max(self.searched_since_ns.len()) >= NAMES_MAX {
            self.names.clear();
            self.searched_since_ns.clear();
        }
        let since_ns = self.searched_since_ns.entry(inode).or_insert(now_ns);
        // It may be bound or connected by now.
        if now_ns.saturating_sub(*since_ns) >= ABSENT_NS {
            *since_ns = now_ns;
        }
        let since_ns = *since_ns;
        for table in 0..TABLES.len() {
            let Table { read_ns, due_ns } = self.tables[table];
            if read_ns < since_ns && due_ns <= sys::monotonic_ns() {
                self.read(pid, table);
            }
            if self.names.contains_key(&inode) {
                self.searched_since_ns.remove(&inode);
                return;
            }
        }
    }

    /// Reads a table.
    fn read(&mut self, pid: u32, table: usize) {
        let (file, protocol) = TABLES[table];
        let begin_ns = sys::monotonic_ns();
        if let Ok(text) = fs::read(format!("/proc/{pid}/net/{file}")) {
            self.tables[table].read_ns = begin_ns;
            let lines = text.split(|&byte| byte == b'\n').skip(1);
            let name = |line| match protocol {
                Some(protocol) => internet(line, protocol),
                None => unix(line),
            };
            self.names.extend(lines.filter_map(name).take(NAMES_MAX));
        }
        let end_ns = sys::monotonic_ns();
        let pause_ns = end_ns.saturating_sub(begin_ns).saturating_mul(PAUSE_TIMES);
        self.tables[table].due_ns = end_ns.saturating_add(pause_ns.max(PAUSE_MIN_NS));
    }
}

/// Parses a line of a table of internet sockets (net/ipv4/tcp_ipv4.c, `get_tcp4_sock`). None if it has no
/// address.
fn internet(line: &[u8], protocol: &str) -> Option<(u64, Vec<u8>)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let (local, peer) = (address(fields.next()?)?, address(fields.next()?)?);
    let inode = fields.nth(6)?.parse().ok().filter(|&inode| inode != 0)?;
    let name = match (local.port(), peer.port()) {
        // It is not bound.
        (0, 0) => return None,
        (_, 0) => format!("{protocol}-at:{local}"),
        _ => format!("{protocol}:{peer}"),
    };
    Some((inode, name.into_bytes()))
}

/// Parses an address of such a table: the words of the address as the processor has them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok();
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for (at, place) in bytes.chunks_exact_mut(4).enumerate() {
                place.copy_from_slice(&word(at)?.to_ne_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Parses a line of the table of local sockets (net/unix/af_unix.c, `unix_seq_show`). None if it has no
/// path.
fn unix(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut rest = line;
    let mut inode = &b""[..];
    // The path is the rest of the line, and may have spaces.
    for _ in 0..7 {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|&byte| byte == b' ')?;
        (inode, rest) = rest.split_at(end);
    }
    let path = rest.strip_prefix(b" ").filter(|path| !path.is_empty())?;
    let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
    Some((inode, [b"unix:", path].concat()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn lines_of_tables_are_named() {
        let line = b"   1: 0100007F:0CEA 0200007F:1538 01 00000000:00000000 00:00000000 00000000     0        0 1161 1 0";
        assert_eq!(internet(line, "tcp"), Some((1161, b"tcp:127.0.0.2:5432".to_vec())));
        let line = b"   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7 1 0";
        assert_eq!(internet(line, "tcp"), Some((7, b"tcp-at:0.0.0.0:2024".to_vec())));
        assert_eq!(internet(b"  sl  local_address rem_address   st", "tcp"), None);
        let v6 = address("B80D0120000000000000000001000000:0050").expect("an address");
        assert_eq!(v6.to_string(), "[2001:db8::1]:80");
        assert_eq!(
            address("0000000000000000FFFF00000100007F:0050").unwrap().to_string(),
            "127.0.0.1:80"
        );
        let line = b"0000000043de3893: 00000003 00000000 00000000 0001 03  1157 /run/a b";
        assert_eq!(unix(line), Some((1157, b"unix:/run/a b".to_vec())));
        assert_eq!(unix(b"0000000043de3893: 00000003 00000000 00000000 0001 03  1157"), None);
    }

    #[test]
    fn connected_socket_has_its_peer() {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("connected");
        let pid = std::process::id();
        let link = |fd: i32| fs::read_link(format!("/proc/{pid}/fd/{fd}")).expect("open");
        let names = SocketNames::default();
        let name = names.name(pid, link(stream.as_raw_fd()).as_os_str().as_bytes());
        assert_eq!(name, Some(format!("tcp:{address}").into_bytes()));
        let name = names.name(pid, link(listener.as_raw_fd()).as_os_str().as_bytes());
        assert_eq!(name, Some(format!("tcp-at:{address}").into_bytes()));
        assert_eq!(names.name(pid, b"/dev/null"), None);
    }

    #[test]
    fn socket_without_a_name_is_searched_once() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let pid = std::process::id();
        let link = fs::read_link(format!("/proc/{pid}/fd/{}", one.as_raw_fd())).expect("open");
        let names = SocketNames::default();
        assert_eq!(names.name(pid, link.as_os_str().as_bytes()), None);
        let begin_search = |since_ns| {
            let mut known = names.0.borrow_mut();
            known.tables.iter_mut().for_each(|table| table.due_ns = 0);
            known.searched_since_ns.values_mut().for_each(|since| *since = since_ns);
            known.tables.map(|table| table.read_ns)
        };
        // Its search began before the tables were read, less than a second ago.
        let read_ns = begin_search(sys::monotonic_ns());
        names.0.borrow_mut().tables.iter_mut().for_each(|table| table.read_ns = u64::MAX);
        assert_eq!(names.name(pid, link.as_os_str().as_bytes()), None);
        assert_eq!(names.0.borrow().tables.map(|table| table.read_ns), [u64::MAX; TABLES.len()]);
        assert!(read_ns.iter().all(|&read_ns| read_ns > 0));
        // It is searched again later.
        begin_search(0);
        names.0.borrow_mut().tables.iter_mut().for_each(|table| table.read_ns = 1);
        assert_eq!(names.name(pid, link.as_os_str().as_bytes()), None);
        assert!(names.0.borrow().tables.iter().all(|table| table.read_ns > 1));
    }
}
