//! Follows one draw from a waiter along the chain of wakers. Pure.

use nprof_stream::TaskId;
use rustc_hash::FxHashMap;

use super::activity::{Activity, Doing, Reason, Target, Wait, WaitEnd};
use super::donors::Donors;
use super::timeline::Timeline;

/// The part of the charger that a draw needs.
pub(super) struct Chain<'a> {
    pub(super) tasks: &'a FxHashMap<TaskId, Timeline>,
    pub(super) donors: &'a mut Donors,
    /// The most wakers that a draw passes.
    pub(super) depth: usize,
}

impl Chain<'_> {
    /// Returns the place that a point of a wait is charged to. A wait gives `adds_donor` to one of its
    /// draws.
    pub(super) fn follow(
        &mut self,
        wait: &Wait,
        end: WaitEnd,
        mut point: u64,
        adds_donor: bool,
    ) -> Target {
        let (mut task, mut node, mut end) = (wait.task, wait.node, end);
        // The activity of wakers outside of the wait does not explain it.
        let (mut low, mut high) = (wait.start, wait.end);
        let mut passed = vec![task];
        loop {
            // A chain that ends here is charged to the thread that waits.
            let stop = |reason| Target { task, node, reason: Some(reason) };
            let waker = match end {
                WaitEnd::Woken(waker) => waker,
                WaitEnd::Interrupt => return stop(Reason::Interrupt),
                WaitEnd::Unknown => return stop(Reason::UnknownWaker),
                // A waker cannot have been waiting still when it woke the next thread: the end of its
                // wait was lost.
                WaitEnd::Open if passed.len() > 1 || wait.pair.is_some() => {
                    return stop(Reason::UnknownWaker);
                }
                WaitEnd::Open => return stop(Reason::StillWaiting),
            };
            // Only in a stream with wrong or lost records, but then without end.
            if passed.contains(&waker.task) {
                return stop(Reason::Cycle);
            }
            if passed.len() > self.depth {
                return stop(Reason::Depth);
            }
            let found = self.tasks.get(&waker.task).and_then(|row| row.at(point, low, high));
            let observed = match found {
                Some(activity) => {
                    // Exact observations cover their time: donors represent the rest of it.
                    if adds_donor && !activity.is_exact() {
                        self.donors.add(waker, activity);
                    }
                    Some(activity.clone())
                }
                None => self.donors.next(waker),
            };
            task = waker.task;
            passed.push(task);
            let Some(Activity { start, end: until, node: seen, doing, .. }) = observed else {
                let reason = Some(Reason::NotSampled);
                return Target { task, node: waker.node, reason };
            };
            node = seen;
            match doing {
                Doing::Running => return Target { task, node, reason: None },
                Doing::Runnable => return Target { task, node, reason: Some(Reason::Runnable) },
                Doing::Waiting(next) => {
                    end = next.get();
                    // An exact wait covers the point. One that was chosen at random represents others
                    // at other times: the draw goes on at the same relative place of its interval.
                    if !(start..until).contains(&point) {
                        point = start + rescaled(point - low, high - low, until - start);
                        (low, high) = (start, until);
                    } else {
                        (low, high) = (low.max(start), high.min(until));
                    }
                }
            }
        }
    }
}

/// Returns the place in an interval of length `to` that corresponds to `offset` in one of length `from`.
fn rescaled(offset: u64, from: u64, to: u64) -> u64 {
    let place = u128::from(offset) * u128::from(to) / u128::from(from.max(1));
    place.min(u128::from(to.saturating_sub(1))) as u64
}
