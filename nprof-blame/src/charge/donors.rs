//! Observations that replace those that a short wait lacks. Pure.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::activity::{Activity, Waker};

/// Observations of one waker that are kept, the newest ones. They take turns.
const OF_ONE_WAKER: usize = 16;

/// Wakers that have donors: with 16 observations of 64 bytes each, 64 MiB. Later ones have none.
const WAKERS: usize = 1 << 16;

/// The observations in earlier waits that ended with the same wake-up: by the same thread with the
/// same stack. Most short waits contain no sample of their waker; those that contain one are
/// chosen by chance, so that they represent the others (hot-deck imputation).
#[derive(Debug, Default)]
pub(crate) struct Donors(FxHashMap<Waker, Observations>);

#[derive(Debug, Default)]
struct Observations {
    newest: VecDeque<Activity>,
    turn: usize,
}

impl Donors {
    /// Adds an observation of a waker in a wait that it ended.
    pub(crate) fn add(&mut self, waker: Waker, activity: &Activity) {
        // The first ones, which need not be the most frequent: a bound for hostile streams.
        if self.0.len() >= WAKERS && !self.0.contains_key(&waker) {
            return;
        }
        let newest = &mut self.0.entry(waker).or_default().newest;
        if newest.len() == OF_ONE_WAKER {
            newest.pop_front();
        }
        newest.push_back(activity.clone());
    }

    /// Returns the next observation of a waker in turn. None if it has none.
    pub(crate) fn next(&mut self, waker: Waker) -> Option<Activity> {
        let observations = self.0.get_mut(&waker)?;
        observations.turn = (observations.turn + 1) % observations.newest.len();
        observations.newest.get(observations.turn).cloned()
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
