//! Reads the stacks of threads that wait.

use std::rc::Rc;

use nprof_unwind::unwind::stack_copy::Segment;
use nprof_unwind::unwind::stack_input::{CopiedStack, Words};

use crate::arch::pt_regs;
use crate::perf::waits::data::{Capture, Progress, STACK_BYTES, StackBytes, WaitingThread};
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

/// The most threads of which the stacks are read by one call, which takes 1.5 us for each instead of 4 us, and
/// the bytes of each. Those of deeper stacks are read again.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 16 << 10;

impl StackReader {
    /// Adds their stacks, from the stack pointer up, to threads that wait. Empty if a thread has none.
    pub(crate) fn with_stacks(&mut self, threads: Vec<Progress>) -> Vec<WaitingThread> {
        let batches = threads.chunk_by(|a, b| a.pid == b.pid).flat_map(|it| it.chunks(BATCH));
        let stacks: Vec<_> = batches.flat_map(|batch| self.read_batch(batch)).collect();
        let threads = threads.into_iter().zip(stacks);
        threads.map(|(progress, stack)| WaitingThread { progress, stack }).collect()
    }

    /// Returns the stacks of threads of one process.
    fn read_batch(&mut self, threads: &[Progress]) -> Vec<StackBytes> {
        let mut stacks = vec![StackBytes::default(); threads.len()];
        let waiting: Vec<(usize, &Progress, u64)> = threads
            .iter()
            .enumerate()
            .filter_map(|(index, thread)| Some((index, thread, pointer(thread.capture.as_ref()?)?)))
            .collect();
        let Some(&(_, first, _)) = waiting.first() else { return stacks };
        if self.pid != first.pid {
            self.open(first.pid, first.tid);
        }
        let pointers: Vec<u64> = waiting.iter().map(|&(.., pointer)| pointer).collect();
        let (memory, lengths) = self.pages.read_each(first.tid, &pointers, BATCH_BYTES);
        let (memory, mut start) = (Rc::new(memory), 0);
        for ((index, thread, pointer), length) in waiting.into_iter().zip(lengths) {
            let range = start..start + length;
            start = range.end;
            stacks[index] = if (1..BATCH_BYTES).contains(&length) {
                StackBytes { memory: memory.clone(), range }
            } else {
                let stack = self.read_one(thread.tid, pointer);
                StackBytes { range: 0..stack.len(), memory: Rc::new(stack.to_vec()) }
            };
            self.kept += stacks[index].len();
        }
        stacks
    }

    /// Returns the stack of a thread from its stack pointer up. Empty if the thread has none.
    pub(crate) fn read(&mut self, pid: u32, tid: u32, capture: &Capture) -> &[u8] {
        let Some(pointer) = pointer(capture) else { return &[] };
        if self.pid != pid {
            self.open(pid, tid);
        }
        self.read_one(tid, pointer)
    }

    fn read_one(&mut self, tid: u32, pointer: u64) -> &[u8] {
        let limit = if self.kept < KEPT_MAX_BYTES { STACK_BYTES } else { SHORT_BYTES };
        let mut length = self.pages.read_stack(tid, pointer, limit, &mut self.bytes).len();
        // The thread that opened the list may have exited before.
        if length == 0 && self.opened_by != tid {
            self.open(self.pid, tid);
            length = self.pages.read_stack(tid, pointer, limit, &mut self.bytes).len();
        }
        &self.bytes[..length]
    }

    /// Opens the list of pages of a process by one of its threads.
    fn open(&mut self, pid: u32, tid: u32) {
        (self.pid, self.opened_by) = (pid, tid);
        self.pages = PresentPages::open(tid);
    }
}

/// Reads the part of a thread's stack beyond its first `length` bytes, at which a page is absent. Returns the
/// bytes, and the segments without absent pages; nothing if the thread has no stack.
pub(crate) fn read_beyond(tid: u32, capture: &Capture, length: usize) -> (Vec<u8>, Vec<Segment>) {
    let start = pointer(capture).and_then(|pointer| pointer.checked_add(length as u64));
    let (Some(start), Some(limit)) = (start, STACK_BYTES.checked_sub(length)) else {
        return Default::default();
    };
    let (bytes, parts) = PresentPages::open(tid).read_present(tid, start, limit);
    let mut position = 0;
    let segment = |(address, length): (u64, usize)| {
        let segment = Segment { address, position, length };
        position += length;
        segment
    };
    (bytes, parts.into_iter().map(segment).collect())
}

/// Returns the stack pointer of a thread. None if it has none.
fn pointer(capture: &Capture) -> Option<u64> {
    let registers = pt_regs::sampled(&capture.registers);
    let copied = CopiedStack { registers: Words(&registers), ..CopiedStack::default() };
    copied.stack_pointer().filter(|&pointer| pointer != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::waits::data::MeasuredThread;

    const DEEP: usize = 200_000;
    const SHALLOW: usize = 600_000;

    #[test]
    fn stacks_read_together_are_those_read_one_by_one() {
        // Pages that were never written to are absent: two stacks end before them. The C library maps so much
        // memory by itself.
        let mut memory = vec![0_u8; 64 << 20];
        memory[..DEEP].fill(7);
        memory[SHALLOW] = 8;
        let own = std::process::id();
        let pointer_to = |at: usize| (&raw const memory[at]).expose_provenance() as u64;
        let thread = |pid: u32, pointer: Option<u64>| {
            let registers = pointer.map(|sp| pt_regs::with_pointers(1, sp, 0, 0, false));
            let mut thread = Progress::of_switches(pid, pid, 0, MeasuredThread::default());
            thread.capture = registers.map(|registers| Capture { registers, ..Capture::default() });
            thread
        };
        // More than a batch: deep stacks, a thread that runs, one without a stack, an unmapped one, and one of
        // another process.
        let mut threads = Vec::new();
        for at in 0..BATCH {
            threads.push(thread(own, Some(pointer_to(at * 1000))));
            threads.push(thread(own, None));
            threads.push(thread(own, Some(pointer_to(SHALLOW))));
        }
        threads.push(thread(own, Some(0)));
        threads.push(thread(own, Some(8)));
        threads.push(thread(u32::MAX >> 1, Some(pointer_to(0))));
        threads.push(thread(own, Some(pointer_to(3))));
        let expected: Vec<Box<[u8]>> = threads
            .iter()
            .map(|thread| {
                let mut stacks = StackReader::default();
                let capture = thread.capture.as_ref();
                capture.map(|it| stacks.read(thread.pid, thread.tid, it).into()).unwrap_or_default()
            })
            .collect();
        let found = StackReader::default().with_stacks(threads);
        assert!(expected[0].len() >= DEEP, "{}", expected[0].len());
        assert!((1..=4096).contains(&expected[2].len()), "{}", expected[2].len());
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(*found.stack == **expected, "{index}: {} bytes", found.stack.len());
        }
    }
}
