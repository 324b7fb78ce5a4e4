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
    /// The ids that later processes have. Whether those are followed is known after the ends of the earlier
    /// ones by their records.
    reused: FxHashSet<u32>,
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
            match read(pid, before) {
                Some(now) if now.start_ticks == known.last.start_ticks => {
                    known.note_reading(now, now_ns, before.is_none());
                }
                found => {
                    let awaits_records = known.is_followed && known.end.is_none();
                    self.reused.extend(found.filter(|_| awaits_records).map(|_| pid));
                    exited.push((Reverse(known.last.start_ticks), Reverse(pid)));
                }
            }
        }
        // Children before their parents.
        exited.sort_unstable();
        for &(_, Reverse(pid)) in &exited {
            self.note_exit(pid, now_ns);
        }
        self.note_orphans(&exited.into_iter().map(|(_, Reverse(pid))| pid).collect());
        let room = (self.existing + NEW_MAX).saturating_sub(self.processes.len());
        let is_new = |pid: &u32| !self.processes.contains_key(pid) && !self.reused.contains(pid);
        let new: Vec<u32> = living.filter(is_new).collect();
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
        self.reused.remove(&end.pid);
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
mod tests;
