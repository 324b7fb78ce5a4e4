//! Reads the stacks of threads that wait.

use nprof_unwind::unwind::stack_input::{CopiedStack, Words};

use crate::arch::pt_regs;
use crate::perf::waits::data::{Capture, Progress, STACK_BYTES, WaitingThread};
use crate::sys::PresentPages;

/// Reads the stacks of threads that wait, most of them of one process after the other.
#[derive(Default)]
pub(crate) struct StackReader {
    pid: u32,
    /// The thread by which the list of pages was opened.
    opened_by: u32,
    pages: PresentPages,
    bytes: Vec<u8>,
    /// The sum of the stacks that were kept.
    kept: usize,
}

/// The sum of the kept stacks from which on only [`SHORT_BYTES`] of each are read: there may be thousands of
/// deep ones.
const KEPT_MAX_BYTES: usize = 128 << 20;
const SHORT_BYTES: usize = 64 << 10;

impl StackReader {
    /// Returns the stack of a thread from its stack pointer up. Empty if the thread has none.
    pub(crate) fn read(&mut self, pid: u32, tid: u32, capture: &Capture) -> &[u8] {
        let registers = pt_regs::sampled(&capture.registers);
        let copied = CopiedStack { registers: Words(&registers), ..CopiedStack::default() };
        let sp = copied.stack_pointer().unwrap_or(0);
        if sp == 0 {
            return &[];
        }
        let limit = if self.kept < KEPT_MAX_BYTES { STACK_BYTES } else { SHORT_BYTES };
        let mut length = 0;
        if self.pid == pid {
            length = self.pages.read_stack(tid, sp, limit, &mut self.bytes).len();
        }
        // The thread that opened the list may have exited before.
        if length == 0 && (self.pid, self.opened_by) != (pid, tid) {
            (self.pid, self.opened_by) = (pid, tid);
            self.pages = PresentPages::open(tid);
            length = self.pages.read_stack(tid, sp, limit, &mut self.bytes).len();
        }
        &self.bytes[..length]
    }

    /// Adds its stack to a thread that waits.
    pub(crate) fn with_stack(&mut self, progress: Progress) -> WaitingThread {
        let stack: Box<[u8]> = match &progress.capture {
            Some(capture) => self.read(progress.pid, progress.tid, capture).into(),
            None => Box::default(),
        };
        self.kept += stack.len();
        WaitingThread { progress, stack }
    }
}
