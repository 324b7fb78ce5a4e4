//! Images by index, opened at their first lookup.
//!
//! Open images share a memory bound; the least recently used are closed, and opened again for
//! their next lookup.

use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use nprof_object::ImageOffset;
use nprof_stream::{ImageKind, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dwarf::Dwarf;
use crate::find::running_kernel::RunningKernel;
use crate::find::{Failure, Finder, OpenedImage, RecordedImage, SearchLog};
use crate::image::code::{self, FunctionCode};
use crate::image::opened::{OpenImage, Symbolized, resolve};
use crate::stats::image_findings::ImageFindings;

/// The bytes of symbols and debug information that stay in memory besides those of the image in
/// use.
const KEPT_BYTES: usize = 256 << 20;

/// The number of lookups between two checks of memory use, which grows with every lookup.
const LOOKUPS_PER_CHECK: u64 = 256;

/// The state of an image.
enum State {
    /// Not opened yet, or closed to save memory.
    Closed,
    Open(OpenImage),
    Failed(Failure),
}

/// An image and the history of its opening.
struct CachedImage {
    recorded: RecordedImage,
    /// The files that were tried.
    log: SearchLog,
    /// True if it was opened from a file of another build.
    is_other_build: bool,
    state: State,
    /// The number of the latest lookup.
    last_use: u64,
    /// The findings at the last [`ImageCache::take_findings`].
    reported: Option<Reported>,
}

/// A summary of findings, enough to see whether there are new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    log_lines: usize,
    has_failed: bool,
}

/// The code at an offset, or the reason why there is none.
pub(crate) type CodeLookup = Result<FoundCode, String>;

/// The code at an offset.
#[derive(Debug)]
pub(crate) struct FoundCode {
    /// The offset of its first byte.
    pub(crate) start: ImageOffset,
    /// None after the first lookup of it.
    pub(crate) code: Option<FunctionCode>,
}

/// Images by their index, in the order they were added.
pub(crate) struct ImageCache {
    finder: Rc<Finder>,
    running_kernel: RunningKernel,
    images: Vec<CachedImage>,
    lookups: u64,
    /// The memory that open images may take besides the one in use.
    kept_bytes: usize,
    /// The image and start of code that was returned.
    returned_code: FxHashSet<(usize, ImageOffset)>,
    /// By image and start, the ends of the parts of long functions.
    part_ends: FxHashMap<(usize, ImageOffset), Vec<u64>>,
}

impl ImageCache {
    /// Creates a cache without images, which `finder` will find.
    pub(crate) fn new(finder: Rc<Finder>) -> Self {
        // Threads share the bound.
        let kept_bytes = KEPT_BYTES / finder.sharers;
        let running_kernel = RunningKernel::default();
        Self {
            finder,
            running_kernel,
            images: Vec::new(),
            lookups: 0,
            kept_bytes,
            returned_code: FxHashSet::default(),
            part_ends: FxHashMap::default(),
        }
    }

    /// Creates a cache with another memory bound.
    #[cfg(test)]
    pub(crate) fn with_kept_bytes(finder: Rc<Finder>, kept_bytes: usize) -> Self {
        Self { kept_bytes, ..Self::new(finder) }
    }

    /// Adds an image after the others.
    pub(crate) fn add(&mut self, recorded: RecordedImage) {
        self.images.push(CachedImage {
            recorded,
            log: SearchLog::default(),
            is_other_build: false,
            state: State::Closed,
            last_use: 0,
            reported: None,
        });
    }

    /// Adds a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.finder.live_processes.note_process(pid);
    }

    /// Runs lookups with only one image open at a time, which suffices if they are ordered by
    /// image.
    pub(crate) fn with_single_image<T>(&mut self, look_up: impl FnOnce(&mut Self) -> T) -> T {
        let kept_bytes = std::mem::take(&mut self.kept_bytes);
        let result = look_up(self);
        self.kept_bytes = kept_bytes;
        result
    }

    /// Looks up an offset in an image. Names from a file of another build may be wrong; they have
    /// the status [`Status::Mismatch`].
    pub(crate) fn look_up(&mut self, index: usize, offset: ImageOffset) -> Symbolized {
        self.open(index);
        let detail = self.finder.detail;
        let image = &mut self.images[index];
        let open = match &image.state {
            State::Open(open) => open,
            State::Failed(failure) => return Symbolized::unnamed(failure.status),
            // Cannot happen: `open` opens or fails.
            State::Closed => return Symbolized::unnamed(Status::NoImage),
        };
        match catch_panics(|| resolve(open, offset, detail)) {
            Ok(mut symbolized) => {
                if image.is_other_build && symbolized.status == Status::Named {
                    symbolized.status = Status::Mismatch;
                }
                symbolized
            }
            Err(failure) => {
                // The image stays failed: its tables may be inconsistent after a panic.
                image.log.note(failure.reason.clone());
                let status = failure.status;
                image.state = State::Failed(failure);
                Symbolized::unnamed(status)
            }
        }
    }

    /// Reads the code of the function at an offset.
    pub(crate) fn code(&mut self, index: usize, offset: ImageOffset) -> CodeLookup {
        self.open(index);
        let detail = self.finder.detail;
        let image = match &self.images[index].state {
            State::Open(open) => open,
            State::Failed(failure) => return Err(failure.reason.clone()),
            State::Closed => return Err(String::new()),
        };
        let (returned_code, part_ends) = (&mut self.returned_code, &mut self.part_ends);
        let read = || {
            let mut place = code::place(image, offset)?;
            if place.is_long() {
                // Finding the parts decodes the whole function.
                let key = (index, place.start);
                let ends = match part_ends.entry(key) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(unknown) => unknown.insert(code::part_ends(image, place)?),
                };
                place = place.part(ends, offset);
            }
            // Most samples are in functions with others.
            let is_new = returned_code.insert((index, place.start));
            let code = is_new.then(|| code::read(image, place, detail)).transpose();
            if code.is_err() {
                returned_code.remove(&(index, place.start));
            }
            Ok(FoundCode { start: place.start, code: code? })
        };
        match catch_panics(read) {
            Ok(found) => found,
            Err(failure) => {
                // As after a panic in a lookup.
                let reason = failure.reason.clone();
                self.images[index].state = State::Failed(failure);
                Err(reason)
            }
        }
    }

    /// Sorts offsets of an image in the order in which lookups take the least memory.
    pub(crate) fn sort_by_unit(&mut self, index: usize, offsets: &mut [ImageOffset]) {
        self.open(index);
        if let State::Open(open) = &self.images[index].state {
            // A panic of a parser costs the order here; the lookups report it.
            let _ = catch_panics(|| open.sort_by_unit(offsets));
        }
    }

    /// Declares that lookups in an image come in the order of [`Self::sort_by_unit`], or in any.
    pub(crate) fn set_sorted(&mut self, index: usize, is_sorted: bool) {
        self.open(index);
        if let State::Open(open) = &self.images[index].state {
            open.set_sorted(is_sorted);
        }
    }

    /// Opens an image unless it is open or has failed before.
    pub(crate) fn open(&mut self, index: usize) {
        self.lookups += 1;
        let image = &mut self.images[index];
        image.last_use = self.lookups;
        if !matches!(image.state, State::Closed) {
            // Open images grow: DWARF tables are read as lookups need them.
            if self.lookups.is_multiple_of(LOOKUPS_PER_CHECK) {
                self.close_others(index);
            }
            return;
        }
        // A reopened image repeats its search.
        image.log = SearchLog::default();
        let (finder, running_kernel) = (&self.finder, &self.running_kernel);
        let (recorded, log) = (&image.recorded, &image.log);
        let opened = catch_panics(|| match recorded.kind {
            ImageKind::Elf => finder.open(recorded, log),
            _ => {
                let image = running_kernel.open(recorded, finder, log)?;
                Ok(OpenedImage { image, is_other_build: false })
            }
        });
        image.state = match opened.and_then(|opened| opened) {
            Ok(OpenedImage { image: open, is_other_build }) => {
                image.is_other_build = is_other_build;
                State::Open(open)
            }
            Err(failure) => State::Failed(failure),
        };
        self.close_others(index);
    }

    /// True if the debug information of an image is compressed: its first use reads all of it into
    /// memory.
    pub(crate) fn is_compressed(&mut self, index: usize) -> bool {
        self.open(index);
        match &self.images[index].state {
            State::Open(OpenImage::Elf(elf)) => elf.dwarf.as_ref().is_ok_and(Dwarf::is_in_memory),
            _ => false,
        }
    }

    /// Returns the findings about an image. None if they are as at the previous call.
    pub(crate) fn take_findings(&mut self, index: usize) -> Option<ImageFindings> {
        let image = &mut self.images[index];
        let failure = match &image.state {
            State::Failed(failure) => Some(failure),
            State::Closed | State::Open(_) => None,
        };
        let current = Some(Reported { log_lines: image.log.len(), has_failed: failure.is_some() });
        if image.reported == current {
            return None;
        }
        image.reported = current;
        let (log, failure) = (image.log.lines(), failure.cloned());
        let has_all_symbols = match &image.state {
            State::Open(OpenImage::Elf(elf)) => elf.symbols.is_whole(),
            _ => false,
        };
        let is_other_build = image.is_other_build;
        Some(ImageFindings { log, failure, is_other_build, has_all_symbols })
    }

    /// Returns the number of open images.
    #[cfg(test)]
    pub(crate) fn open_images(&self) -> usize {
        self.images.iter().filter(|image| matches!(image.state, State::Open(_))).count()
    }

    /// Closes the least recently used images until the rest, besides `index`, is within the
    /// memory bound.
    fn close_others(&mut self, index: usize) {
        let others = self.images.iter().enumerate().filter(|&(other, _)| other != index);
        let open = others.filter_map(|(other, image)| match &image.state {
            State::Open(open) => Some((image.last_use, other, open.bytes())),
            State::Closed | State::Failed(_) => None,
        });
        let mut open: Vec<_> = open.collect();
        let mut total: usize = open.iter().map(|(_, _, bytes)| bytes).sum();
        // By last use, the oldest first.
        open.sort_unstable();
        for (_, other, bytes) in open {
            if total <= self.kept_bytes {
                break;
            }
            self.images[other].state = State::Closed;
            total -= bytes;
        }
    }
}

/// Runs a parser of untrusted files. Parsers report malformed input as errors; a panic is a bug,
/// which costs the names of one image and not the whole stream.
pub(crate) fn catch_panics<T>(parse: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(parse)).map_err(|_| Failure {
        status: Status::Unreadable,
        reason: "the parser panicked on this file; please report this bug".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_fails_one_image() {
        let failure = catch_panics(|| -> u32 { panic!("a bug in a parser") }).unwrap_err();
        assert_eq!(failure.status, Status::Unreadable);
        assert_eq!(catch_panics(|| 7), Ok(7));
    }
}
