//! The times of threads, and their waits, by the records of context switches. Pure.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::record::{Switch, Tick};
use crate::perf::waits::data::{MeasuredThread, Phase, Progress, ThreadTimes, WaitState};

/// The most ticks that are kept. A wait that began before them is longer than any time between two.
const TICKS_MAX: usize = 4096;

/// The moments at which blocked threads were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(VecDeque<Tick>);

impl Ticks {
    /// Adds a tick. The first is the start of sampling.
    pub(crate) fn add(&mut self, tick: Tick) {
        if self.0.len() >= TICKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(tick);
    }

    /// Returns the length that a wait represents: all of the time from its start to the latest possible time of
    /// the next tick, if it is shorter. None if no tick fell into it.
    ///
    /// When the wait begins, the tick is equally likely at each moment up to that time, whatever the program has
    /// done before: a wait that is shorter is hit with the probability of its length divided by that time
    /// (the estimator of Horvitz and Thompson 1952). In expectation, the sum is the sum of the lengths.
    fn length_of(&self, since_ns: u64, until_ns: u64) -> Option<u64> {
        let length_ns = until_ns.saturating_sub(since_ns);
        let next = self.0.partition_point(|tick| tick.time_ns < since_ns);
        let tick = self.0.get(next).filter(|tick| tick.time_ns < until_ns)?;
        Some(length_ns.max(tick.latest_ns.saturating_sub(since_ns)))
    }
}

/// A wait that a switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedWait {
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) is_preempted: bool,
}

/// The time that a wait represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Represented {
    pub(crate) length_ns: u64,
    /// True if it was hit by chance, and represents others, too.
    pub(crate) is_by_chance: bool,
}

/// The time of a thread in short waits, less that which is represented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balance {
    ns: i64,
    /// The number of its waits that ticks fell into.
    hits: u32,
}

/// The hits of a thread from which on the balance is added to the next one. It makes the expected sum wrong by up
/// to the length of a wait: by 8 % for a thread with three.
const BALANCED_HITS: u32 = 16;

/// The times of all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchTimes {
    threads: FxHashMap<u32, MeasuredThread>,
    /// Threads that could run at the start of sampling, without a switch since: they run or wait for a CPU.
    runnable: FxHashSet<u32>,
    ticks: Ticks,
    balances: FxHashMap<u32, Balance>,
    /// The start of sampling; `None` before.
    begin_ns: Option<u64>,
}

impl SwitchTimes {
    /// Notes a tick. The first one is the start of sampling.
    pub(crate) fn tick(&mut self, tick: Tick) {
        self.begin_ns.get_or_insert(tick.time_ns);
        self.ticks.add(tick);
    }

    /// Measures a thread from a time on.
    fn add(&mut self, tid: u32, time_ns: u64, phase: Phase, state: WaitState) {
        if self.begin_ns.is_some() {
            let (begin_ns, since_ns) = (time_ns, time_ns);
            let thread = MeasuredThread { begin_ns, since_ns, phase, state, ..Default::default() };
            self.threads.insert(tid, thread);
        }
    }

    /// Notes a new thread, which waits for its first CPU.
    pub(crate) fn created(&mut self, tid: u32, time_ns: u64) {
        self.add(tid, time_ns, Phase::Waits, WaitState::default());
    }

    /// Notes that the command begins.
    pub(crate) fn started(&mut self, tid: u32, time_ns: u64) {
        self.add(tid, time_ns, Phase::Runs, WaitState::default());
    }

    /// Notes the state of a thread at the start of sampling.
    pub(crate) fn existed(&mut self, tid: u32, time_ns: u64, state: WaitState) {
        let phase = if state.is_preempted() { Phase::Runs } else { Phase::Waits };
        if state.is_preempted() {
            self.runnable.insert(tid);
        }
        self.add(tid, time_ns, phase, state);
    }

    /// Notes a switch of a thread that is known since `known_ns`. Returns the wait that it ends.
    pub(crate) fn switched(
        &mut self,
        tid: u32,
        known_ns: u64,
        time_ns: u64,
        switch: Switch,
    ) -> Option<EndedWait> {
        let begin_ns = self.begin_ns?.max(known_ns).min(time_ns);
        let was_runnable = self.runnable.remove(&tid);
        let thread = self.threads.entry(tid).or_insert_with(|| {
            let is_waiting = switch == Switch::In;
            let phase = if is_waiting { Phase::Waits } else { Phase::Runs };
            let state = WaitState(u32::from(is_waiting));
            MeasuredThread { begin_ns, since_ns: begin_ns, phase, state, ..Default::default() }
        });
        let since_ns = std::mem::replace(&mut thread.since_ns, time_ns);
        let length_ns = time_ns.saturating_sub(since_ns);
        if switch == Switch::In {
            let is_known = std::mem::replace(&mut thread.phase, Phase::Runs) == Phase::Waits;
            let is_preempted = thread.state.is_preempted();
            // The record of the switch before was lost, and the time stays unaccounted for, unless the thread has
            // waited for its CPU since the start.
            if !is_known && !was_runnable {
                return None;
            }
            let sum = if is_preempted { &mut thread.runnable_ns } else { &mut thread.blocked_ns };
            *sum += length_ns;
            return Some(EndedWait { since_ns, until_ns: time_ns, is_preempted });
        }
        if thread.phase == Phase::Runs {
            thread.cpu_ns += length_ns;
        }
        thread.phase = Phase::Waits;
        // Sleeping, until a look at it finds more.
        thread.state = WaitState(u32::from(switch == Switch::Blocked));
        None
    }

    /// Returns the time that a blocked wait of a thread represents. None if no tick fell into it.
    ///
    /// Ticks do not fall into short waits as often as they should if the recorder runs just when the
    /// thread waits, as on a busy machine, or just when it does not. For a thread with many waits, the balance is
    /// therefore added to a wait: the sum follows the time.
    pub(crate) fn represented(
        &mut self,
        tid: u32,
        since_ns: u64,
        until_ns: u64,
    ) -> Option<Represented> {
        let length_ns = until_ns.saturating_sub(since_ns);
        let hit_ns = self.ticks.length_of(since_ns, until_ns);
        // It is long enough to be hit always.
        if hit_ns == Some(length_ns) {
            return Some(Represented { length_ns, is_by_chance: false });
        }
        let balance = self.balances.entry(tid).or_default();
        let added_ns = if balance.hits < BALANCED_HITS { 0 } else { balance.ns };
        let hit_ns = hit_ns.map(|hit_ns| hit_ns.saturating_add_signed(added_ns));
        balance.hits = balance.hits.saturating_add(u32::from(hit_ns.is_some()));
        balance.ns += length_ns as i64 - hit_ns.unwrap_or(0) as i64;
        hit_ns.map(|length_ns| Represented { length_ns, is_by_chance: true })
    }

    /// Returns the start and the state of the wait of a thread. None if it runs.
    pub(crate) fn wait(&self, tid: u32) -> Option<(u64, WaitState)> {
        let thread = self.threads.get(&tid).filter(|thread| thread.phase == Phase::Waits)?;
        Some((thread.since_ns, thread.state))
    }

    /// Sets the state of a thread that is blocked, as it was found.
    pub(crate) fn set_state(&mut self, tid: u32, state: WaitState) {
        if let Some(thread) = self.threads.get_mut(&tid).filter(|_| !state.is_preempted()) {
            thread.state = state;
        }
    }

    /// Forgets a thread that has exited, and returns its times. None if it was not measured.
    pub(crate) fn exited(&mut self, tid: u32, time_ns: u64) -> Option<ThreadTimes> {
        let thread = self.threads.remove(&tid)?;
        self.balances.remove(&tid);
        self.runnable.remove(&tid);
        Some(Progress::of_switches(tid, 0, time_ns, thread).times())
    }

    /// Returns the state at `now_ns` of the threads of which `pid_of` returns the process.
    pub(crate) fn progress(
        &self,
        now_ns: u64,
        pid_of: impl Fn(u32) -> Option<u32>,
    ) -> Vec<Progress> {
        let mut threads: Vec<_> = self
            .threads
            .iter()
            .filter_map(|(&tid, &thread)| {
                Some(Progress::of_switches(tid, pid_of(tid)?, now_ns, thread))
            })
            .collect();
        threads.sort_unstable_by_key(|thread| thread.tid);
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> SwitchTimes {
        let mut times = SwitchTimes::default();
        times.tick(Tick { time_ns: 100, latest_ns: 100 });
        times
    }

    /// Ticks at random, each equally likely at any time of an interval after the one before.
    struct RandomTicks {
        seed: u64,
        next: Tick,
    }

    impl RandomTicks {
        fn new() -> Self {
            Self { seed: 1, next: Tick { time_ns: 0, latest_ns: 0 } }
        }

        /// Returns the next tick, and chooses the one that follows within `interval_ns`.
        fn next(&mut self, interval_ns: u64) -> Tick {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time_ns = self.next.time_ns;
            let next_ns = time_ns + (self.seed >> 33) % interval_ns;
            let next = Tick { time_ns: next_ns, latest_ns: time_ns + interval_ns };
            std::mem::replace(&mut self.next, next)
        }
    }

    fn parts(times: ThreadTimes) -> [u64; 4] {
        let ThreadTimes { begin_ns, end_ns, cpu_ns, runnable_ns, blocked_ns } = times;
        [end_ns - begin_ns, cpu_ns, runnable_ns, blocked_ns]
    }

    #[test]
    fn times_of_a_thread_add_up() {
        let mut times = measured();
        times.created(7, 110);
        let first = times.switched(7, 0, 115, Switch::In).expect("it waited for a CPU");
        assert!(first.is_preempted && (first.since_ns, first.until_ns) == (110, 115));
        assert_eq!(times.switched(7, 0, 120, Switch::Blocked), None);
        let wait = times.switched(7, 0, 150, Switch::In).expect("it was blocked");
        assert!(!wait.is_preempted && (wait.since_ns, wait.until_ns) == (120, 150));
        assert_eq!(times.switched(7, 0, 160, Switch::Preempted), None);
        assert!(times.switched(7, 0, 162, Switch::In).expect("it waited").is_preempted);
        assert_eq!(times.exited(7, 170).map(parts), Some([60, 23, 7, 30]));
        assert_eq!(times.exited(7, 180), None);
    }

    #[test]
    fn first_switch_shows_the_state_at_the_start() {
        let mut times = measured();
        let wait = times.switched(1, 0, 130, Switch::In).expect("it waited since the start");
        assert_eq!((wait.since_ns, wait.until_ns), (100, 130));
        assert_eq!(times.switched(2, 110, 130, Switch::Blocked), None);
        assert_eq!(times.exited(2, 140).map(parts), Some([30, 20, 0, 10]));
        times.existed(3, 100, WaitState(2));
        assert_eq!(times.wait(3), Some((100, WaitState(2))));
        assert_eq!(times.exited(3, 140).map(parts), Some([40, 0, 0, 40]));
        times.existed(4, 100, WaitState(0));
        assert_eq!(times.exited(4, 140).map(parts), Some([40, 40, 0, 0]));
        times.existed(5, 100, WaitState(0));
        let wait = times.switched(5, 0, 125, Switch::In).expect("it waited for a CPU");
        assert!(wait.is_preempted && (wait.since_ns, wait.until_ns) == (100, 125));
        assert_eq!(times.exited(5, 140).map(parts), Some([40, 15, 25, 0]));
        times.existed(6, 100, WaitState(0));
        assert_eq!(times.switched(6, 0, 130, Switch::Blocked), None, "it ran");
        assert_eq!(times.exited(6, 140).map(parts), Some([40, 30, 0, 10]));
    }

    #[test]
    fn lost_switch_leaves_time_unaccounted_for() {
        let mut times = measured();
        times.started(1, 100);
        assert_eq!(times.switched(1, 0, 110, Switch::Blocked), None);
        assert_eq!(times.switched(1, 0, 150, Switch::Blocked), None, "it ran between them");
        assert!(times.switched(1, 0, 160, Switch::In).is_some());
        assert_eq!(times.switched(1, 0, 170, Switch::In), None, "it was switched out between");
        assert_eq!(times.exited(1, 180).map(parts), Some([80, 20, 0, 10]));
    }

    #[test]
    fn nothing_is_measured_before_the_start() {
        let mut times = SwitchTimes::default();
        times.created(1, 10);
        assert_eq!(times.switched(1, 0, 20, Switch::In), None);
        assert_eq!(times.exited(1, 30), None);
    }

    #[test]
    fn wait_represents_the_time_to_the_latest_tick_or_itself() {
        let mut ticks = Ticks::default();
        for (time_ns, latest_ns) in [(100, 100), (200, 250), (350, 400)] {
            ticks.add(Tick { time_ns, latest_ns });
        }
        assert_eq!(ticks.length_of(110, 190), None, "no tick");
        assert_eq!(ticks.length_of(150, 210), Some(100), "the time from 150 to 250");
        assert_eq!(ticks.length_of(210, 360), Some(190));
        assert_eq!(ticks.length_of(150, 400), Some(250), "longer than the time to the latest tick");
        assert_eq!(ticks.length_of(360, 900), None);
        assert_eq!(ticks.length_of(100, 150), Some(50), "it waited at the start");
    }

    #[test]
    fn expected_sum_of_chosen_waits_is_that_of_all() {
        // A wait of each length at each start within 400,000 units.
        let (mut ticks, mut random) = (Ticks::default(), RandomTicks::new());
        while random.next.time_ns < 420_000 {
            ticks.0.push_back(random.next(200));
        }
        for length in [1, 30, 90, 140, 400] {
            let starts = 1000..401_000;
            let count = 400_000.0 * length as f64;
            let sum: u64 =
                starts.map(|since| ticks.length_of(since, since + length).unwrap_or(0)).sum();
            assert!((sum as f64 / count - 1.0).abs() < 0.03, "{length}: {sum}");
        }
    }

    #[test]
    fn expected_sum_is_that_of_all_where_ticks_are_rarer_after_none_has_hit() {
        // Threads that wait for 5 and for 2 of 37 units, with ticks as the recorder chooses them: the time between
        // them doubles while they hit nothing.
        let (mut random, mut quiet) = (RandomTicks::new(), 1);
        let mut times = SwitchTimes::default();
        let (mut sums, threads) = ([0, 0], 100_000);
        for thread in 0..threads {
            for (kind, (start, length)) in [(20_000, 5000), (35_000, 2000)].into_iter().enumerate()
            {
                let since_ns = u64::from(thread) * 37_000 + start;
                while random.next.time_ns < since_ns {
                    quiet = (2 * quiet).min(4);
                    times.tick(random.next(8000 * quiet));
                }
                while random.next.time_ns < since_ns + length {
                    quiet = 1;
                    times.tick(random.next(8000));
                }
                // A thread each.
                let represented = times.represented(thread, since_ns, since_ns + length);
                sums[kind] += represented.map_or(0, |it| it.length_ns);
            }
        }
        for (sum, length) in sums.into_iter().zip([5000.0, 2000.0]) {
            let share = sum as f64 / (f64::from(threads) * length);
            assert!((share - 1.0).abs() < 0.03, "{length}: {share}");
        }
    }

    #[test]
    fn sum_follows_the_time_where_ticks_prefer_waits_or_avoid_them() {
        // A wait of 50 in each 100 units, with a tick in each, or in each tenth.
        for each in [1, 10] {
            let (mut times, mut sum) = (SwitchTimes::default(), 0);
            for round in 1..=1000 {
                let since_ns = 100 * round;
                if round % each == 0 {
                    let time_ns = since_ns + 25;
                    times.tick(Tick { time_ns, latest_ns: time_ns + 50 * each });
                }
                let represented = times.represented(7, since_ns, since_ns + 50);
                sum += represented.map_or(0, |it| it.length_ns);
            }
            let waited = 50_u64 * 1000;
            assert!(waited.abs_diff(sum) <= 1000, "{each}: {sum}");
        }
    }

    #[test]
    fn expected_sum_of_threads_with_few_waits_is_their_time() {
        // Threads with three waits of 30, one after the other.
        let (mut times, mut sum, mut random) = (SwitchTimes::default(), 0, RandomTicks::new());
        let threads = 100_000;
        for thread in 0..threads {
            for wait in 0..3 {
                let since_ns = 150 * u64::from(thread) + 40 * wait;
                while random.next.time_ns < since_ns + 30 {
                    times.tick(random.next(240));
                }
                let represented = times.represented(thread, since_ns, since_ns + 30);
                sum += represented.map_or(0, |it| it.length_ns);
            }
        }
        let waited = 90.0 * f64::from(threads);
        assert!((sum as f64 / waited - 1.0).abs() < 0.02, "{sum}");
    }
}
