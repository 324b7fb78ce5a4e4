//! The images whose places are looked up, opened when they are first needed.
//!
//! Of the files themselves only so many stay open; the place of a file that was closed to save
//! memory is looked up in the file opened again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use nprof_stream::{ImageKind, Status};

use crate::dwarf::Dwarf;
use crate::find::running_kernel::RunningKernel;
use crate::find::{Failure, Finder, Opened, RecordedImage, SearchLog};
use crate::image::opened::{OpenImage, Place, Symbolized, resolve};
use crate::stats::image_findings::ImageFindings;

/// How many bytes of symbols and debug information are kept in memory, beside those of the
/// image in use.
const KEPT: usize = 256 << 20;

/// After how many look-ups it is looked how much memory that is: it grows with what is looked up.
const ROUND: u64 = 256;

/// Where an image stands.
enum State {
    /// Nobody asked yet, or it was closed to save memory.
    Closed,
    Open(OpenImage),
    Failed(Failure),
}

/// An image.
struct Image {
    recorded: RecordedImage,
    /// What was tried to open it.
    trace: SearchLog,
    /// Whether it was opened from a file of another build.
    is_other: bool,
    state: State,
    used: u64,
    /// How much of that was told: lines of the trace, and the failure.
    told: Option<(usize, bool)>,
}

/// Images by their index, in the order they were added.
pub(crate) struct ImageCache {
    finder: Rc<Finder>,
    host: RunningKernel,
    images: Vec<Image>,
    uses: u64,
    /// How much memory the open images may take beside the one in use, bytes.
    kept_bytes: usize,
}

impl ImageCache {
    /// No images yet; their files are looked for by `finder`.
    pub(crate) fn new(finder: Rc<Finder>) -> Self {
        let (host, kept_bytes) = (RunningKernel::default(), KEPT / finder.sharers);
        Self { finder, host, images: Vec::new(), uses: 0, kept_bytes }
    }

    /// The same, with no more than so many bytes kept beside the image in use.
    #[cfg(test)]
    pub(crate) fn with_room(finder: Rc<Finder>, kept_bytes: usize) -> Self {
        Self { kept_bytes, ..Self::new(finder) }
    }

    /// Adds an image behind the others.
    pub(crate) fn add(&mut self, recorded: RecordedImage) {
        self.images.push(Image {
            recorded,
            trace: SearchLog::default(),
            is_other: false,
            state: State::Closed,
            used: 0,
            told: None,
        });
    }

    /// Takes note of a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.finder.living.note_process(pid);
    }

    /// Looks up places with only one image open at a time, which is enough if they are given image
    /// by image.
    pub(crate) fn with_single_image<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let kept = std::mem::take(&mut self.kept_bytes);
        let done = work(self);
        self.kept_bytes = kept;
        done
    }

    /// What a place in an image is called. The names of a file of another build, which may be
    /// wrong, have the status [`Status::Mismatch`].
    pub(crate) fn look_up(&mut self, index: usize, place: Place) -> Symbolized {
        self.open(index);
        let detail = self.finder.detail;
        let image = &mut self.images[index];
        let open = match &image.state {
            State::Open(open) => open,
            State::Failed(failure) => return Symbolized::unnamed(failure.status),
            State::Closed => return Symbolized::unnamed(Status::NoImage),
        };
        match catch_panics(|| resolve(open, place, detail)) {
            Ok(mut resolution) => {
                if image.is_other && resolution.status == Status::Named {
                    resolution.status = Status::Mismatch;
                }
                resolution
            }
            Err(failure) => {
                image.trace.note(failure.why.clone());
                let status = failure.status;
                image.state = State::Failed(failure);
                Symbolized::unnamed(status)
            }
        }
    }

    /// Opens an image that is not open yet.
    pub(crate) fn open(&mut self, index: usize) {
        self.uses += 1;
        let image = &mut self.images[index];
        image.used = self.uses;
        if !matches!(image.state, State::Closed) {
            if self.uses.is_multiple_of(ROUND) {
                self.close_others(index);
            }
            return;
        }
        image.trace = SearchLog::default();
        let (finder, host) = (&self.finder, &self.host);
        let (recorded, trace) = (&image.recorded, &image.trace);
        let opened = catch_panics(|| match recorded.kind {
            ImageKind::Elf => finder.open(recorded, trace),
            _ => {
                let image = host.open(recorded, finder, trace);
                image.map(|image| Opened { image, is_other: false })
            }
        });
        image.state = match opened.and_then(|opened| opened) {
            Ok(Opened { image: open, is_other }) => {
                image.is_other = is_other;
                State::Open(open)
            }
            Err(failure) => State::Failed(failure),
        };
        self.close_others(index);
    }

    /// Whether the debug information of an image is packed, so that all of it is in memory as soon as
    /// any of it is needed.
    pub(crate) fn is_packed(&mut self, index: usize) -> bool {
        self.open(index);
        match &self.images[index].state {
            State::Open(OpenImage::Elf(elf)) => elf.dwarf.as_ref().is_ok_and(Dwarf::is_packed),
            _ => false,
        }
    }

    /// What was found out of an image, if that has changed since it was asked last.
    pub(crate) fn take_findings(&mut self, index: usize) -> Option<ImageFindings> {
        let image = &mut self.images[index];
        let failure = match &image.state {
            State::Failed(failure) => Some(failure),
            State::Closed | State::Open(_) => None,
        };
        let known = Some((image.trace.len(), failure.is_some()));
        if image.told == known {
            return None;
        }
        image.told = known;
        let (trace, failure) = (image.trace.lines(), failure.cloned());
        let has_all_symbols = match &image.state {
            State::Open(OpenImage::Elf(elf)) => elf.symbols.is_whole(),
            _ => false,
        };
        Some(ImageFindings { trace, failure, is_other: image.is_other, has_all_symbols })
    }

    /// How many images are open.
    #[cfg(test)]
    pub(crate) fn open_images(&self) -> usize {
        self.images.iter().filter(|image| matches!(image.state, State::Open(_))).count()
    }

    /// Closes the images that were not used for the longest time, until the others take little
    /// enough memory.
    fn close_others(&mut self, index: usize) {
        let others = self.images.iter().enumerate().filter(|&(other, _)| other != index);
        let open = others.filter_map(|(other, image)| match &image.state {
            State::Open(open) => Some((image.used, other, open.bytes())),
            State::Closed | State::Failed(_) => None,
        });
        let mut open: Vec<_> = open.collect();
        let mut total: usize = open.iter().map(|(_, _, bytes)| bytes).sum();
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

/// Does work on files nobody vouches for. The parsers report malformed input as errors; should
/// one of them have a bug that panics instead, it costs the names of this one image and not the
/// whole stream.
pub(crate) fn catch_panics<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Failure {
        status: Status::Unreadable,
        why: "reading it failed in a way that should not be; please report it".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_costs_one_image() {
        let failure = catch_panics(|| -> u32 { panic!("a bug in a parser") }).unwrap_err();
        assert_eq!(failure.status, Status::Unreadable);
        assert_eq!(catch_panics(|| 7), Ok(7));
    }
}
