//! The socket that processes connect to.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recvmsg, socket_with,
};

use super::ring::Ring;
use crate::protocol::Hello;

/// The connections that wait for `accept`: programs that start in a storm do not wait for the recorder. The kernel
/// lowers it to net.core.somaxconn, 4096 since Linux 5.4.
const BACKLOG: i32 = 4096;

/// The most connections without a message that are kept, and the time for which they are.
const SILENT_MAX: usize = 256;
const SILENT_TIME: Duration = Duration::from_secs(1);

/// The listening socket of the recorder, with a random abstract name.
///
/// Any user in the network namespace may connect to it. A process proves by the secret of the settings that the
/// recorder started it.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
    secret: u64,
    /// Connections that have no message yet, the oldest first.
    silent: Vec<(OwnedFd, Instant)>,
}

/// A process that started to record.
#[derive(Debug)]
pub struct Connection {
    /// The process id in the namespace of the recorder.
    pub pid: i32,
    /// The message of the process.
    pub hello: Hello,
    /// The ring that the process writes.
    pub ring: Ring,
    /// The connection: with [`crate::protocol::Settings::acknowledge`] the process waits until it is closed.
    pub socket: OwnedFd,
}

/// The first message of a connection.
#[derive(Debug)]
enum First {
    Process(Box<Connection>),
    /// It has not arrived.
    NotYet(OwnedFd),
    /// The peer only asked whether the recorder lives, died before it sent one, or is a stranger.
    Nothing,
}

impl Listener {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// Those of socket(2), bind(2), listen(2) and getrandom(2).
    pub fn bind() -> io::Result<Self> {
        let mut random = [0_u8; 24];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let (secret, number) = random.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let number: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("nprof-{number}");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        Ok(Listener { socket, name, secret: u64::from_ne_bytes(*secret), silent: Vec::new() })
    }

    /// Returns the name of the socket for [`crate::protocol::Settings::socket`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number for [`crate::protocol::Settings::secret`].
    pub fn secret(&self) -> u64 {
        self.secret
    }

    /// Accepts the next process; None if no process waits. The socket is readable if one does.
    ///
    /// Strangers, which do not know the secret, are dropped. A process that has connected and sends its message later
    /// is returned by a later call, within a second.
    ///
    /// # Errors
    ///
    /// Those of accept(2) and recvmsg(2); `InvalidData` if the ring is malformed. The listener can go on after each
    /// of them.
    pub fn accept(&mut self) -> io::Result<Option<Connection>> {
        // Connections in the order in which they came: a parent before its children.
        if let Some(connection) = self.receive_late()? {
            return Ok(Some(connection));
        }
        // Programs that only connect must not keep the recorder here.
        for _ in 0..BACKLOG {
            let socket = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            match self.receive(socket)? {
                First::Process(connection) => return Ok(Some(*connection)),
                // The process is between connect(2) and its message, or is stopped there.
                First::NotYet(socket) if self.silent.len() < SILENT_MAX => {
                    self.silent.push((socket, Instant::now()));
                }
                First::NotYet(_) | First::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Receives the message of a process that has connected before; None if none has sent one.
    fn receive_late(&mut self) -> io::Result<Option<Connection>> {
        let ready = self.ready()?;
        let mut found = None;
        for ((socket, since), is_ready) in std::mem::take(&mut self.silent).into_iter().zip(ready) {
            let is_read = is_ready && found.is_none();
            let first = if is_read { self.receive(socket) } else { Ok(First::NotYet(socket)) };
            match first {
                Ok(First::Process(connection)) => found = Some(*connection),
                Ok(First::NotYet(socket)) if is_ready || since.elapsed() < SILENT_TIME => {
                    self.silent.push((socket, since));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Returns whether each silent connection has a message or an end, by one system call for all.
    fn ready(&self) -> io::Result<Vec<bool>> {
        let mut polled: Vec<_> =
            self.silent.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::IN)).collect();
        if !polled.is_empty() {
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        }
        Ok(polled.iter().map(|it| !it.revents().is_empty()).collect())
    }

    /// Receives the message of a process, if there is one.
    fn receive(&self, socket: OwnedFd) -> io::Result<First> {
        let mut bytes = [0; Hello::BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message =
            match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
                Err(rustix::io::Errno::AGAIN) => return Ok(First::NotYet(socket)),
                Err(rustix::io::Errno::CONNRESET) => return Ok(First::Nothing),
                message => message?,
            };
        let file = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let hello = Hello::parse(bytes.get(..message.bytes).unwrap_or_default());
        let Some(hello) = hello.filter(|hello| hello.secret == self.secret) else {
            return Ok(First::Nothing);
        };
        let ring = Ring::map(&file.ok_or(io::ErrorKind::InvalidData)?)?;
        let pid = socket_peercred(&socket)?.pid.as_raw_nonzero().get();
        Ok(First::Process(Box::new(Connection { pid, hello, ring, socket })))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{SendFlags, connect, send, socket_with};

    use super::*;

    fn connected(listener: &Listener) -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        let address = SocketAddrUnix::new_abstract_name(listener.name().as_bytes());
        connect(&socket, &address.expect("a name")).expect("connected");
        socket
    }

    fn say(socket: &OwnedFd, secret: u64) {
        let hello = Hello { id: 1, parent_id: 0, started_at_ns: 0, pid: 1, flags: 0, secret };
        send(socket, &hello.to_bytes(), SendFlags::empty()).expect("sent");
    }

    #[test]
    fn strangers_are_dropped_and_late_messages_are_read() {
        let mut listener = Listener::bind().expect("a socket");
        let (stranger, late) = (connected(&listener), connected(&listener));
        say(&stranger, listener.secret() ^ 1);
        assert!(listener.accept().expect("no error").is_none());
        assert_eq!(listener.silent.len(), 1, "the one without a message");
        say(&late, listener.secret());
        // Only a peer with the secret gets as far as its ring, which this one lacks.
        drop((stranger, late));
        assert!(listener.accept().expect("no error").is_none());
        let known = connected(&listener);
        say(&known, listener.secret());
        assert!(listener.accept().is_err_and(|it| it.kind() == io::ErrorKind::InvalidData));
    }

    #[test]
    fn late_message_is_read_before_that_of_a_later_connection() {
        let mut listener = Listener::bind().expect("a socket");
        let parent = connected(&listener);
        assert!(listener.accept().expect("no error").is_none());
        say(&parent, listener.secret() ^ 1);
        let child = connected(&listener);
        say(&child, listener.secret());
        assert!(listener.accept().is_err_and(|it| it.kind() == io::ErrorKind::InvalidData));
        assert_eq!(listener.silent.len(), 0, "the first is read when the second has no ring");
    }

    #[test]
    fn silent_peers_without_a_message_are_not_read() {
        let mut listener = Listener::bind().expect("a socket");
        let peers: Vec<_> = (0..3).map(|_| connected(&listener)).collect();
        assert!(listener.accept().expect("no error").is_none());
        assert_eq!(listener.ready().expect("polled"), [false; 3]);
        say(&peers[1], listener.secret() ^ 1);
        assert_eq!(listener.ready().expect("polled"), [false, true, false]);
        assert!(listener.accept().expect("no error").is_none());
        assert_eq!(listener.silent.len(), 2, "the stranger is dropped");
    }

    #[test]
    fn silent_peers_are_bounded() {
        let mut listener = Listener::bind().expect("a socket");
        let peers: Vec<_> = (0..SILENT_MAX + 10).map(|_| connected(&listener)).collect();
        assert!(listener.accept().expect("no error").is_none());
        assert_eq!(listener.silent.len(), SILENT_MAX);
        drop(peers);
        assert!(listener.accept().expect("no error").is_none());
        assert_eq!(listener.silent.len(), 0, "they are gone");
    }
}
