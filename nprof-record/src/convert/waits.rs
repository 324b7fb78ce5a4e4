//! The weights of waits, their causes, the parts of waits that go on, and the sums over all threads.
//! Pure.

use std::ops::Range;

use nprof_stream::{EventId, NodeId, TaskId};
use nprof_unwind::unwind::stack_input::Words;
use rustc_hash::FxHashMap;

use crate::convert::switches::SwitchTimes;
use crate::image::kernel::kallsyms::WaitSymbols;
use crate::perf::waits::data::{self as perf, COMPAT_CALL, Capture, ThreadTimes, WaitPlace};
use crate::perf::waits::windows;

/// The weight and the count of a sample.
pub(crate) type Weight = (u64, u64);

/// An event that measures waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitEvent {
    pub(crate) event: EventId,
    /// Its interval in ns.
    pub(crate) period: u64,
}

impl WaitEvent {
    /// Returns the weight of a wait of `size` ns, which is `hits` periods if it is shorter than one;
    /// each period is hit with the probability `size / period`. In expectation, the weight is the
    /// size and the count the size in periods.
    pub(crate) fn weight(self, size: u64, hits: u64, random: &mut Random) -> Weight {
        let period = self.period.max(1);
        if size < period {
            let hits = hits.max(1);
            return (period.saturating_mul(hits), hits);
        }
        self.exact(size, random)
    }

    /// Returns the weight of a wait of `size` ns that is recorded whatever its length: its size.
    pub(crate) fn exact(self, size: u64, random: &mut Random) -> Weight {
        let period = self.period.max(1);
        let count = size / period + u64::from(random.is_below(size % period, period));
        (size, count.max(1))
    }

    /// Returns the weight of the last part of a wait that was chosen with `hits`, of which the rest was
    /// written before it ended. None if the part is not chosen.
    pub(crate) fn weight_of_part(
        self,
        part: u64,
        whole: u64,
        hits: u64,
        random: &mut Random,
    ) -> Option<Weight> {
        if part >= whole {
            return Some(self.weight(whole, hits, random));
        }
        if whole >= self.period {
            return self.choose(part, random);
        }
        // The wait was chosen with the probability whole / period.
        random.is_below(part, whole).then(|| self.weight(part, hits, random))
    }

    /// Chooses a wait and returns its weight. None if it was not chosen.
    pub(crate) fn choose(self, size: u64, random: &mut Random) -> Option<Weight> {
        let is_chosen = size >= self.period || random.is_below(size, self.period);
        (is_chosen && size > 0).then(|| self.weight(size, 1, random))
    }
}

/// Random numbers: SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns true with the probability `part / whole`.
    fn is_below(&mut self, part: u64, whole: u64) -> bool {
        let scaled = (u128::from(self.next()) * u128::from(whole)) >> 64;
        scaled < u128::from(part)
    }
}

/// A wait that goes on, as far as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OngoingWait {
    pub(crate) since_ns: u64,
    /// The end of its last part.
    pub(crate) until_ns: u64,
    /// The leaf of its stack. None after a new epoch, until its next part.
    pub(crate) node: Option<NodeId>,
    pub(crate) capture: Capture,
    /// None if it is unknown.
    pub(crate) place: Option<WaitPlace>,
    /// The object it waits for.
    pub(crate) object: Vec<u8>,
}

/// A wake-up that was written, until the sample of the wait that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenWake {
    /// The start of the wait.
    pub(crate) since_ns: u64,
    /// The length of the wait without the parts written before.
    pub(crate) lasted_ns: u64,
    /// None if this part was not chosen.
    pub(crate) weight: Option<Weight>,
    /// The number that both samples have.
    pub(crate) pair: u64,
}

/// The exact times of all threads that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeSums {
    pub(crate) wall_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) runnable_ns: u64,
    pub(crate) blocked_ns: u64,
}

impl TimeSums {
    /// Adds the times of a thread.
    pub(crate) fn add(&mut self, times: &ThreadTimes) {
        self.wall_ns += times.end_ns.saturating_sub(times.begin_ns);
        self.cpu_ns += times.cpu_ns;
        self.runnable_ns += times.runnable_ns;
        self.blocked_ns += times.blocked_ns;
    }
}

/// The state of the events that measure waiting.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) blocked: Option<WaitEvent>,
    pub(crate) runnable: Option<WaitEvent>,
    pub(crate) wakes: Option<WaitEvent>,
    /// The event of CPU time of which samples may count twice; `None` without it.
    pub(crate) timer: Option<EventId>,
    /// The threads and times of the samples that do, by CPU, until they come.
    twice: FxHashMap<u32, (u32, u64)>,
    pub(crate) random: Random,
    /// True if samples have only the leaf of their stack.
    pub(crate) leaf_only: bool,
    symbols: WaitSymbols,
    /// By thread id.
    pub(crate) ongoing: FxHashMap<u32, OngoingWait>,
    /// By the id of the thread that was woken.
    pub(crate) woken: FxHashMap<u32, WrittenWake>,
    /// The number of pairs so far.
    pub(crate) pairs: u64,
    /// The ids in the stream of threads that have exited, until their times come.
    pub(crate) exited: FxHashMap<u32, TaskId>,
    pub(crate) sums: TimeSums,
    /// The times by records of context switches; `None` if BPF programs measure them.
    pub(crate) switches: Option<SwitchTimes>,
    /// The last window; empty before the first. `None` if waits are recorded all the time.
    pub(crate) window: Option<Range<u64>>,
    /// The factor of weights: the time for which a moment in a window stands.
    pub(crate) scale: u64,
    /// The end of the last wait for a descriptor, or the time from which the first may come.
    pub(crate) descriptor_ns: u64,
}

/// The most exited threads of which the times are awaited.
const EXITED_MAX: usize = 1 << 16;

/// The time for which another wait for a descriptor is expected after one.
const DESCRIPTORS_NS: u64 = 2_000_000_000;

/// The longest time between a sample that counts twice and the note of that. A virtual machine may stop between
/// both: with 10 us, 2 to 3 % of the CPU time of a busy server were missing.
const TWICE_NS: u64 = 1_000_000;

impl WaitState {
    /// Keeps the id in the stream of a thread that has exited: its times come after its exit.
    pub(crate) fn note_exited(&mut self, tid: u32, task: TaskId) {
        if self.exited.len() >= EXITED_MAX {
            self.exited.clear();
        }
        self.exited.insert(tid, task);
    }

    /// Creates the state before the first wait.
    pub(crate) fn new(
        blocked: Option<WaitEvent>,
        runnable: Option<WaitEvent>,
        wakes: Option<WaitEvent>,
        random: Random,
        symbols: WaitSymbols,
    ) -> Self {
        Self {
            blocked,
            runnable,
            wakes,
            timer: None,
            twice: FxHashMap::default(),
            random,
            leaf_only: false,
            symbols,
            ongoing: FxHashMap::default(),
            woken: FxHashMap::default(),
            pairs: 0,
            exited: FxHashMap::default(),
            sums: TimeSums::default(),
            switches: None,
            window: None,
            scale: 1,
            descriptor_ns: 0,
        }
    }

    /// Notes the place of a wait that ended or was seen at `time_ns`.
    pub(crate) fn note_place(&mut self, place: WaitPlace, time_ns: u64) {
        if matches!(object(place), Some(WaitObject::Descriptor(_) | WaitObject::Epoll(_))) {
            self.descriptor_ns = time_ns;
        }
    }

    /// True if threads wait for descriptors, which they may soon close.
    pub(crate) fn waits_for_descriptors(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.descriptor_ns) < DESCRIPTORS_NS
    }

    /// Notes that the next sample of the timer of a CPU, which is of this thread, counts twice.
    pub(crate) fn note_two_samples(&mut self, cpu: u32, tid: u32, time_ns: u64) {
        self.twice.insert(cpu, (tid, time_ns));
    }

    /// Returns the number of samples that a sample counts as.
    pub(crate) fn samples_in(&mut self, event: EventId, cpu: u32, tid: u32, time_ns: u64) -> u64 {
        if self.timer != Some(event) {
            return 1;
        }
        let noted = self.twice.remove(&cpu);
        // The note was written while the sample was taken. That one may be lost.
        let is_twice = |(of, at_ns): (u32, u64)| of == tid && at_ns.abs_diff(time_ns) < TWICE_NS;
        1 + u64::from(noted.is_some_and(is_twice))
    }

    /// Returns the length of the recorded part of `time`: of all of it, unless waits are recorded in windows.
    pub(crate) fn recorded_ns(&self, time: Range<u64>) -> u64 {
        let window = self.window.clone().unwrap_or(0..u64::MAX);
        windows::overlap(&time, &window)
    }

    /// Drops the ids of the epoch before.
    pub(crate) fn begin_epoch(&mut self) {
        self.exited.clear();
        self.ongoing.values_mut().for_each(|ongoing| ongoing.node = None);
    }

    /// Adds a wait that goes on. It has no stack, unless it was added with one before.
    pub(crate) fn add_without_stack(
        &mut self,
        tid: u32,
        since_ns: u64,
        wait_state: perf::WaitState,
    ) {
        if self.ongoing.get(&tid).is_some_and(|ongoing| ongoing.since_ns == since_ns) {
            return;
        }
        // A blocked one gets the mark of a missing stack with its next part.
        let is_preempted = wait_state.is_preempted();
        let wait = OngoingWait {
            since_ns,
            until_ns: since_ns,
            node: is_preempted.then_some(NodeId::NONE),
            capture: Capture::default(),
            place: is_preempted.then(WaitPlace::default),
            object: Vec::new(),
        };
        self.ongoing.insert(tid, wait);
    }

    /// Takes the wait of a thread that goes on, if it began at `since_ns`. A later one stays: the
    /// kernel reports its stack once.
    pub(crate) fn take_ongoing(&mut self, tid: u32, since_ns: u64) -> Option<OngoingWait> {
        self.ongoing.get(&tid).filter(|ongoing| ongoing.since_ns <= since_ns)?;
        self.ongoing.remove(&tid).filter(|ongoing| ongoing.since_ns == since_ns)
    }

    /// The same for the wake-up of a wait.
    pub(crate) fn take_woken(&mut self, tid: u32, since_ns: u64) -> Option<WrittenWake> {
        self.woken.get(&tid).filter(|wake| wake.since_ns <= since_ns)?;
        self.woken.remove(&tid).filter(|wake| wake.since_ns == since_ns)
    }

    /// Returns the frames of a kernel stack without those of the scheduler and of the BPF program at
    /// its leaf, as the kernel does for /proc/PID/wchan: the first frame names the cause.
    pub(crate) fn cause_of<'a>(&self, kernel: Words<'a>) -> Words<'a> {
        let is_scheduler = |address: &u64| self.symbols.scheduler.contains(address);
        let Some(first) = kernel.iter().position(|address| is_scheduler(&address)) else {
            return self.shown(kernel.0);
        };
        let inside = kernel.iter().skip(first).take_while(is_scheduler).count();
        self.shown(kernel.0.get((first + inside) * 8..).unwrap_or_default())
    }

    fn shown<'a>(&self, kernel: &'a [u8]) -> Words<'a> {
        let bytes = if self.leaf_only { kernel.len().min(8) } else { kernel.len() };
        Words(&kernel[..bytes])
    }

    /// Returns the frames of a waker's kernel stack without the function that wakes a task and its
    /// callees, and true if an interrupt is the waker: the frames are then those of the interrupt, not
    /// those of the thread that it has stopped.
    pub(crate) fn waker_of<'a>(&self, kernel: Words<'a>) -> (Words<'a>, bool) {
        let is_waking = |address| self.symbols.waking.contains(&address);
        let first = kernel.iter().position(is_waking).map_or(0, |callee| callee + 1);
        let is_entry =
            |address| self.symbols.interrupts.iter().any(|function| function.contains(&address));
        let entry = kernel.iter().position(is_entry);
        let end = entry.map_or(kernel.0.len(), |entry| (entry + 1) * 8);
        (Words(kernel.0.get(first * 8..end).unwrap_or_default()), entry.is_some())
    }
}

/// The system calls with a descriptor as the first argument in which threads wait.
const ON_DESCRIPTOR: [&str; 36] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "recvmmsg",
    "sendmmsg",
    "accept",
    "accept4",
    "connect",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "ftruncate",
    "fallocate",
    "flock",
    "ioctl",
    "fcntl",
    "getdents64",
    "close",
    "io_uring_enter",
    "splice",
    "tee",
    "vmsplice",
    "sendfile",
    "mq_timedsend",
    "mq_timedreceive",
];

/// The kind of object that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitObject {
    /// A descriptor of its process.
    Descriptor(u32),
    /// One of an epoll instance.
    Epoll(u32),
    /// The address of a futex word.
    Futex(u64),
}

/// Returns the word for the place in the program at which a thread waits: the name of the system call,
/// or the reason why it is in none.
pub(crate) fn call_name(place: WaitPlace) -> String {
    match place.call.map(|(number, _)| (number, system_call(number))) {
        Some((_, Some(name))) => name.to_owned(),
        Some((number, None)) if number & COMPAT_CALL != 0 => {
            format!("syscall32-{}", number & !COMPAT_CALL)
        }
        Some((number, None)) => format!("syscall-{number}"),
        None if place.state.is_preempted() => "preempted".to_owned(),
        None if place.state.is_stopped() => "stopped".to_owned(),
        None if place.is_of_kernel => "kernel-thread".to_owned(),
        None => "page-fault".to_owned(),
    }
}

/// Returns the object that a thread waits for. None if its system call has none that is known.
pub(crate) fn object(place: WaitPlace) -> Option<WaitObject> {
    let (number, argument) = place.call.filter(|_| !place.state.is_preempted())?;
    match system_call(number)? {
        "futex" | "futex_wait" => Some(WaitObject::Futex(argument)),
        // The kernel takes the lower half.
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => Some(WaitObject::Epoll(argument as u32)),
        name if ON_DESCRIPTOR.contains(&name) => Some(WaitObject::Descriptor(argument as u32)),
        _ => None,
    }
}

fn system_call(number: u32) -> Option<&'static str> {
    syscalls::Sysno::new(number as usize).map(|call| call.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::waits::data::{KERNEL_THREAD, WaitState as State};
    use syscalls::Sysno;

    const EVENT: WaitEvent = WaitEvent { event: EventId(1), period: 1000 };

    fn sums(size: u64, rounds: u64) -> (f64, f64) {
        let mut random = Random::new(7);
        let (mut weight, mut count) = (0, 0);
        for _ in 0..rounds {
            let chosen = EVENT.choose(size, &mut random).unwrap_or_default();
            (weight, count) = (weight + chosen.0, count + chosen.1);
        }
        (weight as f64 / rounds as f64, count as f64 / rounds as f64)
    }

    #[test]
    fn weight_and_count_are_unbiased_for_every_size() {
        // The seed is fixed. 100,000 rounds: the standard deviation of the count is below 0.0016.
        for size in [1, 100, 500, 999, 1000, 1001, 1500, 2999, 123_456] {
            let (weight, count) = sums(size, 100_000);
            let expected = size as f64 / 1000.0;
            assert!((count - expected).abs() < 0.008, "{size}: {count}");
            assert!((weight / 1000.0 - expected).abs() < 0.008, "{size}: {weight}");
        }
    }

    #[test]
    fn recorded_part_of_a_wait_is_that_in_the_window() {
        let mut state = WaitState::new(None, None, None, Random::new(0), WaitSymbols::default());
        assert_eq!(state.recorded_ns(10..70), 60);
        state.window = Some(20..30);
        let recorded =
            [10..70, 10..25, 25..70, 22..24, 5..20, 30..40].map(|it| state.recorded_ns(it));
        assert_eq!(recorded, [10, 5, 5, 2, 0, 0]);
    }

    #[test]
    fn noted_sample_counts_twice() {
        let mut state = WaitState::new(None, None, None, Random::new(0), WaitSymbols::default());
        state.timer = Some(EventId(2));
        state.note_two_samples(0, 7, 1_000_500);
        state.note_two_samples(1, 7, 1_000_500);
        assert_eq!(state.samples_in(EventId(1), 0, 7, 1_000_000), 1, "of another event");
        assert_eq!(state.samples_in(EventId(2), 0, 7, 1_000_000), 2);
        assert_eq!(state.samples_in(EventId(2), 0, 7, 1_000_600), 1, "once");
        assert_eq!(state.samples_in(EventId(2), 1, 7, 3_000_000), 1, "the noted one was lost");
        state.note_two_samples(1, 7, 4_000_000);
        assert_eq!(state.samples_in(EventId(2), 1, 8, 4_000_000), 1, "of another thread");
    }

    #[test]
    fn waits_for_descriptors_are_expected_after_one() {
        let mut state = WaitState::new(None, None, None, Random::new(0), WaitSymbols::default());
        assert!(state.waits_for_descriptors(DESCRIPTORS_NS - 1), "the first ones");
        let place = |call| WaitPlace { call: Some((call, 3)), ..WaitPlace::default() };
        let blocked = |call| WaitPlace { state: State(1), ..place(call) };
        let [read, futex] = [Sysno::read, Sysno::futex].map(|call| call.id() as u32);
        state.note_place(blocked(futex), DESCRIPTORS_NS);
        state.note_place(place(read), DESCRIPTORS_NS);
        assert!(!state.waits_for_descriptors(DESCRIPTORS_NS));
        state.note_place(blocked(read), DESCRIPTORS_NS);
        assert!(state.waits_for_descriptors(2 * DESCRIPTORS_NS - 1));
        assert!(!state.waits_for_descriptors(2 * DESCRIPTORS_NS));
    }

    #[test]
    fn later_wait_goes_on_when_the_end_of_an_earlier_one_is_read() {
        let mut state = WaitState::new(None, None, None, Random::new(0), WaitSymbols::default());
        let ongoing = OngoingWait {
            since_ns: 50,
            until_ns: 60,
            node: None,
            capture: Capture::default(),
            place: None,
            object: Vec::new(),
        };
        let wake = WrittenWake { since_ns: 50, lasted_ns: 10, weight: None, pair: 1 };
        state.ongoing.insert(7, ongoing.clone());
        state.woken.insert(7, wake);
        assert_eq!((state.take_ongoing(7, 40), state.take_woken(7, 40)), (None, None));
        assert_eq!(state.take_ongoing(7, 50), Some(ongoing.clone()));
        assert_eq!(state.take_woken(7, 50), Some(wake));
        state.ongoing.insert(7, ongoing);
        assert_eq!((state.take_ongoing(7, 70), state.ongoing.len()), (None, 0), "it is over");
    }

    #[test]
    fn wait_of_an_interval_or_more_is_exact() {
        let mut random = Random::new(1);
        for size in [1000, 1999, 5_000_000_123] {
            let (weight, count) = EVENT.choose(size, &mut random).expect("it is long enough");
            assert_eq!(weight, size);
            assert!((size / 1000..=size / 1000 + 1).contains(&count), "{count}");
        }
        assert_eq!(EVENT.choose(0, &mut random), None);
        assert_eq!(EVENT.weight(10, 2, &mut random), (2000, 2), "chosen before");
    }

    #[test]
    fn frames_of_the_scheduler_are_dropped_from_the_leaf() {
        let symbols = WaitSymbols { scheduler: 100..200, ..WaitSymbols::default() };
        let state = WaitState::new(None, None, None, Random::new(0), symbols);
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let cause = |words: &[u64]| -> Vec<u64> {
            let bytes: Vec<u8> = bytes(words);
            state.cause_of(Words(&bytes)).iter().collect()
        };
        assert_eq!(cause(&[7, 100, 199, 300, 150, 400]), [300, 150, 400]);
        assert_eq!(cause(&[300, 400]), [300, 400], "not in the scheduler");
        assert_eq!(cause(&[100]), [] as [u64; 0]);
    }

    #[test]
    fn only_the_cause_is_left_without_stacks() {
        let symbols = WaitSymbols { scheduler: 100..200, ..WaitSymbols::default() };
        let mut state = WaitState::new(None, None, None, Random::new(0), symbols);
        state.leaf_only = true;
        let bytes: Vec<u8> =
            [7_u64, 100, 300, 400].iter().flat_map(|it| it.to_le_bytes()).collect();
        assert_eq!(state.cause_of(Words(&bytes)).iter().collect::<Vec<_>>(), [300]);
        assert_eq!(state.cause_of(Words(&[])).iter().count(), 0);
    }

    #[test]
    fn last_part_of_a_wait_is_unbiased() {
        // The program has chosen the wait with the probability whole / period.
        let mut random = Random::new(5);
        for (part, whole) in [(200, 600), (1, 999), (400, 400), (300, 1500), (1200, 2500)] {
            let (mut weight, mut count) = (0, 0);
            for _ in 0..100_000 {
                if whole < 1000 && !random.is_below(whole, 1000) {
                    continue;
                }
                let chosen = EVENT.weight_of_part(part, whole, 1, &mut random).unwrap_or_default();
                (weight, count) = (weight + chosen.0, count + chosen.1);
            }
            let expected = part as f64 / 1000.0;
            let mean = |sum: u64| sum as f64 / 100_000.0;
            assert!((mean(count) - expected).abs() < 0.008, "{part} of {whole}: {}", mean(count));
            assert!((mean(weight) / 1000.0 - expected).abs() < 0.008, "{part} of {whole}");
        }
    }

    #[test]
    fn waker_is_what_called_the_wake_up_or_an_interrupt() {
        let symbols =
            WaitSymbols { waking: 50..60, interrupts: vec![80..90, 95..99], scheduler: 100..200 };
        let state = WaitState::new(None, None, None, Random::new(0), symbols);
        let waker = |words: &[u64]| -> (Vec<u64>, bool) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (frames, is_interrupt) = state.waker_of(Words(&bytes));
            (frames.iter().collect(), is_interrupt)
        };
        assert_eq!(waker(&[7, 55, 300, 400]), (vec![300, 400], false));
        assert_eq!(waker(&[7, 55, 300, 98, 150, 85]), (vec![300, 98], true));
        assert_eq!(waker(&[300, 400]), (vec![300, 400], false), "cut off or unknown");
        assert_eq!(waker(&[]), (vec![], false));
    }

    #[test]
    fn last_part_of_a_wait_has_its_length_as_weight() {
        let mut random = Random::new(3);
        assert_eq!(EVENT.exact(10, &mut random), (10, 1));
        assert_eq!(EVENT.exact(3000, &mut random), (3000, 3));
    }

    #[test]
    fn place_is_named_by_call_or_reason() {
        let place = |state, call| WaitPlace { state: State(state), call, is_of_kernel: false };
        let at = |state, call| call_name(place(state, call));
        assert_eq!(at(1, Some((0, 5))), "read");
        assert_eq!(at(1, Some((99_999, 5))), "syscall-99999");
        assert_eq!([at(2, None), at(0, None), at(4, None)], ["page-fault", "preempted", "stopped"]);
        assert_eq!(call_name(WaitPlace::new(State(1), KERNEL_THREAD, 0)), "kernel-thread");
        let in_32_bits = u64::from(COMPAT_CALL | 162);
        assert_eq!(call_name(WaitPlace::new(State(1), in_32_bits, 0)), "syscall32-162");
        assert_eq!(call_name(WaitPlace::new(State(0), KERNEL_THREAD, 0)), "preempted");
        let futex = u32::try_from(libc::SYS_futex).expect("small");
        assert_eq!(object(place(1, Some((futex, 0x7f00)))), Some(WaitObject::Futex(0x7f00)));
        assert_eq!(object(place(1, Some((0, 5)))), Some(WaitObject::Descriptor(5)));
        let epoll = Sysno::epoll_pwait as u32;
        assert_eq!(object(place(1, Some((epoll, 5)))), Some(WaitObject::Epoll(5)));
        assert_eq!(object(place(0, Some((0, 5)))), None, "it waits for a CPU");
        let sleep = u32::try_from(libc::SYS_nanosleep).expect("small");
        assert_eq!(object(place(1, Some((sleep, 5)))), None);
    }
}
