//! System calls without the C library: they change no errno and are safe in signal handlers.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU32;

use super::arch::number::*;
use super::arch::system_call as call;

pub(super) const MADV_NOHUGEPAGE: usize = 15;
pub(super) const MADV_WIPEONFORK: usize = 18;

pub(super) const ECONNREFUSED: i32 = 111;

const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE_ANONYMOUS_NORESERVE: usize = 0x02 | 0x20 | 0x4000;

/// A range of memory, as iovec of readv(2).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) start: usize,
    pub(super) bytes: usize,
}

/// Maps new private memory of zeros.
pub(super) fn map_memory(bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe {
        call(MMAP, [0, bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0])
    };
    (address > 0).then_some(address as *mut u8)
}

/// Maps a file shared.
pub(super) fn map_file(file: i32, bytes: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    let address = unsafe { call(MMAP, [0, bytes, PROT_READ_WRITE, MAP_SHARED, file as usize, 0]) };
    (address > 0).then_some(address as *mut u8)
}

/// Unmaps memory, to which no reference may be left.
pub(super) fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: the callers pass mappings of their own that they no longer use.
    unsafe { call(MUNMAP, [address as usize, bytes, 0, 0, 0, 0]) };
}

/// Calls madvise(2) on memory of this library; returns whether the kernel accepts the advice.
pub(super) fn advise(address: *mut u8, bytes: usize, advice: usize) -> bool {
    // SAFETY: the callers pass mappings of their own, and advice that keeps their content in this process.
    unsafe { call(MADVISE, [address as usize, bytes, advice, 0, 0, 0]) == 0 }
}

/// Returns the process id in the process's namespace.
pub(super) fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETPID, [0; 6]) as u32 }
}

/// Returns the thread id in the process's namespace.
pub(super) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(GETTID, [0; 6]) as u32 }
}

/// Returns CLOCK_MONOTONIC by a system call.
pub(super) fn monotonic_ns() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the kernel writes a timespec of two words.
    unsafe { call(CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Returns the number of the inode of an open file; 0 if there is none.
pub(super) fn inode(descriptor: i32) -> u64 {
    // `struct stat` of the kernel: 144 bytes on x86-64, 128 on 64-bit ARM. The number is its second word on both.
    let mut words = [0_u64; 18];
    // SAFETY: the kernel writes one structure of at most 144 bytes.
    let status =
        unsafe { call(FSTAT, [descriptor as usize, words.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    if status == 0 { words[1] } else { 0 }
}

/// Returns the cookie of the thread's network namespace; 0 if it is unknown, as before Linux 5.14.
pub(super) fn network_namespace() -> u64 {
    const AF_UNIX: usize = 1;
    const DGRAM_CLOEXEC: usize = 2 | 0o2000000;
    const SOL_SOCKET: usize = 1;
    const SO_NETNS_COOKIE: usize = 71;
    let (mut cookie, mut bytes) = (0_u64, 8_u32);
    // SAFETY: the kernel writes at most 8 bytes, as `bytes` says, and their number.
    unsafe {
        let socket = call(SOCKET, [AF_UNIX, DGRAM_CLOEXEC, 0, 0, 0, 0]);
        if socket < 0 {
            return 0;
        }
        let (value, length) = (&raw mut cookie as usize, &raw mut bytes as usize);
        call(GETSOCKOPT, [socket as usize, SOL_SOCKET, SO_NETNS_COOKIE, value, length, 0]);
        close(socket as i32);
    }
    cookie
}

/// Returns a random number that is not 0; None without a random source.
pub(super) fn random() -> Option<u64> {
    let mut value = 0_u64;
    // SAFETY: the kernel writes 8 bytes. GRND_NONBLOCK: early at boot the call would block.
    let read = unsafe { call(GETRANDOM, [&raw mut value as usize, 8, 1, 0, 0, 0]) };
    (read == 8).then_some(value | 1)
}

/// Opens a `SOCK_SEQPACKET` socket and connects it to an abstract name of at most 107 bytes; returns the error number
/// if that fails. If the queue of the other end is full, it waits at most `seconds`, and returns EAGAIN.
pub(super) fn connect(name: &[u8], seconds: u64) -> Result<i32, i32> {
    const AF_UNIX: usize = 1;
    const SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
    const NONBLOCK: usize = 0o4000;
    const SOL_SOCKET: usize = 1;
    const SO_SNDTIMEO: usize = 21;
    let kind = if seconds == 0 { SEQPACKET_CLOEXEC | NONBLOCK } else { SEQPACKET_CLOEXEC };
    // A timeval, which bounds connect(2) as well: unix_stream_connect in net/unix/af_unix.c.
    let limit = [seconds, 0];
    let mut address = [0_u8; 110];
    address[0] = AF_UNIX as u8;
    // The zero byte after the family marks an abstract name.
    for (byte, from) in address[3..].iter_mut().zip(name) {
        *byte = *from;
    }
    // SAFETY: the timeval and the address are as long as their lengths say.
    unsafe {
        let socket = call(SOCKET, [AF_UNIX, kind, 0, 0, 0, 0]);
        if socket < 0 {
            return Err(-socket as i32);
        }
        if seconds > 0 {
            let value = limit.as_ptr() as usize;
            let bytes = size_of_val(&limit);
            call(SETSOCKOPT, [socket as usize, SOL_SOCKET, SO_SNDTIMEO, value, bytes, 0]);
        }
        let length = 3 + name.len().min(address.len() - 3);
        let connected =
            call(CONNECT, [socket as usize, address.as_ptr() as usize, length, 0, 0, 0]);
        if connected < 0 {
            close(socket as i32);
            return Err(-connected as i32);
        }
        Ok(socket as i32)
    }
}

/// Sends a message with a descriptor; returns whether the socket took it.
pub(super) fn send(socket: i32, message: &[u8], file: i32) -> bool {
    const SOL_SOCKET: u64 = 1;
    const SCM_RIGHTS: u64 = 1;
    const MSG_NOSIGNAL: usize = 0x4000;
    let data = Range { start: message.as_ptr() as usize, bytes: message.len() };
    // A cmsghdr with its length of 20 bytes, and the descriptor, padded to a word.
    let control = [20_u64, SOL_SOCKET | SCM_RIGHTS << 32, file as u64];
    let header = [
        0,
        0,
        &raw const data as usize,
        1,
        control.as_ptr() as usize,
        size_of_val(&control),
        0_usize,
    ];
    // SAFETY: the header, of seven words, and all it points to live until the call returns.
    unsafe {
        call(SENDMSG, [socket as usize, header.as_ptr() as usize, MSG_NOSIGNAL, 0, 0, 0])
            == message.len() as isize
    }
}

/// Waits until the other end of a socket writes or closes it, at most a second.
pub(super) fn wait_for_end(socket: i32) {
    const POLLIN: u64 = 1;
    let mut poll = u64::from(socket as u32) | POLLIN << 32;
    let mut limit = [1_u64, 0];
    // SAFETY: the kernel reads and writes a timespec, which then has the time that was left, and one
    // pollfd: descriptor, events, results.
    unsafe { call(PPOLL, [&raw mut poll as usize, 1, &raw mut limit as usize, 0, 0, 0]) };
}

/// Closes a descriptor.
pub(super) fn close(file: i32) {
    // SAFETY: the callers pass descriptors of their own.
    unsafe { call(CLOSE, [file as usize, 0, 0, 0, 0, 0]) };
}

/// Creates a file in memory with a fixed size.
pub(super) fn memory_file(bytes: usize) -> Option<i32> {
    const CLOEXEC_ALLOW_SEALING: usize = 1 | 2;
    const F_ADD_SEALS: usize = 1033;
    const SEAL_SHRINK_GROW: usize = 1 | 2 | 4;
    // Beyond RLIMIT_FSIZE ftruncate(2) sends SIGXFSZ, which ends the program.
    let mut limit = [0_u64; 2];
    const RLIMIT_FSIZE: usize = 1;
    // SAFETY: the kernel writes two words; the name ends with a zero byte; the descriptor is the new one.
    unsafe {
        if call(PRLIMIT64, [0, RLIMIT_FSIZE, 0, limit.as_mut_ptr() as usize, 0, 0]) < 0
            || limit[0] < bytes as u64
        {
            return None;
        }
        let file =
            call(MEMFD_CREATE, [c"nprof".as_ptr() as usize, CLOEXEC_ALLOW_SEALING, 0, 0, 0, 0]);
        if file < 0 {
            return None;
        }
        let file = file as usize;
        if call(FTRUNCATE, [file, bytes, 0, 0, 0, 0]) < 0
            || call(FCNTL, [file, F_ADD_SEALS, SEAL_SHRINK_GROW, 0, 0, 0]) < 0
        {
            close(file as i32);
            return None;
        }
        Some(file as i32)
    }
}

/// Blocks all signals of the thread; returns the mask before.
pub(super) fn block_signals() -> u64 {
    const SIG_BLOCK: usize = 0;
    let (all, mut before) = (u64::MAX, 0_u64);
    // SAFETY: both masks have the kernel's 8 bytes.
    unsafe {
        call(
            RT_SIGPROCMASK,
            [SIG_BLOCK, &raw const all as usize, &raw mut before as usize, 8, 0, 0],
        )
    };
    before
}

/// Restores the mask of `block_signals`.
pub(super) fn restore_signals(before: u64) {
    const SIG_SETMASK: usize = 2;
    // SAFETY: the mask has the kernel's 8 bytes.
    unsafe { call(RT_SIGPROCMASK, [SIG_SETMASK, &raw const before as usize, 0, 8, 0, 0]) };
}

/// True on the stack of sigaltstack(2).
pub(super) fn is_on_signal_stack() -> bool {
    const SS_ONSTACK: u32 = 1;
    let mut stack = [0_usize; 3];
    // SAFETY: the kernel writes a stack_t: address, flags, size.
    unsafe { call(SIGALTSTACK, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    stack[1] as u32 & SS_ONSTACK != 0
}

/// Returns a word of memory; None if it cannot be read.
pub(super) fn read_word(address: usize) -> Option<usize> {
    let mut word = 0_usize;
    let from = [Range { start: address, bytes: size_of::<usize>() }];
    // SAFETY: there is room for a word.
    let bytes = unsafe { copy_checked(process_id(), (&raw mut word).cast(), &from) };
    (bytes == size_of::<usize>()).then_some(word)
}

/// Sleeps until the word changes from `value`, a wake-up, a signal, or a tenth of a second.
pub(super) fn wait(word: &AtomicU32, value: u32) {
    const FUTEX_WAIT: usize = 0;
    let limit = [0_u64, 100_000_000];
    // SAFETY: word and timespec live until the call returns.
    unsafe {
        call(
            FUTEX,
            [word.as_ptr() as usize, FUTEX_WAIT, value as usize, limit.as_ptr() as usize, 0, 0],
        );
    }
}

/// Copies memory of this process that may be unmapped; returns the bytes before the first failure.
///
/// # Safety
///
/// `to` must have room for all ranges.
pub(super) unsafe fn copy_checked(pid: u32, to: *mut u8, from: &[Range]) -> usize {
    let bytes = from.iter().map(|range| range.bytes).sum();
    let target = Range { start: to as usize, bytes };
    let arguments =
        [pid as usize, &raw const target as usize, 1, from.as_ptr() as usize, from.len(), 0];
    // SAFETY: the kernel checks the source; the caller vouches for the target.
    let copied = unsafe { call(PROCESS_VM_READV, arguments) };
    usize::try_from(copied).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
    };

    use super::*;

    #[test]
    fn recorder_that_does_not_accept_keeps_no_program_waiting() {
        const EAGAIN: i32 = 11;
        let name = format!("nprof-test-{}", std::process::id());
        let flags = SocketFlags::CLOEXEC;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        bind(&socket, &address).expect("a name that is free");
        listen(&socket, 1).expect("listening");
        let waiting: Vec<_> = (0..9).map_while(|_| connect(name.as_bytes(), 0).ok()).collect();
        assert!((1..9).contains(&waiting.len()), "{waiting:?}");
        for seconds in [0, 1] {
            assert_eq!(connect(name.as_bytes(), seconds), Err(EAGAIN));
        }
        waiting.into_iter().for_each(close);
        drop(socket);
        assert_eq!(connect(name.as_bytes(), 1), Err(ECONNREFUSED));
    }
}
