//! Looks at a thread that is blocked: its system call, its pointers and its stack, from /proc and
//! process_vm_readv(2). The thread is neither stopped nor woken.
//!
//! A thread that runs during the look is found by the records of its switches: the caller drops the peek
//! if one of them lies between the start of the wait and the end of the look.

use std::io;

use crate::arch::pt_regs;
use crate::os::descriptor_link::FileId;
use crate::os::procfs::{self, BlockedCall};
use crate::perf::waits::data::{Capture, Peek, STACK_BYTES, WaitState};
use crate::sys::PresentPages;

/// Looks at a thread that waits since `since_ns`. None if it runs by now.
///
/// # Errors
///
/// If it has exited or may not be read.
pub(crate) fn peek(tid: u32, since_ns: u64, buffer: &mut Vec<u8>) -> io::Result<Option<Peek>> {
    let Some(call) = procfs::blocked_call(tid)? else { return Ok(None) };
    let Some(letter) = procfs::state_letter(tid) else { return Ok(None) };
    // Threads of the kernel have no stack.
    let stack = match call.sp {
        0 => &[][..],
        sp => PresentPages::open(tid).read_stack(tid, sp, STACK_BYTES, buffer),
    };
    let registers = match call.sp {
        0 => Vec::new(),
        sp => {
            let is_compat = is_compat(tid, &call);
            pt_regs::with_pointers(call.ip, sp, call.number, call.argument, is_compat)
        }
    };
    Ok(Some(Peek {
        since_ns,
        state: WaitState::of_letter(letter),
        capture: Capture { registers, is_of_system_call: true, kernel: Vec::new() },
        stack: stack.into(),
        // Another file may have the number when the peek is read.
        file: u32::try_from(call.argument).ok().and_then(|number| FileId::of(tid, number)),
    }))
}

/// True if a thread executes 32-bit code: its addresses have 32 bits, and its program is such a file or cannot
/// be read. /proc/TID/syscall does not show it.
fn is_compat(tid: u32, call: &BlockedCall) -> bool {
    // Code of 64 bits may lie there, too, but its stack does not, unless the program asks for it.
    let has_short_addresses = call.ip >> 32 == 0 && call.sp >> 32 == 0;
    has_short_addresses && procfs::has_64_bit_program(tid) != Some(true)
}

/// True if a thread may not be read.
pub(crate) fn is_refused(tid: u32) -> bool {
    let read = procfs::blocked_call(tid);
    read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn blocked_thread_is_read_and_running_one_is_not() {
        let (wait, end) = mpsc::channel::<()>();
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(std::fs::read_link("/proc/thread-self")).expect("it is received");
            let _ = end.recv();
        });
        let link = receive.recv().expect("sent").expect("/proc");
        let tid: u32 = link.file_name().and_then(|it| it.to_str()?.parse().ok()).expect("an id");
        let mut buffer = Vec::new();
        // It blocks soon after it has sent its id.
        let peek = loop {
            match peek(tid, 7, &mut buffer) {
                Ok(Some(peek)) => break peek,
                Ok(None) => std::thread::yield_now(),
                Err(error) => return eprintln!("SKIPPED: /proc/{tid}/syscall: {error}"),
            }
        };
        assert_eq!((peek.since_ns, peek.state.letter()), (7, 'S'));
        assert!(peek.stack.len() >= 64, "{}", peek.stack.len());
        assert_eq!(pt_regs::sampled(&peek.capture.registers).len(), nprof_unwind::arch::COUNT * 8);
        drop(wait);
        thread.join().expect("it ends");
        assert!(super::peek(tid, 7, &mut buffer).is_err(), "it has exited");
    }
}
