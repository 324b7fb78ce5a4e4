//! The socket that processes connect to.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

/// The listening socket of the recorder, with a random abstract name.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    name: String,
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

impl Listener {
    /// Opens the socket.
    ///
    /// # Errors
    ///
    /// Those of socket(2), bind(2), listen(2) and getrandom(2).
    pub fn bind() -> io::Result<Self> {
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("nprof-{:032x}", u128::from_ne_bytes(random));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        Ok(Listener { socket, name })
    }

    /// Returns the name of the socket for [`crate::protocol::Settings::socket`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Accepts the next process; None if no process waits. The socket is readable if one does.
    ///
    /// # Errors
    ///
    /// Those of accept(2) and recvmsg(2); `InvalidData` if the message or the ring is malformed; `TimedOut`, after
    /// 100 ms, if a process has connected and sends nothing. The listener can go on after each of them.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        // Programs that only connect must not keep the recorder here.
        for _ in 0..BACKLOG {
            let socket = match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if let Some(connection) = receive(socket)? {
                return Ok(Some(connection));
            }
        }
        Ok(None)
    }
}

/// Receives the message of a process; None if it only asked whether the recorder lives, or died before it sent one.
fn receive(socket: OwnedFd) -> io::Result<Option<Connection>> {
    // The process sends at once after connect(2), unless it is stopped between the two.
    wait_for_message(socket.as_fd())?;
    let mut bytes = [0; Hello::BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let file = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    if message.bytes == 0 {
        return Ok(None);
    }
    let hello = Hello::parse(&bytes[..message.bytes]).ok_or(io::ErrorKind::InvalidData)?;
    let ring = Ring::map(&file.ok_or(io::ErrorKind::InvalidData)?)?;
    let pid = socket_peercred(&socket)?.pid.as_raw_nonzero().get();
    Ok(Some(Connection { pid, hello, ring, socket }))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until the socket has a message or is closed, at most 100 ms: a stopped process must not stop the recorder.
fn wait_for_message(socket: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(())
}
