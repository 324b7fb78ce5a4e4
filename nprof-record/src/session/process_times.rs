//! The CPU time of followed processes, summed over those that have exited by now. Pure.
//!
//! The CPU time of a process can be read until its parent waits for it; then the parent has it among
//! the children it has waited for. The times of some processes are in no parent: of daemons, for which
//! no followed process waits, and of children of a process that ignores SIGCHLD. So processes are read
//! again and again, and the time that one used until its last reading counts, unless its parent has it.
//! A parent may exit, too, before it was read again: then the time between the last reading of a child
//! and its exit is that of its samples.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::convert::process_tree::ProcessEnd;

/// A time that a parent lacks of its children counts from this length on: /proc states the times of
/// children in clock ticks, for user code and the kernel apart.
const MISSING_MIN_NS: u64 = 20_000_000;

/// A process that was not read for longer than this before it exited makes the sum unknown, if that
/// is a part of the time that matters, see [`UNREAD_SHARE`].
const UNREAD_MAX_NS: u64 = 1_000_000_000;

/// The part of the time that a process may be unread before its exit, as a divisor.
const UNREAD_SHARE: u64 = 20;

/// The most processes that are read besides those that existed at the beginning: 1 MiB.
const NEW_MAX: usize = 8192;

/// The most processes that one reading adds, and the most of which it reads more than the clock for
/// the sake of their children: each takes 12 us.
const LISTED_MAX: usize = 256;

/// The most gone processes above another. Ids that are used again could form a cycle.
const GENERATIONS_MAX: usize = 64;

/// The parent of an orphan, until it is read again: another process adopts it.
const NO_PARENT: u32 = 0;

/// The CPU times of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) parent: u32,
    /// Its start time, which tells it from a later process with the same id.
    pub(crate) start_ticks: u64,
    /// Its own CPU time and that of the children it has waited for, in ns.
    pub(crate) total_ns: u64,
    /// That of the children alone.
    pub(crate) children_ns: u64,
}

impl Reading {
    /// True if the clock of the process suffices to read it again: it has not waited for children, and
    /// its parent is known.
    pub(crate) fn needs_only_clock(&self) -> bool {
        self.children_ns == 0 && self.parent != NO_PARENT
    }
}

/// The processes that are read in /proc, besides those of which the clock does not suffice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    None,
    /// [`LISTED_MAX`] at a time, in turn.
    Part,
    All,
}

/// A process that was read.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// True if it is followed; if not, its parent is.
    is_followed: bool,
    /// The times at the beginning. Those of a process that began later are 0.
    before: Reading,
    last: Reading,
    /// The time of the last reading.
    read_ns: u64,
    /// The time of the last reading in /proc, which has the children that it had waited for.
    listed_ns: u64,
    /// The time of its end, if that was noted.
    ended_ns: Option<u64>,
    /// Its end by its records, if they came before a reading has found that it is gone.
    end: Option<ProcessEnd>,
    /// The CPU time of its children that have exited, as last read.
    exited_children_ns: u64,
    /// The CPU time that samples show of children after they were last read, if they have exited since
    /// `listed_ns`.
    sampled_children_ns: u64,
}

/// A process that is gone, of which the records are still to come.
#[derive(Clone, Copy, Debug)]
struct Gone {
    parent: u32,
    /// The CPU time that it has used itself since the beginning, as last read, or the highest number if the
    /// rest is estimated.
    own_ns: u64,
    listed_ns: u64,
}

impl Known {
    /// Returns the CPU time of its exited children that it does not have: it has not waited for them.
    fn missing_ns(&self) -> u64 {
        let waited = self.last.children_ns.saturating_sub(self.before.children_ns);
        let missing = self.exited_children_ns.saturating_sub(waited);
        if missing >= MISSING_MIN_NS { missing } else { 0 }
    }

    /// True if it existed at the beginning, and is followed.
    fn is_attached(&self) -> bool {
        self.is_followed && self.before.total_ns > 0
    }

    /// Returns the CPU time that it has used itself since the beginning, as last read.
    fn own_ns(&self) -> u64 {
        let own_ns = |reading: Reading| reading.total_ns.saturating_sub(reading.children_ns);
        own_ns(self.last).saturating_sub(own_ns(self.before))
    }

    /// Returns the CPU time that an attached process has probably used in the `unread_ns` before its exit:
    /// as much as in the `read_ns` from the beginning to its last reading, relative to their length. A
    /// later process may have exited long before this was noticed.
    fn unread_ns(&self, unread_ns: u64, read_ns: u64) -> u64 {
        let unread_ns = unread_ns.min(read_ns);
        let estimate =
            u128::from(self.own_ns()) * u128::from(unread_ns) / u128::from(read_ns.max(1));
        if self.is_attached() { u64::try_from(estimate).unwrap_or(0) } else { 0 }
    }

    /// Returns its part in the sum while it lives.
    fn part(&self) -> i128 {
        let used = i128::from(self.last.total_ns) - i128::from(self.before.total_ns);
        let missing = i128::from(self.missing_ns()) + i128::from(self.sampled_children_ns);
        if self.is_followed { used + missing } else { 0 }
    }

    /// Takes a reading at `now_ns`, in /proc if `is_listed`.
    fn note_reading(&mut self, reading: Reading, now_ns: u64, is_listed: bool) {
        (self.last, self.read_ns) = (reading, now_ns);
        if is_listed {
            // It has waited for them, and so has their whole time.
            (self.listed_ns, self.sampled_children_ns) = (now_ns, 0);
        }
    }

    /// Returns the state that its records need once it is gone. If it `has_parent`, its time is not
    /// estimated.
    fn gone(&self, has_parent: bool) -> Gone {
        let is_estimated = self.is_attached() && !has_parent;
        let own_ns = if is_estimated { u64::MAX } else { self.own_ns() };
        Gone { parent: self.last.parent, own_ns, listed_ns: self.listed_ns }
    }
}

/// The CPU times of followed processes.
#[derive(Debug, Default)]
pub(crate) struct ProcessTimes {
    processes: FxHashMap<u32, Known>,
    gone: FxHashMap<u32, Gone>,
    /// The number of processes that existed at the beginning.
    existing: usize,
    /// The time of the beginning.
    began_ns: u64,
    /// The part of the processes that have exited, in ns.
    exited: i128,
    /// True if a process exited that was not read for long.
    is_unknown: bool,
    /// The number of readings that read more than clocks.
    listings: usize,
}

impl ProcessTimes {
    pub(crate) fn new(began_ns: u64) -> Self {
        Self { began_ns, ..Self::default() }
    }

    /// Adds a process that exists at the beginning. One that is not followed is the child of one that
    /// is, which will have all of its time after waiting for it.
    pub(crate) fn add_existing(&mut self, pid: u32, reading: Reading, is_followed: bool) {
        let read_ns = self.began_ns;
        let known = Known {
            is_followed,
            before: reading,
            last: reading,
            read_ns,
            listed_ns: read_ns,
            ..Known::default()
        };
        // A process can be both followed and the child of one.
        self.processes.entry(pid).or_insert(known);
        self.existing = self.processes.len();
    }

    /// Reads the known processes at `now_ns`, and those in `living`, of which new ones began since the
    /// beginning. `read` gets the reading before if the clock of the process suffices.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        listing: Listing,
        living: impl Iterator<Item = u32>,
        read: impl Fn(u32, Option<Reading>) -> Option<Reading>,
    ) {
        let mut exited = Vec::new();
        self.listings += usize::from(listing != Listing::None);
        let turns = self.processes.len().div_ceil(LISTED_MAX).max(1);
        let turn = self.listings % turns;
        for (&pid, known) in &mut self.processes {
            let is_listed = match listing {
                Listing::None => false,
                Listing::Part => pid as usize % turns == turn,
                Listing::All => true,
            };
            let before = Some(known.last).filter(|before| before.needs_only_clock() && !is_listed);
            match read(pid, before).filter(|now| now.start_ticks == known.last.start_ticks) {
                Some(now) => known.note_reading(now, now_ns, before.is_none()),
                None => exited.push((Reverse(known.last.start_ticks), Reverse(pid))),
            }
        }
        // Children before their parents.
        exited.sort_unstable();
        for &(_, Reverse(pid)) in &exited {
            self.note_exit(pid, now_ns);
        }
        self.note_orphans(&exited.into_iter().map(|(_, Reverse(pid))| pid).collect());
        let room = (self.existing + NEW_MAX).saturating_sub(self.processes.len());
        let new: Vec<u32> = living.filter(|pid| !self.processes.contains_key(pid)).collect();
        for pid in new.into_iter().take(room.min(LISTED_MAX)) {
            if let Some(last) = read(pid, None) {
                let start_ticks = last.start_ticks;
                let before = Reading { start_ticks, ..Reading::default() };
                let known = Known {
                    is_followed: true,
                    before,
                    last,
                    read_ns: now_ns,
                    listed_ns: now_ns,
                    ..Known::default()
                };
                self.processes.insert(pid, known);
            }
        }
    }

    /// Notes that a process has exited by `now_ns`: it uses no time after it, and its last reading may
    /// be one of later.
    pub(crate) fn note_end(&mut self, pid: u32, now_ns: u64) {
        if let Some(known) = self.processes.get_mut(&pid) {
            known.ended_ns = Some(now_ns);
        }
    }

    /// Takes the end of a followed process by its records. Ends come in the order of time.
    pub(crate) fn note_records(&mut self, end: ProcessEnd) {
        match (self.gone.remove(&end.pid), self.processes.get_mut(&end.pid)) {
            (Some(gone), _) => self.add_sampled(end, Some(gone)),
            (None, Some(known)) => known.end = Some(end),
            // It has lived too short to be read.
            (None, None) => self.add_sampled(end, None),
        }
    }

    /// Adds the CPU time that samples show of a process after its last reading to the next one above it
    /// that is not gone, unless that, or one between them, was read after it had waited.
    fn add_sampled(&mut self, end: ProcessEnd, gone: Option<Gone>) {
        let mut above = gone.map_or(end.parent, |gone| gone.parent);
        let read_ns = gone.map_or(0, |gone| gone.own_ns);
        let sampled_ns = end.sampled_ns.saturating_sub(read_ns);
        let mut is_in_sum = gone.is_some();
        for _ in 0..GENERATIONS_MAX {
            if let Some(known) = self.processes.get_mut(&above).filter(|known| known.is_followed) {
                if known.listed_ns < end.time_ns {
                    known.sampled_children_ns =
                        known.sampled_children_ns.saturating_add(sampled_ns);
                }
                return;
            }
            match self.gone.get(&above) {
                Some(parent) if parent.listed_ns < end.time_ns => above = parent.parent,
                Some(_) => return,
                None => break,
            }
            is_in_sum = true;
        }
        // The parent of a process that was never read may have been waited for by a followed one.
        if is_in_sum {
            self.exited += i128::from(sampled_ns);
        }
    }

    /// Notes that the parents of processes have exited.
    fn note_orphans(&mut self, exited: &FxHashSet<u32>) {
        if exited.is_empty() {
            return;
        }
        for known in self.processes.values_mut() {
            if exited.contains(&known.last.parent) {
                known.last.parent = NO_PARENT;
            }
        }
    }

    /// Moves the time of an exited process to its parent, or to the sum.
    fn note_exit(&mut self, pid: u32, now_ns: u64) {
        let Some(known) = self.processes.remove(&pid) else { return };
        let total_ns = known.last.total_ns.saturating_add(known.missing_ns());
        if known.is_followed {
            let parent = self.processes.get(&known.last.parent);
            let gone = known.gone(parent.is_some_and(|parent| parent.is_followed));
            match known.end {
                Some(end) => self.add_sampled(end, Some(gone)),
                None => self.note_gone(pid, gone),
            }
        }
        // What a parent has may include the part before the beginning, and that of a process that is
        // not followed.
        let outside = if known.is_followed { known.before.total_ns } else { total_ns };
        self.exited -= i128::from(outside);
        let parent = self.processes.get_mut(&known.last.parent);
        if let Some(parent) = parent.filter(|parent| parent.is_followed) {
            parent.exited_children_ns = parent.exited_children_ns.saturating_add(total_ns);
            // If its parent was listed in this reading, it has waited for it and has their time, too.
            if parent.listed_ns < now_ns {
                let sampled_ns = &mut parent.sampled_children_ns;
                *sampled_ns = sampled_ns.saturating_add(known.sampled_children_ns);
            }
            return;
        }
        let ended_ns = known.ended_ns.unwrap_or(now_ns);
        let unread_ns = ended_ns.saturating_sub(known.read_ns);
        let read_ns = known.read_ns.saturating_sub(self.began_ns);
        self.exited += i128::from(total_ns) + i128::from(known.unread_ns(unread_ns, read_ns));
        self.exited += i128::from(known.sampled_children_ns);
        let elapsed_ns = now_ns.saturating_sub(self.began_ns);
        self.is_unknown |= unread_ns > UNREAD_MAX_NS && unread_ns > elapsed_ns / UNREAD_SHARE;
    }

    fn note_gone(&mut self, pid: u32, gone: Gone) {
        // Records may be lost.
        if self.gone.len() >= NEW_MAX {
            self.gone.clear();
        }
        self.gone.insert(pid, gone);
    }

    /// Replaces the times of the command, which has exited: `total_ns` has the children that it
    /// waited for, too.
    pub(crate) fn end_command(&mut self, pid: u32, total_ns: u64) {
        let known = self.processes.entry(pid).or_default();
        known.is_followed = true;
        let own_ns = known.last.total_ns.saturating_sub(known.last.children_ns);
        known.last.total_ns = total_ns;
        known.last.children_ns = total_ns.saturating_sub(own_ns);
    }

    /// Returns the times of a process as last read. None if it was never read.
    pub(crate) fn last(&self, pid: u32) -> Option<Reading> {
        self.processes.get(&pid).map(|known| known.last)
    }

    /// Returns the CPU time since the beginning in ns, with that of other processes. None if it is
    /// unknown.
    pub(crate) fn sum_ns(&self, others_ns: Option<u64>) -> Option<u64> {
        let parts = self.processes.values().map(Known::part);
        let sum = self.exited + parts.sum::<i128>() + i128::from(others_ns?);
        (!self.is_unknown).then(|| u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
    }

    /// True if the times of a process are part of the sum.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;

    const MS: u64 = 1_000_000;

    /// The processes of a machine: parent, and times in ms with those of the children.
    #[derive(Default)]
    struct Machine(BTreeMap<u32, Reading>);

    impl Machine {
        fn set(&mut self, pid: u32, parent: u32, total: u64, children: u64) {
            let (total_ns, children_ns) = (total * MS, children * MS);
            let start_ticks = u64::from(pid);
            self.0.insert(pid, Reading { parent, start_ticks, total_ns, children_ns });
        }

        fn read(&self, times: &mut ProcessTimes, now_ms: u64) -> Option<u64> {
            let living: Vec<u32> = self.0.keys().copied().filter(|&pid| pid >= 10).collect();
            let read = |pid, _| self.0.get(&pid).copied();
            times.read(now_ms * MS, Listing::All, living.into_iter(), read);
            times.sum_ns(Some(0)).map(|ns| ns / MS)
        }

        /// Reads as [`Machine::read`], where it suffices by clocks.
        fn read_clocks(&self, times: &mut ProcessTimes, now_ms: u64) -> Option<u64> {
            times.read(now_ms * MS, Listing::None, std::iter::empty(), |pid, before| {
                let now = *self.0.get(&pid)?;
                Some(before.map_or(now, |before| Reading { total_ns: now.total_ns, ..before }))
            });
            times.sum_ns(Some(0)).map(|ns| ns / MS)
        }
    }

    /// Notes the records of the end of a process.
    fn note_records(times: &mut ProcessTimes, pid: u32, parent: u32, at_ms: u64, sampled_ms: u64) {
        let (time_ns, sampled_ns) = (at_ms * MS, sampled_ms * MS);
        times.note_records(ProcessEnd { pid, parent, time_ns, sampled_ns });
    }

    /// Returns the sum in ms.
    fn sum(times: &ProcessTimes) -> Option<u64> {
        times.sum_ns(Some(0)).map(|ns| ns / MS)
    }

    /// Returns the times of an attached process 10, which has used 1000 ms before.
    fn attached() -> (Machine, ProcessTimes) {
        let mut machine = Machine::default();
        machine.set(10, 1, 1000, 300);
        let mut times = ProcessTimes::new(0);
        times.add_existing(10, machine.0[&10], true);
        (machine, times)
    }

    #[test]
    fn time_of_child_counts_once_before_and_after_its_parent_has_waited() {
        let (mut machine, mut times) = attached();
        machine.set(10, 1, 1020, 300);
        machine.set(11, 10, 500, 0);
        assert_eq!(machine.read(&mut times, 100), Some(520));
        machine.0.remove(&11);
        machine.set(10, 1, 1530, 810);
        assert_eq!(machine.read(&mut times, 200), Some(530), "it has used 10 ms since it was read");
    }

    #[test]
    fn time_of_child_counts_if_its_parent_exits_right_after_waiting() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 500, 0);
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 200), Some(500));
    }

    #[test]
    fn time_of_process_that_no_followed_one_waits_for_counts() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 100, 0);
        machine.set(12, 11, 70, 0);
        machine.read(&mut times, 100);
        // A daemon: its parent has exited.
        machine.0.remove(&11);
        machine.set(10, 1, 1100, 400);
        machine.set(12, 1, 90, 0);
        assert_eq!(machine.read(&mut times, 200), Some(190));
        machine.0.remove(&12);
        assert_eq!(machine.read(&mut times, 300), Some(190));
    }

    #[test]
    fn time_of_orphan_counts_once_if_its_next_parent_waits_for_it() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 0, 0);
        machine.set(12, 11, 70, 0);
        machine.read(&mut times, 100);
        // 10 adopts the children of its children (PR_SET_CHILD_SUBREAPER).
        machine.0.remove(&11);
        machine.set(12, 10, 80, 0);
        machine.read_clocks(&mut times, 200);
        machine.set(12, 10, 90, 0);
        assert_eq!(machine.read_clocks(&mut times, 300), Some(90));
        machine.0.remove(&12);
        machine.set(10, 1, 1090, 390);
        machine.read_clocks(&mut times, 400);
        assert_eq!(machine.read(&mut times, 500), Some(90));
    }

    #[test]
    fn time_of_children_of_a_process_that_ignores_their_ends_counts() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 200, 0);
        machine.set(12, 10, 300, 0);
        machine.read(&mut times, 100);
        machine.0.remove(&11);
        assert_eq!(machine.read(&mut times, 200), Some(500));
        machine.0.remove(&12);
        machine.set(10, 1, 1005, 300);
        assert_eq!(machine.read(&mut times, 300), Some(505));
    }

    #[test]
    fn time_of_more_processes_than_one_reading_adds_counts() {
        let (mut machine, mut times) = attached();
        for pid in 11..1011 {
            machine.set(pid, 1, 30, 0);
        }
        for round in 1..5 {
            machine.read(&mut times, 100 * round);
        }
        assert!(machine.0.keys().all(|&pid| times.has(pid)));
        machine.0.retain(|&pid, _| pid == 10);
        assert_eq!(machine.read(&mut times, 500), Some(1000 * 30));
    }

    #[test]
    fn every_process_is_read_in_proc_in_turn() {
        let (mut machine, mut times) = attached();
        for pid in 11..1011 {
            machine.set(pid, 1, 30, 0);
        }
        for round in 1..5 {
            machine.read(&mut times, 100 * round);
        }
        let listed = std::cell::RefCell::new(FxHashSet::default());
        for round in 5..9 {
            let before = listed.borrow().len();
            times.read(100 * round * MS, Listing::Part, std::iter::empty(), |pid, last| {
                if last.is_none() {
                    listed.borrow_mut().insert(pid);
                }
                machine.0.get(&pid).copied()
            });
            assert!(listed.borrow().len() - before <= LISTED_MAX + 1, "and the attached one");
        }
        assert_eq!(listed.borrow().len(), machine.0.len());
    }

    #[test]
    fn time_since_the_last_reading_of_exited_process_is_estimated() {
        let (mut machine, mut times) = attached();
        machine.set(10, 1, 1080, 300);
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 150), Some(120), "80 % of 50 ms");
        let (mut machine, mut times) = attached();
        machine.set(10, 1, 1080, 300);
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 900), Some(160), "at most as much as was read");
    }

    #[test]
    fn time_before_the_beginning_does_not_count() {
        let mut machine = Machine::default();
        machine.set(10, 1, 1000, 300);
        machine.set(11, 10, 700, 0);
        machine.set(9, 10, 400, 0);
        let mut times = ProcessTimes::new(0);
        times.add_existing(10, machine.0[&10], true);
        times.add_existing(11, machine.0[&11], true);
        // A child of a followed process that is not followed itself.
        times.add_existing(9, machine.0[&9], false);
        machine.set(9, 10, 450, 0);
        machine.set(11, 10, 730, 0);
        assert_eq!(machine.read(&mut times, 100), Some(30));
        machine.0.remove(&9);
        machine.0.remove(&11);
        machine.set(10, 1, 1000 + 450 + 730, 300 + 450 + 730);
        assert_eq!(machine.read(&mut times, 200), Some(30));
    }

    #[test]
    fn time_of_orphan_that_is_not_followed_does_not_count() {
        let (mut machine, mut times) = attached();
        machine.set(9, 10, 400, 0);
        times.add_existing(9, machine.0[&9], false);
        machine.set(9, 1, 450, 0);
        machine.read(&mut times, 100);
        machine.0.remove(&9);
        assert_eq!(machine.read(&mut times, 150), Some(0));
    }

    #[test]
    fn later_process_with_the_id_is_another_one() {
        let (mut machine, mut times) = attached();
        machine.set(11, 1, 200, 0);
        machine.read(&mut times, 100);
        machine.set(11, 1, 50, 0);
        machine.0.entry(11).and_modify(|reading| reading.start_ticks += 1);
        assert_eq!(machine.read(&mut times, 200), Some(250));
    }

    #[test]
    fn process_uses_no_time_after_its_noted_end() {
        let (mut machine, mut times) = attached();
        machine.set(10, 1, 1100, 300);
        machine.read(&mut times, 200);
        times.note_end(10, 300 * MS);
        // Its parent has not waited for it yet.
        machine.set(10, 1, 1150, 300);
        assert_eq!(machine.read(&mut times, 301), Some(150));
        machine.0.remove(&10);
        assert_eq!(machine.read(&mut times, 800), Some(150));
        // Its parent was faster.
        let (mut machine, mut times) = attached();
        machine.set(10, 1, 1100, 300);
        machine.read(&mut times, 200);
        times.note_end(10, 300 * MS);
        machine.0.remove(&10);
        assert_eq!(machine.read(&mut times, 800), Some(150));
    }

    #[test]
    fn sum_is_unknown_if_process_exits_long_after_it_was_read() {
        let (mut machine, mut times) = attached();
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 4100), None, "the recorder was stopped");
        let (mut machine, mut times) = attached();
        machine.read(&mut times, 60_000);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 61_500), Some(0), "a small part of a minute");
    }

    #[test]
    fn samples_of_child_count_if_it_ends_unread_with_its_parent() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 60, 0);
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 200), Some(60));
        note_records(&mut times, 11, 10, 190, 140);
        // It was never read.
        note_records(&mut times, 12, 10, 195, 30);
        note_records(&mut times, 10, 0, 196, 0);
        assert_eq!(sum(&times), Some(170));
        // The same if the records come before the reading.
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 60, 0);
        machine.read(&mut times, 100);
        machine.0.clear();
        note_records(&mut times, 11, 10, 190, 140);
        note_records(&mut times, 12, 10, 195, 30);
        note_records(&mut times, 10, 0, 196, 0);
        assert_eq!(machine.read(&mut times, 200), Some(170));
    }

    #[test]
    fn samples_of_attached_child_count_if_it_ends_unread_with_its_parent() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 100, 0);
        times.add_existing(11, machine.0[&11], true);
        machine.set(11, 10, 160, 0);
        machine.read(&mut times, 100);
        machine.0.clear();
        assert_eq!(machine.read(&mut times, 200), Some(60));
        note_records(&mut times, 11, 10, 190, 140);
        assert_eq!(sum(&times), Some(140));
    }

    #[test]
    fn samples_of_child_do_not_count_if_its_parent_was_read_after_waiting() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 60, 0);
        machine.read(&mut times, 100);
        machine.0.remove(&11);
        // It has waited for 12, too, which was never read.
        machine.set(10, 1, 1171, 470);
        assert_eq!(machine.read(&mut times, 200), Some(171));
        note_records(&mut times, 11, 10, 190, 145);
        note_records(&mut times, 12, 10, 195, 35);
        assert_eq!(sum(&times), Some(171));
        machine.0.clear();
        machine.read(&mut times, 200);
        assert_eq!(sum(&times), Some(171));
        // The same if the records come before the reading.
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 60, 0);
        machine.read(&mut times, 100);
        machine.0.remove(&11);
        note_records(&mut times, 11, 10, 190, 145);
        note_records(&mut times, 12, 10, 195, 35);
        machine.set(10, 1, 1171, 470);
        assert_eq!(machine.read(&mut times, 200), Some(171));
    }

    #[test]
    fn samples_of_children_do_not_add_up_beside_one_that_was_not_waited_for() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 5000, 0);
        machine.read(&mut times, 100);
        machine.0.remove(&11);
        for round in 2..20 {
            note_records(&mut times, 100 + round as u32, 10, 100 * round - 50, 30);
            machine.set(10, 1, 1000 + 30 * (round - 1), 300 + 30 * (round - 1));
            machine.read(&mut times, 100 * round);
        }
        assert_eq!(sum(&times), Some(5000));
    }

    #[test]
    fn samples_of_grandchild_count_if_all_above_it_end_unread() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 20, 0);
        machine.set(12, 11, 50, 0);
        machine.read(&mut times, 100);
        machine.0.clear();
        machine.read(&mut times, 200);
        note_records(&mut times, 12, 11, 190, 90);
        note_records(&mut times, 11, 10, 195, 25);
        note_records(&mut times, 10, 0, 196, 0);
        assert_eq!(sum(&times), Some(115));
        // Their parent, which lives, has all of it.
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 20, 0);
        machine.set(12, 11, 50, 0);
        machine.read(&mut times, 100);
        machine.0.retain(|&pid, _| pid == 10);
        machine.set(10, 1, 1115, 415);
        machine.read(&mut times, 200);
        note_records(&mut times, 12, 11, 190, 95);
        note_records(&mut times, 11, 10, 195, 30);
        assert_eq!(sum(&times), Some(115));
    }

    #[test]
    fn samples_of_grandchild_do_not_count_if_the_process_that_waited_for_its_parent_is_read() {
        let (mut machine, mut times) = attached();
        machine.set(11, 10, 20, 0);
        machine.set(12, 11, 50, 0);
        machine.read(&mut times, 100);
        // 11 is read by its clock only, as if it had not waited for 12.
        machine.0.remove(&12);
        note_records(&mut times, 12, 11, 190, 300);
        assert_eq!(machine.read_clocks(&mut times, 200), Some(320));
        machine.0.remove(&11);
        machine.set(10, 1, 1325, 625);
        assert_eq!(machine.read(&mut times, 300), Some(325));
    }

    #[test]
    fn samples_of_process_without_known_parent_do_not_count() {
        let (_, mut times) = attached();
        // The command has waited for the parent 11, which was never read either.
        note_records(&mut times, 12, 11, 190, 90);
        assert_eq!(sum(&times), Some(0));
    }

    #[test]
    fn command_counts_by_its_usage_and_with_children_it_did_not_wait_for() {
        let mut machine = Machine::default();
        let mut times = ProcessTimes::new(0);
        times.end_command(10, 40 * MS);
        assert_eq!(times.sum_ns(Some(7 * MS)), Some(47 * MS), "never read");
        let mut times = ProcessTimes::new(0);
        machine.set(10, 1, 20, 0);
        machine.set(11, 10, 500, 0);
        machine.read(&mut times, 100);
        times.end_command(10, 530 * MS);
        machine.set(10, 1, 530, 510);
        machine.0.remove(&11);
        assert_eq!(machine.read(&mut times, 200), Some(530));
    }
}
