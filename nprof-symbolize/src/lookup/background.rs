//! Places of a live stream, looked up on a thread of its own: the stream waits for none of them,
//! however large the debug information is.
//!
//! What is waiting is looked up image by image in the order of addresses, beginning anew at the
//! lowest when the highest was reached, so that the tables of a unit serve all its places.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::find::RecordedImage;
use crate::image::opened::{Place, Symbolized};
use crate::lookup::image_cache::ImageCache;
use crate::stats::image_findings::ImageFindings;

/// A place of an image, by the image's index.
type Key = (usize, Place);

/// What the thread is told.
enum Request {
    /// The next image.
    Image(RecordedImage),
    /// A process of the recording.
    Process(u32),
    /// To look up a place.
    Place(Key),
}

/// What became of a place.
pub(crate) struct LookupResult {
    /// The index of its image.
    pub(crate) slot: usize,
    pub(crate) place: Place,
    pub(crate) resolution: Symbolized,
    /// What was found out of the image on the way.
    pub(crate) findings: Option<ImageFindings>,
}

/// The thread, and what it was asked.
pub(crate) struct BackgroundLookup {
    asks: Sender<Request>,
    found: Receiver<LookupResult>,
    waiting: FxHashSet<Key>,
}

impl BackgroundLookup {
    /// Starts the thread, whose stack has so many bytes; its pool is made by `make`.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub(crate) fn start(
        stack: usize,
        make: impl FnOnce() -> ImageCache + Send + 'static,
    ) -> io::Result<Self> {
        let (asks, asked) = channel();
        let (finds, found) = channel();
        let work = move || work(&mut make(), &asked, &finds);
        std::thread::Builder::new().stack_size(stack).spawn(work)?;
        Ok(Self { asks, found, waiting: FxHashSet::default() })
    }

    /// Stands for a thread that is so slow that nothing was found yet: who sends what is found is
    /// the caller.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (Self, Sender<LookupResult>) {
        let (finds, found) = channel();
        (Self { asks: channel().0, found, waiting: FxHashSet::default() }, finds)
    }

    /// Adds an image behind the others.
    pub(crate) fn add(&self, recorded: RecordedImage) {
        self.send(Request::Image(recorded));
    }

    /// Takes note of a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.send(Request::Process(pid));
    }

    /// Asks for a place, once.
    pub(crate) fn ask(&mut self, slot: usize, place: Place) {
        if self.waiting.insert((slot, place)) {
            self.send(Request::Place((slot, place)));
        }
    }

    /// Whether a place is still being looked up.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next of what was asked for that is found, if that takes no longer than so long; with no
    /// limit, `None` says that nothing is looked up any more.
    pub(crate) fn next(&mut self, patience: Option<Duration>) -> Option<LookupResult> {
        if self.waiting.is_empty() {
            return None;
        }
        let found = match patience {
            Some(patience) => self.found.recv_timeout(patience),
            None => self.found.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match found {
            Ok(found) => {
                self.waiting.remove(&(found.slot, found.place));
                Some(found)
            }
            Err(RecvTimeoutError::Timeout) => None,
            // The thread is gone, which only a bug does: nothing comes any more.
            Err(RecvTimeoutError::Disconnected) => {
                self.waiting.clear();
                None
            }
        }
    }

    fn send(&self, ask: Request) {
        // Where the thread is gone, nothing comes of it; see `next`.
        let _ = self.asks.send(ask);
    }
}

/// So many places at once pour in: it is waited for the rest of them.
const BURST: usize = 64;

/// They have stopped when none came for so long.
const QUIET_PERIOD: Duration = Duration::from_millis(5);

/// It is not waited for longer than this before a sweep.
const MAX_COLLECT_TIME: Duration = Duration::from_secs(2);

/// Looks up what is asked, until nobody asks any more.
fn work(pool: &mut ImageCache, asked: &Receiver<Request>, finds: &Sender<LookupResult>) {
    let mut sweep = WorkQueue::default();
    loop {
        let ask = match (sweep.waiting.is_empty(), sweep.gathers()) {
            (true, _) => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (false, Some(silence)) => asked.recv_timeout(silence),
            (false, None) => asked.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
        };
        match ask {
            Ok(Request::Image(recorded)) => pool.add(recorded),
            Ok(Request::Process(pid)) => pool.note_process(pid),
            Ok(Request::Place(key)) => sweep.add(key),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some((slot, place)) = sweep.next() else { continue };
                let resolution = pool.look_up(slot, place);
                let findings = pool.take_findings(slot);
                if finds.send(LookupResult { slot, place, resolution, findings }).is_err() {
                    return;
                }
            }
        }
    }
}

/// What is waiting, and how far the sweep over it is.
#[derive(Default)]
struct WorkQueue {
    waiting: BTreeSet<Key>,
    last: Option<Key>,
    /// How many came since the last was looked up.
    fresh: usize,
    /// Since when it is waited for more; that is done once in a sweep.
    gathering: Option<Instant>,
}

impl WorkQueue {
    fn add(&mut self, key: Key) {
        self.waiting.insert(key);
        self.fresh += 1;
    }

    /// How long to wait for more, if they pour in: what came too late for a sweep would have the
    /// tables of its unit read again.
    fn gathers(&mut self) -> Option<Duration> {
        if self.fresh < BURST {
            return None;
        }
        let begun = *self.gathering.get_or_insert_with(Instant::now);
        (begun.elapsed() < MAX_COLLECT_TIME).then_some(QUIET_PERIOD)
    }

    /// Takes the next one out.
    fn next(&mut self) -> Option<Key> {
        self.fresh = 0;
        let behind = self.last.and_then(|last| self.waiting.range(last..).next().copied());
        let key = behind.or_else(|| {
            self.gathering = None;
            self.waiting.first().copied()
        })?;
        self.waiting.remove(&key);
        self.last = Some(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::{Finder, SearchPaths};
    use nprof_stream::{ImageKind, Status};
    use std::rc::Rc;

    fn pool() -> ImageCache {
        let detail = Detail { inlines: true, lines: true, debug: true };
        ImageCache::new(Rc::new(Finder::new(SearchPaths::default(), detail)))
    }

    fn nowhere() -> RecordedImage {
        let path = b"/nowhere"[..].into();
        RecordedImage { kind: ImageKind::Elf, build_id: Box::default(), path, seen: None }
    }

    fn place(offset: u64) -> Place {
        Place { offset, return_address: false }
    }

    #[test]
    fn places_are_looked_up_in_turn_and_once() {
        let (asks, asked) = channel();
        let (finds, found) = channel();
        asks.send(Request::Image(nowhere())).unwrap();
        asks.send(Request::Image(nowhere())).unwrap();
        for (slot, offset) in [(1, 7), (0, 9), (0, 2), (1, 3), (0, 2)] {
            asks.send(Request::Place((slot, place(offset)))).unwrap();
        }
        let thread = std::thread::spawn(move || work(&mut pool(), &asked, &finds));
        let order: Vec<_> = found.iter().take(4).map(|f| (f.slot, f.place.offset)).collect();
        assert_eq!(order, [(0, 2), (0, 9), (1, 3), (1, 7)]);
        drop(asks);
        thread.join().unwrap();
        assert!(found.recv().is_err());
    }

    #[test]
    fn what_is_asked_is_found_or_waiting() {
        let mut background = BackgroundLookup::start(1 << 20, pool).unwrap();
        assert!(background.next(None).is_none());
        background.add(nowhere());
        for offset in [5, 5, 6] {
            background.ask(0, place(offset));
        }
        assert!(background.is_waiting());
        let mut offsets = Vec::new();
        while let Some(found) = background.next(None) {
            assert_eq!(found.resolution.status, Status::NoImage);
            assert_eq!(found.findings.is_some(), offsets.is_empty(), "told once");
            offsets.push(found.place.offset);
        }
        offsets.sort_unstable();
        assert_eq!(offsets, [5, 6]);
        assert!(!background.is_waiting());
    }
}
