//! The names of sockets: their peers, or the addresses at which they listen.

use std::cell::RefCell;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustc_hash::FxHashMap;

use crate::sys;

/// The time from one reading of the tables of sockets to the next is at least this multiple of the time that it
/// takes, 10 ms for ten thousand sockets, and this time.
const PAUSE_TIMES: u64 = 100;
const PAUSE_MIN_NS: u64 = 10_000_000;

/// The most names that are kept.
const NAMES_MAX: usize = 1 << 16;

/// The files of /proc/PID/net, and the protocols in names.
const INTERNET: [(&str, &str); 4] =
    [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")];

/// The names of sockets, by the numbers of their inodes.
#[derive(Debug, Default)]
pub(crate) struct SocketNames(RefCell<Known>);

#[derive(Debug, Default)]
struct Known {
    names: FxHashMap<u64, Vec<u8>>,
    /// The time at which the tables may be read again.
    next_ns: u64,
}

impl SocketNames {
    /// Returns the name of the socket that a link of /proc/PID/fd shows, such as `tcp:10.0.0.1:5432` or
    /// `unix:/run/server`. None for other files, and for a socket without peer and address.
    pub(crate) fn name(&self, pid: u32, link: &[u8]) -> Option<Vec<u8>> {
        let inode = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
        let inode = std::str::from_utf8(inode).ok()?.parse().ok()?;
        // Of a socket that was neither bound nor connected at that time, the tables are read again.
        let mut known = self.0.borrow_mut();
        let now_ns = sys::monotonic_ns();
        if !known.names.contains_key(&inode) && now_ns >= known.next_ns {
            known.read(pid);
            let end_ns = sys::monotonic_ns();
            let pause_ns = end_ns.saturating_sub(now_ns).saturating_mul(PAUSE_TIMES);
            known.next_ns = end_ns.saturating_add(pause_ns.max(PAUSE_MIN_NS));
        }
        known.names.get(&inode).cloned()
    }
}

impl Known {
    /// Reads the sockets of the network namespace of a process.
    fn read(&mut self, pid: u32) {
        let table = |name: &str| fs::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        for (file, protocol) in INTERNET {
            let text = table(file);
            let lines = text.split(|&byte| byte == b'\n').skip(1);
            self.names.extend(lines.filter_map(|line| internet(line, protocol)).take(NAMES_MAX));
        }
        let text = table("unix");
        let lines = text.split(|&byte| byte == b'\n').skip(1);
        self.names.extend(lines.filter_map(unix).take(NAMES_MAX));
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
}
