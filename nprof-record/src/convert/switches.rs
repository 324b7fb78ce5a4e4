//! The times of threads, and their waits, by the records of context switches. Pure.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::perf::record::Switch;
use crate::perf::waits::data::{MeasuredThread, Phase, Progress, ThreadTimes, WaitState};

/// The most ticks that are kept. A wait that began before them is longer than any time between two.
const TICKS_MAX: usize = 4096;

/// The moments at which blocked threads were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(VecDeque<u64>);

impl Ticks {
    /// Adds a tick. The first is the start of sampling.
    pub(crate) fn add(&mut self, time_ns: u64) {
        if self.0.len() >= TICKS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(time_ns);
    }

    /// Returns the last tick before a time; 0 if there is none.
    fn last_before(&self, time_ns: u64) -> u64 {
        let next = self.0.partition_point(|&tick_ns| tick_ns < time_ns);
        next.checked_sub(1).and_then(|before| self.0.get(before)).copied().unwrap_or(0)
    }

    /// Returns the length that a wait represents: all of the time between two ticks, if it is shorter.
    /// None if no tick fell into it.
    ///
    /// The time between two ticks is chosen before it begins, so that the start of a wait is anywhere
    /// in it: a wait that is shorter is hit with the probability of its length divided by that time.
    /// In expectation, the sum is the sum of the lengths.
    fn length_of(&self, since_ns: u64, until_ns: u64) -> Option<u64> {
        let length_ns = until_ns.saturating_sub(since_ns);
        let next = self.0.partition_point(|&tick_ns| tick_ns < since_ns);
        let tick_ns = *self.0.get(next).filter(|&&tick_ns| tick_ns < until_ns)?;
        let before_ns = next.checked_sub(1).and_then(|before| self.0.get(before));
        Some(before_ns.map_or(length_ns, |before_ns| length_ns.max(tick_ns - before_ns)))
    }
}

/// A wait that a switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedWait {
    pub(crate) since_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) is_preempted: bool,
}

/// The time of a thread in short waits, less that which is represented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Balance {
    now_ns: i64,
    /// That at the last tick before the last wait.
    at_tick_ns: i64,
    tick_ns: u64,
}

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
    pub(crate) fn tick(&mut self, time_ns: u64) {
        self.begin_ns.get_or_insert(time_ns);
        self.ticks.add(time_ns);
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

    /// Returns the length that a blocked wait of a thread represents. None if no tick fell into it.
    ///
    /// Ticks do not fall into short waits as often as they should if the recorder runs just when the
    /// thread waits, as on a busy machine, or just when it does not. The balance up to the last tick is
    /// therefore added to a wait. It has no part in the time of the next tick: where ticks are
    /// independent of waits, it is 0 in expectation, also for a thread that ends.
    pub(crate) fn represented_ns(&mut self, tid: u32, since_ns: u64, until_ns: u64) -> Option<u64> {
        let length_ns = until_ns.saturating_sub(since_ns);
        let hit_ns = self.ticks.length_of(since_ns, until_ns);
        // It is long enough to be hit always.
        if hit_ns == Some(length_ns) {
            return hit_ns;
        }
        let tick_ns = self.ticks.last_before(since_ns);
        let balance = self.balances.entry(tid).or_default();
        if balance.tick_ns != tick_ns {
            (balance.tick_ns, balance.at_tick_ns) = (tick_ns, balance.now_ns);
        }
        let hit_ns = hit_ns.map(|hit_ns| hit_ns.saturating_add_signed(balance.at_tick_ns));
        balance.now_ns += length_ns as i64 - hit_ns.unwrap_or(0) as i64;
        hit_ns
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
        times.tick(100);
        times
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
    fn wait_represents_the_time_between_ticks_or_for_itself() {
        let mut ticks = Ticks::default();
        [100, 200, 350].into_iter().for_each(|time_ns| ticks.add(time_ns));
        assert_eq!(ticks.length_of(110, 190), None, "no tick");
        assert_eq!(ticks.length_of(150, 210), Some(100), "the time from 100 to 200");
        assert_eq!(ticks.length_of(210, 360), Some(150));
        assert_eq!(ticks.length_of(150, 400), Some(250), "longer than the time between ticks");
        assert_eq!(ticks.length_of(360, 900), None);
        assert_eq!(ticks.length_of(100, 150), Some(50), "it waited at the start");
    }

    #[test]
    fn expected_sum_of_chosen_waits_is_that_of_all() {
        // Ticks at distances from 50 to 149; a wait of each length at each start within 100,000 units.
        let (mut ticks, mut time_ns, mut seed) = (Ticks::default(), 0, 1_u64);
        while time_ns < 120_000 {
            ticks.add(time_ns);
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            time_ns += 50 + (seed >> 33) % 100;
        }
        for length in [1, 30, 90, 140, 400] {
            let starts = 1000..101_000;
            let count = 100_000.0 * length as f64;
            let sum: u64 =
                starts.map(|since| ticks.length_of(since, since + length).unwrap_or(0)).sum();
            assert!((sum as f64 / count - 1.0).abs() < 0.01, "{length}: {sum}");
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
                    times.tick(since_ns + 25);
                }
                sum += times.represented_ns(7, since_ns, since_ns + 50).unwrap_or(0);
            }
            let waited = 50_u64 * 1000;
            assert!(waited.abs_diff(sum) <= 1000, "{each}: {sum}");
        }
    }

    #[test]
    fn expected_sum_of_threads_with_few_waits_is_their_time() {
        // Threads with three waits of 30, one after the other, with ticks at each 100 to 139 units.
        let (mut times, mut sum, mut seed, mut tick_ns) = (SwitchTimes::default(), 0, 1_u64, 0);
        let threads = 100_000;
        for thread in 0..threads {
            for wait in 0..3 {
                let since_ns = 150 * u64::from(thread) + 40 * wait;
                while tick_ns < since_ns + 30 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    tick_ns += 100 + (seed >> 33) % 40;
                    times.tick(tick_ns);
                }
                sum += times.represented_ns(thread, since_ns, since_ns + 30).unwrap_or(0);
            }
        }
        let waited = 90.0 * f64::from(threads);
        assert!((sum as f64 / waited - 1.0).abs() < 0.02, "{sum}");
    }
}
