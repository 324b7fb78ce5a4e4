//! Threads that look up the many places of one image together: each reads the debug information of
//! its own part of the code. One image at a time, so that memory is that of the largest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, ScopedJoinHandle};

use crate::find::RecordedImage;
use crate::image::opened::{Place, Symbolized};
use crate::lookup::image_cache::ImageCache;
use crate::stats::image_findings::ImageFindings;

/// With fewer places than this, opening the image on each thread takes longer than it saves.
const MIN_PARALLEL_LOOKUPS: usize = 2048;

/// The most threads: what each opens takes memory.
const THREADS: usize = 4;

/// How many parts each thread looks up about: where a part ends, two threads read one unit.
const PARTS: usize = 8;

/// How much stack each thread gets, bytes: debug information and mangled names nest, and their
/// parsers recurse, as deeply as `dwarf` and `demangle` let them. Only what is used takes memory.
pub(crate) const STACK: usize = 128 << 20;

/// How a pool is made, for one of so many threads.
type Make = Box<dyn Fn(usize) -> ImageCache + Sync>;

/// The threads.
pub(crate) struct LookupThreads {
    threads: usize,
    make: Make,
}

/// What a thread has done: the parts by their number, and what it found out of the image.
type Done = (Vec<(usize, Vec<Symbolized>)>, Option<ImageFindings>);

impl LookupThreads {
    /// As many threads as there are processors, if there `may` be more than one; `make` gives each
    /// a pool without images.
    pub(crate) fn new(may: bool, make: Make) -> Self {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads: if may { processors().min(THREADS) } else { 1 }, make }
    }

    /// Whether so many places of an image are looked up together.
    pub(crate) fn is_for(&self, places: usize) -> bool {
        self.threads > 1 && places >= MIN_PARALLEL_LOOKUPS
    }

    /// Looks up places of an image, given in their order; what was found has the same.
    pub(crate) fn look_up(
        &self,
        recorded: &RecordedImage,
        places: &[Place],
    ) -> (Vec<Symbolized>, ImageFindings) {
        let size = places.len().div_ceil(self.threads * PARTS).max(1);
        let parts: Vec<&[Place]> = places.chunks(size).collect();
        let next = AtomicUsize::new(0);
        let pool = || {
            let mut pool = (self.make)(self.threads);
            pool.add(recorded.clone());
            pool
        };
        let work = |mut pool: ImageCache| -> Done {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = parts.get(number) else { return (done, pool.take_findings(0)) };
                let found = part.iter().map(|&place| pool.look_up(0, place));
                done.push((number, found.collect()));
            }
        };
        let done = std::thread::scope(|scope| {
            let mut mine = pool();
            // What is packed is unpacked as a whole, and once.
            let others = if mine.is_packed(0) { 0 } else { self.threads - 1 };
            let start = || Builder::new().stack_size(STACK);
            let others = (0..others).map(|_| start().spawn_scoped(scope, || work(pool())));
            // Where there can be no more threads, those that are there do the work.
            let others: Vec<_> = others.map_while(Result::ok).collect();
            let mut done = vec![work(mine)];
            done.extend(others.into_iter().map(joined));
            done
        });
        let (mut parts, mut findings) = (Vec::new(), ImageFindings::default());
        for (some, news) in done {
            parts.extend(some);
            findings.add(news.unwrap_or_default());
        }
        parts.sort_unstable_by_key(|&(number, _)| number);
        (parts.into_iter().flat_map(|(_, found)| found).collect(), findings)
    }
}

/// What a thread comes to. A panic, which is a bug, is passed on.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::{Finder, SearchPaths};
    use std::rc::Rc;

    #[test]
    fn together_they_find_what_one_finds() {
        let exe = std::env::current_exe().unwrap();
        let recorded = RecordedImage::of(exe.as_os_str()).unwrap();
        let pool = |sharers| {
            let detail = Detail { inlines: true, lines: true, debug: true };
            ImageCache::new(Rc::new(Finder {
                sharers,
                ..Finder::new(SearchPaths::default(), detail)
            }))
        };
        let crew = LookupThreads { threads: 3, make: Box::new(pool) };
        // All over the file, of which a part is code.
        let step = std::fs::metadata(&exe).unwrap().len() / 20_000;
        let place = |number| Place { offset: number * step, return_address: false };
        let places: Vec<Place> = (0..20_000).map(place).collect();
        let (together, findings) = crew.look_up(&recorded, &places);
        let mut alone = pool(1);
        alone.add(recorded);
        let expected: Vec<Symbolized> =
            places.iter().map(|&place| alone.look_up(0, place)).collect();
        assert!(together == expected, "the same in the same order");
        assert!(expected.iter().filter(|found| !found.calls.is_empty()).count() > 100);
        assert_eq!(findings.trace, alone.take_findings(0).unwrap().trace);
    }
}
