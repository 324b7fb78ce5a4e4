//! Waits of which the end is not known yet. Pure.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use nprof_stream::TaskId;
use rustc_hash::FxHashMap;

use super::activity::{Pair, SharedEnd, Wait, WaitEnd};

/// The greatest gap between two parts of one wait, in ns. The recorder writes parts without gaps, but
/// the time of a wake-up is that of its sample, some microseconds after the end of the wait.
const PART_GAP_NS: u64 = 10_000;

/// The time for which the last part of a wait may be late: it is written when the thread runs again, and the copy of
/// its stack took 0.2 ms on a busy machine, in which the thread had CPU samples. If its wake-up comes after it in the
/// stream, it begins later by the time that the thread waited for a CPU.
const LATE_PART_NS: u64 = 10_000_000;

/// A wait, or a part of one, and its end.
#[derive(Debug)]
pub(super) struct OpenWait {
    pub(super) wait: Wait,
    pub(super) end: SharedEnd,
}

/// Parts that have one end.
#[derive(Debug)]
struct Parts {
    numbers: VecDeque<u64>,
    /// The end of the last part.
    until: u64,
    /// The first time after it at which the thread did something else. The last part may still come: it is written
    /// when the thread runs again, and a sample may interrupt the thread before that.
    went_on: Option<u64>,
    end: SharedEnd,
}

impl Parts {
    /// Ends the parts if their thread went on.
    fn end_if_went_on(&self) {
        if self.went_on.is_some() {
            self.end.set(WaitEnd::Unknown);
        }
    }
}

/// The open waits: parts of waits in progress, and waits that ended before their wake-up came
/// in the stream.
#[derive(Debug, Default)]
pub(super) struct OpenWaits {
    /// The number of the next wait.
    next: u64,
    /// Waits in the order of their arrival.
    open: BTreeMap<u64, OpenWait>,
    in_progress: FxHashMap<TaskId, Parts>,
    ended: FxHashMap<Pair, Parts>,
    /// Wake-ups that came before their wait, and their times.
    wakes: FxHashMap<Pair, (WaitEnd, u64)>,
    wake_times: VecDeque<(u64, Pair)>,
}

impl OpenWaits {
    /// Adds a wait. Returns its end, and the waits that have an end now.
    pub(super) fn add(&mut self, wait: Wait) -> (SharedEnd, Vec<OpenWait>) {
        let mut decided = Vec::new();
        let earlier = self.in_progress.remove(&wait.task);
        let is_early = wait.pair.is_some_and(|pair| !self.wakes.contains_key(&pair));
        // A thread that has gone on before this wait has ended the earlier one.
        let is_gap = |parts: &Parts, most_ns| wait.start.abs_diff(parts.until) <= most_ns;
        let has_run = |parts: &Parts| {
            parts.went_on.is_some_and(|at| at.saturating_add(PART_GAP_NS) < wait.start)
        };
        let mut parts = match earlier {
            Some(parts)
                if is_gap(&parts, PART_GAP_NS)
                    || is_early && is_gap(&parts, LATE_PART_NS) && !has_run(&parts) =>
            {
                parts
            }
            earlier => {
                // The wait before this one ended without a record of it.
                decided.extend(earlier.into_iter().flat_map(|p| self.end(&p, WaitEnd::Unknown)));
                let end = Rc::new(Cell::new(WaitEnd::Open));
                Parts { numbers: VecDeque::new(), until: 0, went_on: None, end }
            }
        };
        let end = Rc::clone(&parts.end);
        self.open.insert(self.next, OpenWait { wait, end: Rc::clone(&end) });
        // Parts that the window has left need no number: a wait can last for hours.
        while parts.numbers.front().is_some_and(|number| !self.open.contains_key(number)) {
            parts.numbers.pop_front();
        }
        parts.numbers.push_back(self.next);
        (parts.until, parts.went_on) = (wait.end, None);
        self.next += 1;
        match wait.pair {
            None => {
                self.in_progress.insert(wait.task, parts);
            }
            Some(pair) => match self.wakes.remove(&pair) {
                Some((known, _)) => decided.extend(self.end(&parts, known)),
                None => {
                    self.ended.insert(pair, parts);
                }
            },
        }
        (end, decided)
    }

    /// Returns the time of the wake-up of a pair. None if it has not come yet.
    pub(super) fn woken_at(&self, pair: Pair) -> Option<u64> {
        self.wakes.get(&pair).map(|(_, time)| *time)
    }

    /// Notes the wake-up of a pair. Returns the waits that it ended.
    pub(super) fn wake(&mut self, pair: Pair, end: WaitEnd, time: u64) -> Vec<OpenWait> {
        // The recorder may write the two samples of a pair in either order.
        if let Some(parts) = self.ended.remove(&pair) {
            return self.end(&parts, end);
        }
        self.wakes.insert(pair, (end, time));
        self.wake_times.push_back((time, pair));
        Vec::new()
    }

    /// Notes that a thread does something else from `start` on. Returns the waits that had therefore
    /// ended.
    pub(super) fn goes_on(&mut self, task: TaskId, start: u64) -> Vec<OpenWait> {
        let Some(parts) = self.in_progress.get_mut(&task).filter(|parts| start >= parts.until)
        else {
            return Vec::new();
        };
        if start.saturating_sub(*parts.went_on.get_or_insert(start)) <= LATE_PART_NS {
            return Vec::new();
        }
        let parts = self.in_progress.remove(&task);
        parts.map(|parts| self.end(&parts, WaitEnd::Unknown)).unwrap_or_default()
    }

    /// Removes the waits that ended before `time`, and wake-ups before it.
    pub(super) fn expire(&mut self, time: u64) -> Vec<OpenWait> {
        let mut expired = Vec::new();
        while let Some(first) = self.open.first_entry().filter(|e| e.get().wait.end < time) {
            expired.push(first.remove());
        }
        while let Some(&(_, pair)) = self.wake_times.front().filter(|(at, _)| *at < time) {
            self.wakes.remove(&pair);
            self.wake_times.pop_front();
        }
        // Later parts of these waits begin a new list of parts.
        self.in_progress.retain(|_, parts| {
            let is_kept = parts.until >= time;
            if !is_kept {
                parts.end_if_went_on();
            }
            is_kept
        });
        self.ended.retain(|_, parts| parts.until >= time);
        expired
    }

    /// Removes all waits and wake-ups.
    pub(super) fn take_all(&mut self) -> Vec<OpenWait> {
        let waits = std::mem::take(self);
        waits.in_progress.values().for_each(Parts::end_if_went_on);
        waits.open.into_values().collect()
    }

    /// Returns the number of wake-ups that wait for their wait.
    pub(super) fn wakes(&self) -> usize {
        self.wakes.len()
    }

    /// Sets the end of parts, and returns those that are still open.
    fn end(&mut self, parts: &Parts, end: WaitEnd) -> Vec<OpenWait> {
        parts.end.set(end);
        parts.numbers.iter().filter_map(|number| self.open.remove(number)).collect()
    }
}
