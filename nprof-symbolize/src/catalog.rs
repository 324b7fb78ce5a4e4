//! The images of the input, opened when they are first needed, and what their places are called.
//!
//! Outlives epochs and segments: a place is resolved once for the whole input. Memory grows
//! with the distinct places and images; of the files themselves only so many stay open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use nprof_format::{ImageKind, Naming, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dwarf::Call;
use crate::host::Host;
use crate::images::{Failure, Finder, Opened, Recorded, Trace};
use crate::names::Names;
use crate::packages::Packages;
use crate::resolve::{Nameless, OpenImage, Place, Resolution, resolve};
use crate::summary::{self, Commands, Counts};

/// How many bytes of symbols and debug information are kept in memory, beside those of the
/// image in use.
const KEPT: usize = 256 << 20;

/// After how many look-ups it is looked how much memory that is: it grows with what is looked up.
const ROUND: u64 = 256;

/// How many kinds of trouble are told of one image.
const TROUBLES: usize = 10;

/// A function and its place in the source, by their numbers in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedLine {
    /// The function, 0 when only the line is known.
    pub(crate) function: u32,
    /// The source file, 0 when unknown.
    pub(crate) file: u32,
    /// The line, 0 when unknown.
    pub(crate) line: u32,
    /// The column, 0 when unknown.
    pub(crate) column: u32,
}

/// What a place is called.
#[derive(Debug)]
pub(crate) struct Named {
    /// How it went.
    pub(crate) status: Status,
    /// Innermost first.
    pub(crate) lines: Box<[NamedLine]>,
}

/// Where an image stands.
enum State {
    /// Nobody asked yet, or it was closed to save memory.
    Closed,
    Open(OpenImage),
    Failed(Failure),
}

/// An image, and how naming its frames went.
pub(crate) struct Slot {
    /// What the stream says of it.
    pub(crate) recorded: Recorded,
    /// What was tried to open it.
    pub(crate) trace: Trace,
    /// What was wrong with its debug information, each thing once.
    pub(crate) troubles: Vec<String>,
    /// How many of its frames ended how, in this segment.
    pub(crate) counts: Counts,
    /// And in all segments before.
    pub(crate) totals: Counts,
    /// Whether it was opened from a file of another build.
    pub(crate) is_other: bool,
    state: State,
    used: u64,
}

impl Slot {
    fn note(&mut self, trouble: String) {
        if self.troubles.len() < TROUBLES && !self.troubles.contains(&trouble) {
            self.troubles.push(trouble);
        }
    }

    /// Why it could not be opened.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Failed(failure) => Some(failure),
            State::Closed | State::Open(_) => None,
        }
    }
}

/// All images of the input.
pub(crate) struct Catalog {
    /// Where files are looked for.
    pub(crate) finder: Finder,
    packages: Packages,
    /// The commands that get debug symbols, and the paths they were looked up for.
    commands: Commands,
    looked_up: FxHashSet<Box<[u8]>>,
    host: Host,
    slots: Vec<Slot>,
    by_recorded: FxHashMap<Recorded, usize>,
    resolved: FxHashMap<(usize, Place), Rc<Named>>,
    /// The names of all places.
    pub(crate) names: Names,
    uses: u64,
    /// How much memory the open images may take beside the one in use, bytes.
    kept_bytes: usize,
}

impl Catalog {
    /// No images yet.
    pub(crate) fn new(finder: Finder) -> Self {
        let packages = Packages::new(finder.places.symfs.as_deref());
        Self {
            finder,
            packages,
            commands: Commands::new(),
            looked_up: FxHashSet::default(),
            host: Host::default(),
            slots: Vec::new(),
            by_recorded: FxHashMap::default(),
            resolved: FxHashMap::default(),
            names: Names::default(),
            uses: 0,
            kept_bytes: KEPT,
        }
    }

    /// The images in the order they came.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The index of an image among [`Catalog::slots`].
    pub(crate) fn slot(&mut self, recorded: Recorded) -> usize {
        if let Some(&slot) = self.by_recorded.get(&recorded) {
            return slot;
        }
        self.slots.push(Slot {
            recorded: recorded.clone(),
            trace: Trace::default(),
            troubles: Vec::new(),
            counts: Counts::new(),
            totals: Counts::new(),
            is_other: false,
            state: State::Closed,
            used: 0,
        });
        self.by_recorded.insert(recorded, self.slots.len() - 1);
        self.slots.len() - 1
    }

    /// What a place in an image is called.
    pub(crate) fn resolve(&mut self, slot: usize, place: Place) -> Rc<Named> {
        if let Some(named) = self.resolved.get(&(slot, place)) {
            return Rc::clone(named);
        }
        let mut resolution = self.look_up(slot, place);
        if let Some(function) = resolution.function.filter(|_| resolution.calls.is_empty()) {
            // One name for all places of the function, in the way of a place without a name.
            let function = match function {
                Nameless::At(start) => place_name(&self.slots[slot].recorded.path, start),
                Nameless::Between(exports) => exports.into_bytes(),
            };
            resolution.calls.push(Call { function: Some(function.into()), ..Call::default() });
        }
        let lines = resolution.calls.iter().map(|call| named_line(&mut self.names, call));
        let mut named = Named { status: resolution.status, lines: lines.collect() };
        if named.status == Status::Named && self.slots[slot].is_other {
            named.status = Status::Mismatch;
            named.lines.iter_mut().for_each(|line| {
                line.function = self.names.mismatched(line.function);
            });
        }
        let named = Rc::new(named);
        self.resolved.insert((slot, place), Rc::clone(&named));
        named
    }

    /// Resolves places that are given image by image: each image is closed when the next is opened.
    pub(crate) fn resolve_all(&mut self, places: impl IntoIterator<Item = (usize, Place)>) {
        let kept = std::mem::take(&mut self.kept_bytes);
        for (slot, place) in places {
            self.resolve(slot, place);
        }
        self.kept_bytes = kept;
    }

    fn look_up(&mut self, slot: usize, place: Place) -> Resolution {
        self.open(slot);
        let detail = self.finder.detail;
        let slot = &mut self.slots[slot];
        let image = match &slot.state {
            State::Open(image) => image,
            State::Failed(failure) => return Resolution::unnamed(failure.status),
            State::Closed => return Resolution::unnamed(Status::NoImage),
        };
        match guarded(|| resolve(image, place, detail)) {
            Ok(resolution) => {
                if let Some(trouble) = &resolution.trouble {
                    slot.note(trouble.to_string());
                }
                resolution
            }
            Err(failure) => {
                slot.trace.note(failure.why.clone());
                let status = failure.status;
                slot.state = State::Failed(failure);
                Resolution::unnamed(status)
            }
        }
    }

    /// Opens an image that is not open yet.
    pub(crate) fn open(&mut self, index: usize) {
        self.uses += 1;
        let slot = &mut self.slots[index];
        slot.used = self.uses;
        if !matches!(slot.state, State::Closed) {
            if self.uses.is_multiple_of(ROUND) {
                self.close_others(index);
            }
            return;
        }
        slot.trace = Trace::default();
        let (finder, host) = (&self.finder, &self.host);
        let (recorded, trace) = (&slot.recorded, &slot.trace);
        let opened = guarded(|| match recorded.kind {
            ImageKind::Elf => finder.open(recorded, trace),
            _ => {
                let image = host.open(recorded, finder, trace);
                image.map(|image| Opened { image, is_other: false })
            }
        });
        slot.state = match opened.and_then(|opened| opened) {
            Ok(Opened { image, is_other }) => {
                slot.is_other = is_other;
                State::Open(image)
            }
            Err(failure) => State::Failed(failure),
        };
        self.close_others(index);
    }

    /// Counts a frame of an image, by how its naming went.
    pub(crate) fn count(&mut self, slot: usize, status: Status) {
        *self.slots[slot].counts.entry(status).or_default() += 1;
    }

    /// The segment is over: what is told of each image that has frames in it.
    pub(crate) fn tell(&mut self) -> Vec<Naming> {
        self.look_up_packages();
        let mut namings = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| !slot.counts.is_empty()) {
            let counts = std::mem::take(&mut slot.counts);
            for (status, count) in &counts {
                *slot.totals.entry(*status).or_default() += count;
            }
            namings.push(summary::naming(slot, &counts, &self.commands));
        }
        namings
    }

    /// Finds the commands for the images that lack symbols.
    fn look_up_packages(&mut self) {
        let lacking = self.slots.iter().filter(|slot| summary::lacks_symbols(slot, &slot.counts));
        let paths = lacking.map(|slot| &*slot.recorded.path);
        // Once for all segments: it takes some milliseconds.
        let paths: Vec<&[u8]> =
            paths.filter(|path| self.looked_up.insert((*path).into())).collect();
        self.commands.extend(self.packages.commands(&paths));
    }

    /// The lines for people on all images.
    pub(crate) fn summary(&self) -> String {
        summary::summary(&self.slots, &self.commands)
    }

    /// What was tried for an image: `slot`, or one that is not in the input.
    pub(crate) fn explain(&mut self, recorded: &Recorded, slot: Option<usize>) -> String {
        let mut lines = match recorded.kind {
            ImageKind::Elf => match guarded(|| self.finder.explain(recorded)) {
                Ok(trace) => trace.lines(),
                Err(failure) => vec![failure.why],
            },
            _ => Vec::new(),
        };
        if let Some(slot) = slot {
            self.open(slot);
            for line in self.slots[slot].trace.lines() {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        summary::explanation(recorded, &lines, slot.map(|slot| &self.slots[slot]))
    }

    /// Closes the images that were not used for the longest time, until the others take little
    /// enough memory.
    fn close_others(&mut self, index: usize) {
        let others = self.slots.iter().enumerate().filter(|&(other, _)| other != index);
        let open = others.filter_map(|(other, slot)| match &slot.state {
            State::Open(image) => Some((slot.used, other, image.bytes())),
            State::Closed | State::Failed(_) => None,
        });
        let mut open: Vec<_> = open.collect();
        let mut total: usize = open.iter().map(|(_, _, bytes)| bytes).sum();
        open.sort_unstable();
        for (_, other, bytes) in open {
            if total <= self.kept_bytes {
                break;
            }
            self.slots[other].state = State::Closed;
            total -= bytes;
        }
    }
}

/// Does work on files nobody vouches for. The parsers report malformed input as errors; should
/// one of them have a bug that panics instead, it costs the names of this one image and not the
/// whole stream.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Failure {
        status: Status::Unreadable,
        why: "reading it failed in a way that should not be; please report it".to_owned(),
    })
}

/// What a place without a name is called: `image+0xoffset`.
fn place_name(path: &[u8], offset: u64) -> Vec<u8> {
    let image = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    [image, format!("+{offset:#x}").as_bytes()].concat()
}

fn named_line(names: &mut Names, call: &Call) -> NamedLine {
    NamedLine {
        function: call.function.as_deref().map_or(0, |name| names.function(name)),
        file: call.file.as_deref().map_or(0, |path| names.file(path)),
        line: call.line,
        column: call.column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Places;
    use crate::resolve::Detail;
    use std::os::unix::ffi::OsStrExt;

    fn recorded(path: &std::path::Path) -> Recorded {
        let path = path.as_os_str().as_bytes().into();
        Recorded { kind: ImageKind::Elf, build_id: Box::default(), path, seen: None }
    }

    /// This program, and a copy of it.
    fn two_images(directory: &std::path::Path) -> (Catalog, [usize; 2]) {
        let exe = std::env::current_exe().unwrap();
        let copy = directory.join("copy");
        std::fs::copy(&exe, &copy).unwrap();
        let detail = Detail { inlines: false, lines: false };
        let mut catalog = Catalog::new(Finder::new(Places::default(), detail));
        let slots = [&exe, &copy].map(|path| catalog.slot(recorded(path)));
        assert_eq!(catalog.slot(recorded(&exe)), slots[0]);
        (catalog, slots)
    }

    fn open(catalog: &Catalog) -> usize {
        catalog.slots.iter().filter(|slot| matches!(slot.state, State::Open(_))).count()
    }

    #[test]
    fn images_are_open_in_turn_when_places_are_given_by_image() {
        let directory = tempfile::tempdir().unwrap();
        let (mut catalog, slots) = two_images(directory.path());
        let place = Place { offset: 0x1000, return_address: false };
        catalog.resolve_all(slots.map(|slot| (slot, place)));
        assert_eq!(open(&catalog), 1);
        let other = Place { offset: 0x2000, return_address: false };
        slots.iter().for_each(|&slot| drop(catalog.resolve(slot, other)));
        assert_eq!(open(&catalog), 2);
    }

    #[test]
    fn images_are_closed_and_opened_again_when_memory_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let (mut catalog, slots) = two_images(directory.path());
        catalog.kept_bytes = 0;
        // Somewhere in this test program there is code with names.
        let mut named = 0;
        for offset in (0..1 << 22).step_by(4096) {
            let place = Place { offset, return_address: false };
            let results = slots.map(|slot| catalog.resolve(slot, place));
            assert_eq!(results[0].lines, results[1].lines);
            named += usize::from(results[0].status == Status::Named);
            assert_eq!(open(&catalog), 1);
            if named == 3 {
                break;
            }
        }
        assert_eq!(named, 3);
    }

    #[test]
    fn a_panic_costs_one_image() {
        let failure = guarded(|| -> u32 { panic!("a bug in a parser") }).unwrap_err();
        assert_eq!(failure.status, Status::Unreadable);
        assert_eq!(guarded(|| 7), Ok(7));
    }
}
