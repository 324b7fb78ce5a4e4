//! Lookups of a live stream on a thread of its own, so that the stream never waits for them,
//! however large the debug information is.
//!
//! Waiting requests are looked up image by image in the order of addresses, starting again at the
//! lowest after the highest, so that the tables of a unit serve all its addresses.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::find::RecordedImage;
use crate::image::opened::Symbolized;
use crate::lookup::image_cache::{CodeLookup, ImageCache};
use crate::lookup::lookup_key::LookupKey;
use crate::stats::image_findings::ImageFindings;

/// A message to the thread.
enum Request {
    /// Adds the next image.
    Image(RecordedImage),
    /// Adds a process of the recording.
    Process(u32),
    /// Looks up an offset.
    Lookup(LookupKey),
}

/// The result of one lookup.
pub(crate) struct LookupResult {
    /// The image and the offset.
    pub(crate) key: LookupKey,
    /// The calls there.
    pub(crate) symbolized: Symbolized,
    /// The code there. None if it was not requested.
    pub(crate) code: Option<CodeLookup>,
    /// New facts about the image. None if nothing changed.
    pub(crate) findings: Option<ImageFindings>,
}

/// The thread and its open requests.
pub(crate) struct BackgroundLookup {
    requests: Sender<Request>,
    results: Receiver<LookupResult>,
    waiting: FxHashSet<LookupKey>,
}

impl BackgroundLookup {
    /// Starts the thread with a stack of `stack_bytes`; `open_cache` creates its cache of images
    /// there.
    ///
    /// # Errors
    ///
    /// If the system refuses another thread.
    pub(crate) fn start(
        stack_bytes: usize,
        open_cache: impl FnOnce() -> ImageCache + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, requested) = channel();
        let (sender, results) = channel();
        let serve = move || serve(&mut open_cache(), &requested, &sender);
        std::thread::Builder::new().stack_size(stack_bytes).spawn(serve)?;
        Ok(Self { requests, results, waiting: FxHashSet::default() })
    }

    /// Replaces the thread in tests: the caller sends the results.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (Self, Sender<LookupResult>) {
        let (sender, results) = channel();
        (Self { requests: channel().0, results, waiting: FxHashSet::default() }, sender)
    }

    /// Adds an image after the others.
    pub(crate) fn add(&self, recorded: RecordedImage) {
        self.send(Request::Image(recorded));
    }

    /// Adds a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.send(Request::Process(pid));
    }

    /// Requests a lookup, unless it is waiting already.
    pub(crate) fn request(&mut self, key: LookupKey) {
        if self.waiting.insert(key) {
            self.send(Request::Lookup(key));
        }
    }

    /// True if lookups are waiting.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the next result, within `limit` if there is one. None after the limit, or if no
    /// lookup is waiting.
    pub(crate) fn next(&mut self, limit: Option<Duration>) -> Option<LookupResult> {
        if self.waiting.is_empty() {
            return None;
        }
        let result = match limit {
            Some(limit) => self.results.recv_timeout(limit),
            None => self.results.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match result {
            Ok(result) => {
                self.waiting.remove(&result.key);
                Some(result)
            }
            Err(RecvTimeoutError::Timeout) => None,
            // The thread has exited, which only a bug does: no result will come.
            Err(RecvTimeoutError::Disconnected) => {
                self.waiting.clear();
                None
            }
        }
    }

    fn send(&self, request: Request) {
        // Fails only if the thread has exited; `next` handles that.
        let _ = self.requests.send(request);
    }
}

/// The number of requests since the last lookup from which more are collected before the next.
const BURST: usize = 64;

/// A burst is over when no request has come for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(5);

/// The longest time requests are collected before a pass over them.
const MAX_COLLECT_TIME: Duration = Duration::from_secs(2);

/// Serves requests until the sender is dropped.
fn serve(cache: &mut ImageCache, requested: &Receiver<Request>, sender: &Sender<LookupResult>) {
    // Sorted by image and offset, not by arrival: a unit is read once for all its lookups.
    let mut queue = WorkQueue::default();
    loop {
        match next_request(requested, &mut queue) {
            Ok(Request::Image(recorded)) => cache.add(recorded),
            Ok(Request::Process(pid)) => cache.note_process(pid),
            Ok(Request::Lookup(key)) => queue.add(key),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(key) = queue.next() else { continue };
                let symbolized = cache.look_up(key.image, key.offset);
                let code = key.code.then(|| cache.code(key.image, key.offset));
                let findings = cache.take_findings(key.image);
                // The receiver is dropped at the end of the run.
                if sender.send(LookupResult { key, symbolized, code, findings }).is_err() {
                    return;
                }
            }
        }
    }
}

/// Receives a request: waits without limit if nothing is queued, briefly in a burst, else not.
fn next_request(
    requested: &Receiver<Request>,
    queue: &mut WorkQueue,
) -> Result<Request, RecvTimeoutError> {
    if queue.waiting.is_empty() {
        return requested.recv().map_err(|_| RecvTimeoutError::Disconnected);
    }
    match queue.collect_time() {
        Some(quiet_period) => requested.recv_timeout(quiet_period),
        None => requested.try_recv().map_err(|error| match error {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        }),
    }
}

/// The waiting lookups, and the position of the pass over them.
#[derive(Default)]
struct WorkQueue {
    waiting: BTreeSet<LookupKey>,
    last: Option<LookupKey>,
    /// The number of requests since the last lookup.
    fresh: usize,
    /// The start of collecting in this pass. None if the pass has not collected yet.
    collecting_since: Option<Instant>,
}

impl WorkQueue {
    fn add(&mut self, key: LookupKey) {
        self.waiting.insert(key);
        self.fresh += 1;
    }

    /// Returns the time to wait for further requests. None outside of a burst.
    fn collect_time(&mut self) -> Option<Duration> {
        if self.fresh < BURST {
            return None;
        }
        // A request that misses its pass costs reading the tables of its unit a second time.
        let since = *self.collecting_since.get_or_insert_with(Instant::now);
        (since.elapsed() < MAX_COLLECT_TIME).then_some(QUIET_PERIOD)
    }

    /// Removes the lookup after the last one, or the lowest at the end of a pass.
    fn next(&mut self) -> Option<LookupKey> {
        self.fresh = 0;
        let after_last = self.last.and_then(|last| self.waiting.range(last..).next().copied());
        let key = match after_last {
            Some(key) => key,
            None => {
                // A new pass may collect again.
                self.collecting_since = None;
                *self.waiting.first()?
            }
        };
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
    use nprof_object::ImageOffset;
    use nprof_stream::{ImageKind, Status};
    use std::rc::Rc;

    fn cache() -> ImageCache {
        let detail = Detail { inlines: true, lines: true, debug: true };
        ImageCache::new(Rc::new(Finder::new(SearchPaths::default(), detail)))
    }

    fn nowhere() -> RecordedImage {
        let path = b"/nowhere"[..].into();
        RecordedImage { path, ..RecordedImage::new(ImageKind::Elf) }
    }

    fn key(image: usize, offset: u64) -> LookupKey {
        LookupKey { image, offset: ImageOffset(offset), code: false }
    }

    #[test]
    fn lookups_run_once_in_the_order_of_images_and_offsets() {
        let (requests, requested) = channel();
        let (sender, results) = channel();
        requests.send(Request::Image(nowhere())).unwrap();
        requests.send(Request::Image(nowhere())).unwrap();
        for (image, offset) in [(1, 7), (0, 9), (0, 2), (1, 3), (0, 2)] {
            requests.send(Request::Lookup(key(image, offset))).unwrap();
        }
        let thread = std::thread::spawn(move || serve(&mut cache(), &requested, &sender));
        let order: Vec<_> = results.iter().take(4).map(|result| result.key).collect();
        assert_eq!(order, [key(0, 2), key(0, 9), key(1, 3), key(1, 7)]);
        drop(requests);
        thread.join().unwrap();
        assert!(results.recv().is_err());
    }

    #[test]
    fn every_request_has_one_result() {
        let mut background = BackgroundLookup::start(1 << 20, cache).unwrap();
        assert!(background.next(None).is_none());
        background.add(nowhere());
        for offset in [5, 5, 6] {
            background.request(key(0, offset));
        }
        assert!(background.is_waiting());
        let mut offsets = Vec::new();
        while let Some(result) = background.next(None) {
            assert_eq!(result.symbolized.status, Status::NoImage);
            assert_eq!(result.findings.is_some(), offsets.is_empty(), "reported once");
            offsets.push(result.key.offset.0);
        }
        offsets.sort_unstable();
        assert_eq!(offsets, [5, 6]);
        assert!(!background.is_waiting());
    }
}
