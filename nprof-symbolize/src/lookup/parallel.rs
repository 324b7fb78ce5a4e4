//! Threads that share the lookups of one large image: each reads the debug information of its own
//! part of the code. They work on one image at a time, so that memory is that of the largest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

use nprof_object::ImageOffset;

use crate::find::RecordedImage;
use crate::image::opened::Symbolized;
use crate::lookup::image_cache::ImageCache;
use crate::stats::image_findings::ImageFindings;

/// The smallest number of lookups for which several threads are used: for fewer, opening the image
/// on each thread takes longer than it saves.
const MIN_PARALLEL_LOOKUPS: usize = 2048;

/// The most threads: each opens the image and takes memory for it.
const MAX_THREADS: usize = 4;

/// The number of chunks per thread. More chunks share the work more evenly, but at each boundary
/// two threads read the same unit.
const CHUNKS_PER_THREAD: usize = 8;

/// The stack of each thread that parses files. Debug information and mangled names nest, and their
/// parsers recurse up to the limits in `dwarf` and `demangle`. Only the used part takes memory.
pub(crate) const STACK_BYTES: usize = 128 << 20;

/// Creates an empty cache for one of the given number of threads.
type OpenCache = Box<dyn Fn(usize) -> ImageCache + Sync>;

/// The threads.
pub(crate) struct LookupThreads {
    threads: usize,
    open_cache: OpenCache,
}

/// The results of one thread.
struct Finished {
    /// Symbolized offsets, by the index of their chunk.
    chunks: Vec<(usize, Vec<(ImageOffset, Symbolized)>)>,
    findings: Option<ImageFindings>,
}

impl LookupThreads {
    /// Creates as many threads as there are processors, up to [`MAX_THREADS`], or one unless
    /// `is_parallel`. `open_cache` creates the cache of each.
    pub(crate) fn new(is_parallel: bool, open_cache: OpenCache) -> Self {
        let threads = if is_parallel {
            std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
        } else {
            1
        };
        Self { threads, open_cache }
    }

    /// True if this number of lookups in one image is shared between threads.
    pub(crate) fn is_for(&self, lookups: usize) -> bool {
        self.threads > 1 && lookups >= MIN_PARALLEL_LOOKUPS
    }

    /// Looks up offsets of an image; the results are in the order of units and offsets.
    pub(crate) fn look_up(
        &self,
        recorded: &RecordedImage,
        mut offsets: Vec<ImageOffset>,
    ) -> (Vec<(ImageOffset, Symbolized)>, ImageFindings) {
        let mut own_cache = self.cache_of(recorded);
        own_cache.sort_by_unit(0, &mut offsets);
        let size = offsets.len().div_ceil(self.threads * CHUNKS_PER_THREAD).max(1);
        let chunks: Vec<&[ImageOffset]> = offsets.chunks(size).collect();
        let next = AtomicUsize::new(0);
        let finished = std::thread::scope(|scope| {
            // Each thread would decompress all of the debug information.
            let others = if own_cache.is_compressed(0) { 0 } else { self.threads - 1 };
            let start = |_| {
                let work = || look_up_chunks(self.cache_of(recorded), &chunks, &next);
                Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)
            };
            // If the system refuses more threads, the existing ones do the work.
            let others: Vec<_> = (0..others).map(start).map_while(Result::ok).collect();
            let mut finished = vec![look_up_chunks(own_cache, &chunks, &next)];
            finished.extend(others.into_iter().map(join));
            finished
        });
        let (mut chunks, mut findings) = (Vec::new(), ImageFindings::default());
        for part in finished {
            chunks.extend(part.chunks);
            // Each thread opened the image; equal lines are kept once.
            findings.add(part.findings.unwrap_or_default());
        }
        // Threads finish in any order.
        chunks.sort_unstable_by_key(|&(index, _)| index);
        (chunks.into_iter().flat_map(|(_, symbolized)| symbolized).collect(), findings)
    }

    /// Creates a cache with one image.
    fn cache_of(&self, recorded: &RecordedImage) -> ImageCache {
        let mut cache = (self.open_cache)(self.threads);
        cache.add(recorded.clone());
        cache
    }
}

/// Looks up the chunks that no other thread has taken, until none is left.
fn look_up_chunks(
    mut cache: ImageCache,
    chunks: &[&[ImageOffset]],
    next: &AtomicUsize,
) -> Finished {
    let mut finished = Vec::new();
    cache.set_sorted(0, true);
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(chunk) = chunks.get(index) else {
            return Finished { chunks: finished, findings: cache.take_findings(0) };
        };
        let symbolized = chunk.iter().map(|&offset| (offset, cache.look_up(0, offset)));
        finished.push((index, symbolized.collect()));
    }
}

/// Returns the result of a thread. Passes on its panic, which is a bug.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::{Finder, SearchPaths};
    use std::rc::Rc;

    #[test]
    fn several_threads_give_the_results_of_one() {
        let exe = std::env::current_exe().unwrap();
        let recorded = RecordedImage::of(exe.as_os_str()).unwrap();
        let open_cache = |sharers| {
            let detail = Detail { inlines: true, lines: true, debug: true };
            let finder = Finder::new(SearchPaths::default(), detail);
            ImageCache::new(Rc::new(Finder { sharers, ..finder }))
        };
        let threads = LookupThreads { threads: 3, open_cache: Box::new(open_cache) };
        // All over the file, of which a part is code.
        let step = std::fs::metadata(&exe).unwrap().len() / 20_000;
        let offsets: Vec<_> = (0..20_000).map(|number| ImageOffset(number * step)).collect();
        let (mut together, findings) = threads.look_up(&recorded, offsets.clone());
        together.sort_unstable_by_key(|&(offset, _)| offset);
        let mut alone = open_cache(1);
        alone.add(recorded);
        let look_up = |&offset: &ImageOffset| (offset, alone.look_up(0, offset));
        let expected: Vec<(ImageOffset, Symbolized)> = offsets.iter().map(look_up).collect();
        assert!(together == expected, "the same for each offset");
        assert!(expected.iter().filter(|(_, found)| !found.calls.is_empty()).count() > 100);
        assert_eq!(findings.log, alone.take_findings(0).unwrap().log);
    }
}
