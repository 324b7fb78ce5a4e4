//! The frames of a live stream that have a provisional name, and how long a stream waits for
//! better ones.

use std::rc::Rc;
use std::time::{Duration, Instant};

use nprof_stream::FrameId;
use rustc_hash::FxHashMap;

use crate::image::opened::Place;
use crate::names::location::SymbolizedFrame;

/// A frame, and what it is called until its place was looked up.
pub(crate) struct DeferredFrame {
    /// The frame.
    pub(crate) frame: FrameId,
    /// What it is called in the stream by now.
    pub(crate) shown: Rc<SymbolizedFrame>,
    /// What the input says of it, if anything.
    pub(crate) theirs: Option<Rc<SymbolizedFrame>>,
}

/// The frames by image and place: as ids are of an epoch, it ends before they are forgotten.
pub(crate) type DeferredFrames = FxHashMap<(usize, Place), Vec<DeferredFrame>>;

/// How long the stream still waits for what is being looked up.
///
/// The time counts from when all that had arrived was handed on: what waits in front of this
/// program cannot have waited for longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitBudget {
    limit: Duration,
    since: Instant,
}

impl WaitBudget {
    /// Waits for so long, from now on.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: Instant::now() }
    }

    /// All that has arrived was handed on.
    pub(crate) fn renew(&mut self) {
        self.since = Instant::now();
    }

    /// How much is left; `None` when it has run out.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.limit.checked_sub(self.since.elapsed()).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_runs_out() {
        assert!(WaitBudget::new(Duration::ZERO).left().is_none());
        let mut patience = WaitBudget::new(Duration::from_secs(3600));
        patience.renew();
        assert!(patience.left().is_some_and(|left| left <= Duration::from_secs(3600)));
    }
}
