//! The data of the programs in `bpf/waits.bpf.c`, in the layout of its structures. Pure.

use std::ops::{Deref, Range};
use std::rc::Rc;

use crate::arch::pt_regs;
use crate::os::descriptor_link::FileId;
use crate::os::procfs::ThreadNames;

/// The room for `struct pt_regs` in a capture, which is the same on all architectures.
const REGISTER_BYTES: usize = 288;

/// The most frames of a kernel stack in a capture.
const KERNEL_FRAMES: usize = 64;

/// The bytes of the name of a thread with the NUL at its end: TASK_COMM_LEN of include/linux/sched.h.
const NAME_BYTES: usize = 16;

/// Words of `struct thread`.
pub(crate) const THREAD_WORDS: usize = 15;

/// The most bytes that are read of the stack of a thread that waits: as many as BPF programs copy at most.
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// Bytes of `struct progress`, and of `struct capture`, which begins with it.
const PROGRESS_BYTES: usize = 40 + 8 * THREAD_WORDS;
const CAPTURE_BYTES: usize = PROGRESS_BYTES + REGISTER_BYTES + 8 + 8 * KERNEL_FRAMES;

/// The number of the system call of a thread of the kernel, which makes none.
pub(crate) const KERNEL_THREAD: u64 = -2_i64 as u64;

/// A bit of the number of a system call of a 32-bit program, which has other numbers.
pub(crate) const COMPAT_CALL: u32 = 1 << 30;

/// The state of a task that waits in the kernel: TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE,
/// __TASK_STOPPED, __TASK_TRACED and TASK_PARKED of include/linux/sched.h, with the letters of ps(1).
const STATES: [(u32, char); 5] = [(0x02, 'D'), (0x04, 'T'), (0x08, 't'), (0x40, 'P'), (0x01, 'S')];

/// TASK_IDLE: uninterruptible and without load.
const IDLE: u32 = 0x402;

/// The state of a thread in which it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitState(pub(crate) u32);

impl WaitState {
    /// True if the thread was preempted: it waits for nothing but a CPU.
    pub(crate) fn is_preempted(self) -> bool {
        self.0 == 0
    }

    /// True if a signal or a debugger has stopped the thread.
    pub(crate) fn is_stopped(self) -> bool {
        self.0 & 0xc != 0
    }

    /// Returns the letter of ps(1).
    pub(crate) fn letter(self) -> char {
        if self.0 & IDLE == IDLE {
            return 'I';
        }
        STATES.iter().find(|(bit, _)| self.0 & bit != 0).map_or('R', |(_, letter)| *letter)
    }

    /// Returns the state for a letter in /proc/PID/stat; preempted if the thread is runnable.
    pub(crate) fn of_letter(letter: u8) -> Self {
        let state = STATES.iter().find(|(_, known)| *known == char::from(letter));
        Self(state.map_or(if letter == b'I' { IDLE } else { 0 }, |(bit, _)| *bit))
    }
}

/// The place in the program at which a thread waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitPlace {
    pub(crate) state: WaitState,
    /// The number of the system call, with [`COMPAT_CALL`], and its first argument. None if the thread is in
    /// none.
    pub(crate) call: Option<(u32, u64)>,
    /// True for a thread of the kernel.
    pub(crate) is_of_kernel: bool,
}

impl WaitPlace {
    /// Creates the place of a thread in a state, with the number and the first argument of its system
    /// call as its saved registers have them.
    pub(crate) fn new(state: WaitState, call: u64, argument: u64) -> Self {
        // A number of 32 bits, -1 for interrupts and exceptions: `struct pt_regs`.
        let number = u32::try_from(call as i32).ok();
        let is_of_kernel = call == KERNEL_THREAD;
        Self { state, call: number.map(|number| (number, argument)), is_of_kernel }
    }
}

/// A wait that has ended, and was chosen for at least one of its parts. Times are those of the
/// monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    /// The last part, in which the thread waited for a CPU.
    pub(crate) runnable_ns: u64,
    /// The weights of the parts in periods if they are shorter than one; 0 if a part was not chosen.
    pub(crate) blocked_hits: u64,
    pub(crate) runnable_hits: u64,
    pub(crate) place: WaitPlace,
    /// The file that was open with the first argument of its system call as the descriptor.
    pub(crate) file: Option<FileId>,
}

impl Wait {
    /// Reads `struct wait`. None if it is too short.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw);
        let [since_ns, until_ns, runnable_ns] = [words.next()?, words.next()?, words.next()?];
        let (state, hits) = halves(words.next()?);
        let (call, argument) = (words.next()?, words.next()?);
        let (inode, mode) = (words.next()?, words.next()?);
        let kind = Some(mode as u32 & libc::S_IFMT);
        Some(Self {
            since_ns,
            until_ns,
            runnable_ns,
            blocked_hits: u64::from(hits as u16),
            runnable_hits: u64::from(hits >> 16),
            place: WaitPlace::new(WaitState(state), call, argument),
            file: (inode != 0).then_some(FileId { inode, kind, is_shown: false }),
        })
    }

    /// Returns the first part, in which the thread was blocked.
    pub(crate) fn blocked_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.since_ns).saturating_sub(self.runnable_ns)
    }
}

/// A wake-up that ends a wait, which was chosen. Times are those of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    /// The start of the wait.
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    /// The thread that waited, and its process.
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    /// As [`Wait::blocked_hits`].
    pub(crate) hits: u64,
}

impl Wake {
    /// Reads `struct wake`. None if it is too short.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw);
        let (since_ns, until_ns) = (words.next()?, words.next()?);
        let (tid, pid) = halves(words.next()?);
        Some(Self { since_ns, until_ns, tid, pid, hits: words.next()? })
    }
}

/// The exact times of a thread, from `begin_ns` to `end_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTimes {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) runnable_ns: u64,
    pub(crate) blocked_ns: u64,
}

/// A note of the programs, without a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNote {
    /// The thread. The record has no id if the thread was released before its last switch.
    pub(crate) tid: u32,
    pub(crate) content: NoteContent,
}

/// The content of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteContent {
    /// The thread has ended.
    Ended(ThreadTimes),
    /// A wait for a CPU without a stack, that was chosen: of a new thread for its first one, or of a
    /// thread that has exited.
    Runnable { begin_ns: u64, end_ns: u64, hits: u64 },
    /// The next sample of the timer of this CPU, which is of the thread, counts twice.
    TwoSamples,
}

impl ThreadNote {
    /// Reads `struct note`. None if it is too short or of another kind.
    pub(crate) fn read(raw: &[u8]) -> Option<Self> {
        let mut words = words(raw);
        let (kind, tid) = halves(words.next()?);
        let (begin_ns, end_ns) = (words.next()?, words.next()?);
        let [cpu_ns, runnable_ns, blocked_ns] = [words.next()?, words.next()?, words.next()?];
        let hits = words.next()?;
        let times = ThreadTimes { begin_ns, end_ns, cpu_ns, runnable_ns, blocked_ns };
        let content = match kind {
            1 => NoteContent::Ended(times),
            2 => NoteContent::Runnable { begin_ns, end_ns, hits },
            3 => NoteContent::TwoSamples,
            _ => return None,
        };
        Some(Self { tid, content })
    }
}

/// The state of a thread between two switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is measured since a moment of its life, and was not switched since.
    #[default]
    Attached,
    Runs,
    Waits,
    /// It was never switched out.
    Created,
    /// The process of the command before its exec: not measured.
    Pending,
    /// It exists, and is measured once the programs have seen its state.
    Found,
}

/// A thread as the programs measure it: `struct thread`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeasuredThread {
    pub(crate) begin_ns: u64,
    /// The time of the last switch.
    pub(crate) since_ns: u64,
    /// The kernel's account of its waits for a CPU, at the last switch.
    pub(crate) run_delay_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) runnable_ns: u64,
    pub(crate) blocked_ns: u64,
    pub(crate) phase: Phase,
    pub(crate) state: WaitState,
    /// The time of the wake-up that ends its wait; 0 if none was seen.
    pub(crate) woken_ns: u64,
}

impl MeasuredThread {
    /// Returns the words of `struct thread`, without a wake-up and before its first draw.
    pub(crate) fn words(&self) -> [u64; THREAD_WORDS] {
        let phase = self.phase as u64 | u64::from(self.state.0) << 32;
        let Self { begin_ns, since_ns, run_delay_ns, cpu_ns, runnable_ns, blocked_ns, .. } = *self;
        let mut words = [0; THREAD_WORDS];
        words[..8].copy_from_slice(&[
            begin_ns,
            since_ns,
            run_delay_ns,
            cpu_ns,
            runnable_ns,
            blocked_ns,
            0,
            phase,
        ]);
        words
    }

    /// Reads `struct thread`. None if it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Self::read(words(bytes))
    }

    fn read(mut words: impl Iterator<Item = u64>) -> Option<Self> {
        let mut next = || words.next();
        let (begin_ns, since_ns, run_delay_ns) = (next()?, next()?, next()?);
        let (cpu_ns, runnable_ns, blocked_ns) = (next()?, next()?, next()?);
        let _captured = next()?;
        let (phase, state) = halves(next()?);
        let phase = match phase {
            0 => Phase::Attached,
            1 => Phase::Runs,
            2 => Phase::Waits,
            3 => Phase::Created,
            5 => Phase::Found,
            _ => Phase::Pending,
        };
        let state = WaitState(state);
        Some(Self {
            begin_ns,
            since_ns,
            run_delay_ns,
            cpu_ns,
            runnable_ns,
            blocked_ns,
            phase,
            state,
            woken_ns: next()?,
        })
    }
}

/// A followed thread at a moment of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    pub(crate) now_ns: u64,
    /// The kernel's account of its waits for a CPU.
    run_delay_ns: u64,
    /// The number of times that it was switched in; 0 if it is unknown.
    pub(crate) arrivals: u64,
    thread: MeasuredThread,
    /// Its state now.
    state: WaitState,
    /// Its stack, once for each wait.
    pub(crate) capture: Option<Capture>,
}

/// The registers and the kernel stack of a thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capture {
    /// `struct pt_regs`.
    pub(crate) registers: Vec<u8>,
    /// True if only the instruction pointer and the stack pointer are known, and the system call.
    pub(crate) is_of_system_call: bool,
    /// The addresses of the kernel's frames, leaf first.
    pub(crate) kernel: Vec<u8>,
}

/// A thread that waits at the end of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitingThread {
    pub(crate) progress: Progress,
    pub(crate) stack: StackBytes,
}

/// The stack of a thread from its stack pointer up, as it was read while the thread waited: a part of memory
/// that others share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackBytes {
    pub(crate) memory: Rc<Vec<u8>>,
    pub(crate) range: Range<usize>,
}

impl Deref for StackBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(self.range.clone()).unwrap_or_default()
    }
}

/// The place at which a blocked thread waits, as it was read while the thread waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek {
    /// The start of the wait, which identifies it.
    pub(crate) since_ns: u64,
    pub(crate) state: WaitState,
    pub(crate) capture: Capture,
    /// The stack from the stack pointer up.
    pub(crate) stack: Box<[u8]>,
    /// As [`Wait::file`].
    pub(crate) file: Option<FileId>,
}

impl Progress {
    /// Reads all threads.
    pub(crate) fn read_all(mut bytes: &[u8]) -> Vec<Self> {
        std::iter::from_fn(|| Self::read(&mut bytes)).collect()
    }

    /// Reads one thread from the start of `bytes`, and removes it from them. None if they are too
    /// short.
    pub(crate) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut fields = words(bytes.get(..PROGRESS_BYTES)?);
        let (tid, pid) = halves(fields.next()?);
        let (state, has_stack) = halves(fields.next()?);
        let (now_ns, run_delay_ns, arrivals) = (fields.next()?, fields.next()?, fields.next()?);
        let thread = MeasuredThread::read(fields)?;
        let size = if has_stack == 0 { PROGRESS_BYTES } else { CAPTURE_BYTES };
        let (own, rest) = bytes.split_at_checked(size)?;
        let capture = match own[PROGRESS_BYTES..].split_at_checked(REGISTER_BYTES) {
            Some((registers, stack)) => {
                let (length, frames) = stack.split_at_checked(8)?;
                let length = usize::try_from(words(length).next()?).ok()?;
                let kernel = frames.get(..length.min(frames.len()))?.to_vec();
                let registers = registers[..pt_regs::BYTES].to_vec();
                Some(Capture { registers, is_of_system_call: false, kernel })
            }
            None => None,
        };
        *bytes = rest;
        let state = WaitState(state);
        Some(Self { tid, pid, now_ns, run_delay_ns, arrivals, thread, state, capture })
    }

    /// Creates the state of a thread that was measured up to `now_ns` by the records of its switches.
    pub(crate) fn of_switches(tid: u32, pid: u32, now_ns: u64, thread: MeasuredThread) -> Self {
        let (run_delay_ns, arrivals, state) = (0, 0, thread.state);
        Self { tid, pid, now_ns, run_delay_ns, arrivals, thread, state, capture: None }
    }

    /// Notes that it waits for a CPU if it ran at the start, was not switched since, and `has_not_run` is true
    /// for it.
    pub(crate) fn note_idle(&mut self, has_not_run: impl FnOnce(u32) -> bool) {
        let MeasuredThread { phase, begin_ns, since_ns, .. } = self.thread;
        if phase == Phase::Runs && since_ns == begin_ns && has_not_run(self.tid) {
            self.thread.phase = Phase::Waits;
        }
    }

    /// Returns the start and the state of the wait of the thread. None if it runs.
    pub(crate) fn wait(&self) -> Option<(u64, WaitState)> {
        let MeasuredThread { phase, since_ns, state, .. } = self.thread;
        match phase {
            Phase::Waits => Some((since_ns, state)),
            // It was not switched since: it has run or waited all the time.
            Phase::Attached if !self.state.is_preempted() => Some((since_ns, self.state)),
            // It was woken, and may run by now.
            Phase::Attached if !state.is_preempted() => Some((since_ns, state)),
            // It has not got its first CPU.
            Phase::Created if self.arrivals == 0 => Some((since_ns, state)),
            _ => None,
        }
    }

    /// Returns the time from which on it waits for a CPU. None if it was not seen to be woken.
    pub(crate) fn woken_ns(&self) -> Option<u64> {
        let MeasuredThread { woken_ns, since_ns, .. } = self.thread;
        let is_blocked = self.wait().is_some_and(|(_, state)| !state.is_preempted());
        Some(woken_ns).filter(|&woken_ns| is_blocked && woken_ns > since_ns)
    }

    /// True if it was blocked, was woken, and does not run yet.
    pub(crate) fn is_woken(&self) -> bool {
        let MeasuredThread { phase, state, .. } = self.thread;
        let was_blocked = matches!(phase, Phase::Waits | Phase::Attached) && !state.is_preempted();
        was_blocked && self.state.is_preempted()
    }

    /// True if it has run since an earlier state.
    pub(crate) fn has_run_since(&self, earlier: &Self) -> bool {
        self.arrivals != earlier.arrivals
    }

    /// Returns its times up to now.
    pub(crate) fn times(&self) -> ThreadTimes {
        let MeasuredThread { begin_ns, since_ns, .. } = self.thread;
        let MeasuredThread { mut cpu_ns, mut runnable_ns, mut blocked_ns, .. } = self.thread;
        let end_ns = self.now_ns.max(since_ns);
        let rest_ns = end_ns - since_ns;
        match self.wait() {
            Some((_, state)) if state.is_preempted() => runnable_ns += rest_ns,
            Some(_) => {
                let woken_ns = self.woken_ns().unwrap_or(end_ns).min(end_ns);
                blocked_ns += woken_ns - since_ns;
                runnable_ns += end_ns - woken_ns;
            }
            // The kernel's account may have grown since the end of the measurement.
            None if self.thread.phase == Phase::Runs => cpu_ns += rest_ns,
            None => {
                let delay_ns = self.run_delay_ns.saturating_sub(self.thread.run_delay_ns);
                let waited_ns = delay_ns.min(rest_ns);
                runnable_ns += waited_ns;
                cpu_ns += rest_ns - waited_ns;
            }
        }
        ThreadTimes { begin_ns, end_ns, cpu_ns, runnable_ns, blocked_ns }
    }
}

/// Reads the names of threads: an array of `struct name`.
pub(crate) fn read_names(bytes: &[u8]) -> ThreadNames {
    const ID_BYTES: usize = size_of::<u32>();
    let mut names = ThreadNames::default();
    // As many as the programs have written whole.
    for entry in bytes.chunks_exact(2 * ID_BYTES + NAME_BYTES) {
        let (ids, name) = entry.split_at(2 * ID_BYTES);
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        if let [tid, pid] = ids.as_chunks::<ID_BYTES>().0 {
            let threads = names.entry(u32::from_ne_bytes(*pid)).or_default();
            threads.push((u32::from_ne_bytes(*tid), name.to_vec()));
        }
    }
    names
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + use<'_> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

/// Returns the first and the second 32-bit field of a word.
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn progress(phase: Phase, state: u32, since_ns: u64) -> Progress {
        let thread = MeasuredThread { begin_ns: 10, since_ns, phase, ..MeasuredThread::default() };
        let mut words = vec![7 | 5 << 32, u64::from(state), 100, 30, 4];
        words.extend(MeasuredThread { state: WaitState(state), ..thread }.words());
        Progress::read(&mut &bytes(&words)[..]).expect("it is complete")
    }

    #[test]
    fn names_end_at_a_nul_and_an_incomplete_entry_is_none() {
        let entry = |tid: u32, name: &[u8; NAME_BYTES]| {
            [&tid.to_ne_bytes()[..], &5_u32.to_ne_bytes(), name].concat()
        };
        let bytes = [entry(7, b"worker\0old\0\0\0\0\0\0"), entry(8, b"0123456789abcdef")].concat();
        let names = read_names(&bytes[..bytes.len() - 1]);
        assert_eq!(names, ThreadNames::from_iter([(5, vec![(7, b"worker".to_vec())])]));
        assert_eq!(read_names(&bytes)[&5][1], (8, b"0123456789abcdef".to_vec()));
    }

    #[test]
    fn wait_is_read_in_the_layout_of_the_program() {
        let raw = bytes(&[100, 350, 50, 2 | 1 << 32 | 2 << 48, 202, 9, 77, 0o140_777]);
        let wait = Wait::read(&raw).expect("it is complete");
        assert_eq!((wait.blocked_ns(), wait.runnable_ns), (200, 50));
        assert_eq!((wait.blocked_hits, wait.runnable_hits), (1, 2));
        assert_eq!((wait.place.state.letter(), wait.place.call), ('D', Some((202, 9))));
        assert!(!wait.place.is_of_kernel);
        let socket = FileId { inode: 77, kind: Some(libc::S_IFSOCK), is_shown: false };
        assert_eq!(wait.file, Some(socket));
        let words = [0, 1, 0, 2, KERNEL_THREAD, 0, 0, 0];
        let kernel = Wait::read(&bytes(&words)).expect("it is complete");
        assert_eq!(kernel.file, None);
        assert_eq!((kernel.place.call, kernel.place.is_of_kernel), (None, true));
        assert_eq!(Wait::read(&raw[..56]), None);
        let fault = Wait::read(&bytes(&[0, 1, 0, 0, u64::MAX, 0, 0, 0])).expect("it is complete");
        assert_eq!((fault.place.call, fault.place.state.is_preempted()), (None, true));
    }

    #[test]
    fn wake_is_read_in_the_layout_of_the_program() {
        let raw = bytes(&[100, 350, 8 | 7 << 32, 2]);
        let wake = Wake { since_ns: 100, until_ns: 350, tid: 8, pid: 7, hits: 2 };
        assert_eq!(Wake::read(&raw), Some(wake));
        assert_eq!(Wake::read(&raw[..24]), None);
    }

    #[test]
    fn notes_are_read_by_kind() {
        let times =
            ThreadTimes { begin_ns: 1, end_ns: 9, cpu_ns: 2, runnable_ns: 3, blocked_ns: 3 };
        let read = |words: &[u64]| ThreadNote::read(&bytes(words));
        let ended = ThreadNote { tid: 8, content: NoteContent::Ended(times) };
        assert_eq!(read(&[1 | 8 << 32, 1, 9, 2, 3, 3, 0]), Some(ended));
        let content = NoteContent::Runnable { begin_ns: 4, end_ns: 6, hits: 2 };
        assert_eq!(read(&[2 | 8 << 32, 4, 6, 0, 2, 0, 2]), Some(ThreadNote { tid: 8, content }));
        let two_samples = ThreadNote { tid: 8, content: NoteContent::TwoSamples };
        assert_eq!(read(&[3 | 8 << 32, 0, 0, 0, 0, 0, 0]), Some(two_samples));
        assert_eq!(read(&[4, 4, 6, 0, 2, 0, 1]), None);
    }

    #[test]
    fn letters_and_states_are_those_of_ps() {
        let letter = |state| WaitState(state).letter();
        assert_eq!(
            [0, 1, 2, 0x102, 0x104, 8, 0x402].map(letter),
            ['R', 'S', 'D', 'D', 'T', 't', 'I']
        );
        for known in *b"SDTtIR" {
            assert_eq!(WaitState::of_letter(known).letter(), char::from(known));
        }
    }

    #[test]
    fn time_of_a_thread_that_waits_is_that_of_its_wait() {
        let times = |phase, state| {
            let ThreadTimes { cpu_ns, runnable_ns, blocked_ns, .. } =
                progress(phase, state, 40).times();
            (cpu_ns, runnable_ns, blocked_ns)
        };
        assert_eq!(times(Phase::Waits, 1), (0, 0, 60));
        assert_eq!(times(Phase::Waits, 0), (0, 60, 0));
        assert_eq!(times(Phase::Attached, 2), (0, 0, 60));
        assert_eq!(times(Phase::Attached, 0), (30, 30, 0), "the delay is that of the kernel");
        assert_eq!(times(Phase::Created, 0), (30, 30, 0));
        let new = Progress { arrivals: 0, ..progress(Phase::Created, 0, 40) }.times();
        assert_eq!((new.runnable_ns, new.cpu_ns), (60, 0));
        let idle = |since_ns, has_not_run| {
            let mut thread = progress(Phase::Runs, 0, since_ns);
            thread.note_idle(|_| has_not_run);
            thread.times().runnable_ns
        };
        assert_eq!(idle(10, true), 90);
        assert_eq!((idle(10, false), idle(40, true)), (0, 0), "it has run");
        let mut woken = progress(Phase::Waits, 1, 40);
        (woken.thread.woken_ns, woken.state) = (90, WaitState(0));
        assert_eq!((woken.times().blocked_ns, woken.times().runnable_ns), (50, 10));
        assert_eq!(woken.woken_ns(), Some(90));
        assert_eq!(progress(Phase::Waits, 1, 40).wait(), Some((40, WaitState(1))));
        assert_eq!(progress(Phase::Runs, 0, 40).wait(), None);
    }

    #[test]
    fn thread_that_was_woken_is_runnable_now() {
        let woken =
            |now, phase, state| Progress { state: WaitState(now), ..progress(phase, state, 40) };
        assert!(woken(0, Phase::Waits, 1).is_woken());
        assert!(!woken(1, Phase::Waits, 1).is_woken());
        assert!(!woken(0, Phase::Waits, 0).is_woken(), "preempted");
        let found_asleep = woken(0, Phase::Attached, 1);
        assert!(found_asleep.is_woken());
        assert_eq!(found_asleep.wait(), Some((40, WaitState(1))), "it has not run");
        assert_eq!(woken(0, Phase::Attached, 0).wait(), None, "it ran when it was found");
    }

    #[test]
    fn thread_that_was_switched_in_has_run() {
        let earlier = progress(Phase::Waits, 1, 40);
        assert!(!earlier.has_run_since(&earlier));
        // It waited for no CPU, by the clock of the scheduler.
        let later = Progress { arrivals: earlier.arrivals + 1, ..earlier.clone() };
        assert!(later.has_run_since(&earlier));
    }

    #[test]
    fn captures_follow_each_other() {
        let waits = MeasuredThread { phase: Phase::Waits, ..MeasuredThread::default() };
        let mut words = vec![7 | 5 << 32, 1 | 1 << 32, 100, 30, 4];
        words.extend(waits.words());
        words.extend([0; REGISTER_BYTES / 8]);
        words.push(16);
        words.extend([0xffff_8000; KERNEL_FRAMES]);
        words.extend([8, 0, 100, 30, 4]);
        words.extend(MeasuredThread { phase: Phase::Runs, ..waits }.words());
        let all = bytes(&words);
        let mut rest = &all[..];
        let first = Progress::read(&mut rest).expect("the first");
        let capture = first.capture.expect("a stack");
        assert_eq!((first.tid, first.pid), (7, 5));
        assert_eq!((capture.kernel.len(), capture.registers.len()), (16, pt_regs::BYTES));
        let second = Progress::read(&mut rest).expect("the second");
        assert_eq!((second.tid, second.capture, rest.len()), (8, None, 0));
        assert_eq!(Progress::read(&mut &all[..300]), None, "cut off");
    }
}
