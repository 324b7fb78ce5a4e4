//! Frames of a live stream with provisional names, and the time the stream waits for better ones.

use std::rc::Rc;
use std::time::{Duration, Instant};

use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

use crate::lookup::lookup_key::LookupKey;
use crate::names::location::SymbolizedFrame;

/// A frame that waits for its lookup.
pub(crate) struct DeferredFrame {
    /// Its id.
    pub(crate) frame: FrameId,
    /// Its location in the output so far.
    pub(crate) shown: Rc<SymbolizedFrame>,
    /// Its location in the input, if any.
    pub(crate) existing: Option<Rc<SymbolizedFrame>>,
}

/// The frames by their lookup. Ids are those of one epoch, which ends only after all are written.
pub(crate) type DeferredFrames = FxHashMap<LookupKey, Vec<DeferredFrame>>;

/// The time the stream still waits for lookups.
///
/// The time starts when all input that had arrived was written: input that queues before this
/// program cannot have waited for longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitBudget {
    limit: Duration,
    since: Instant,
}

impl WaitBudget {
    /// Starts now, with this limit.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// Starts again, since all input that had arrived was written.
    pub(crate) fn restart(&mut self) {
        self.since = Instant::now();
    }

    /// Returns the time left. None after the limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.limit.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_budget_ends_at_its_limit() {
        assert!(WaitBudget::new(Duration::ZERO).left().is_none());
        let mut budget = WaitBudget::new(Duration::from_secs(3600));
        budget.restart();
        assert!(budget.left().is_some_and(|left| left <= Duration::from_secs(3600)));
    }
}
