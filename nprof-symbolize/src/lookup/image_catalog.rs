//! The images of the input, what their places are called, and how naming them went.
//!
//! Outlives epochs and segments: a place is resolved once for the whole input. Memory grows
//! with the distinct places and images.

use std::rc::Rc;
use std::time::Duration;

use nprof_stream::{ImageKind, Naming, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reuse::Reuse;
use crate::dwarf::Call;
use crate::find::{Finder, RecordedImage};
use crate::image::opened::{Place, Symbolized, Unnamed};
use crate::lookup::background::{BackgroundLookup, LookupResult};
use crate::lookup::image_cache::{ImageCache, catch_panics};
use crate::lookup::parallel::LookupThreads;
use crate::names::interner::Interner;
use crate::names::location::{InternedLine, SymbolizedFrame};
use crate::stats::debug_packages::DebugPackages;
use crate::stats::image_stats::{ImageStats, SegmentStats};
use crate::stats::summary::{self, Commands};

/// All images of the input.
pub(crate) struct ImageCatalog {
    /// Where files are looked for.
    pub(crate) finder: Rc<Finder>,
    /// The images, for what is looked up at once.
    pool: ImageCache,
    /// What is looked up on the side, where the stream is not to wait.
    background: Option<BackgroundLookup>,
    packages: DebugPackages,
    /// The commands that get debug symbols, and the paths they were looked up for.
    commands: Commands,
    looked_up: FxHashSet<Box<[u8]>>,
    slots: Vec<ImageStats>,
    by_recorded: FxHashMap<RecordedImage, usize>,
    resolved: FxHashMap<(usize, Place), Rc<SymbolizedFrame>>,
    /// What the input says stood in the way, by image, in this segment.
    reasons: FxHashMap<[Vec<u8>; 3], Vec<u8>>,
    /// The names of all places.
    pub(crate) names: Interner,
}

impl ImageCatalog {
    /// No images yet.
    pub(crate) fn new(finder: Rc<Finder>) -> Self {
        let packages = DebugPackages::new(finder.places.symfs.as_deref());
        Self {
            pool: ImageCache::new(Rc::clone(&finder)),
            finder,
            background: None,
            packages,
            commands: Commands::new(),
            looked_up: FxHashSet::default(),
            slots: Vec::new(),
            by_recorded: FxHashMap::default(),
            resolved: FxHashMap::default(),
            reasons: FxHashMap::default(),
            names: Interner::default(),
        }
    }

    /// The same for a live stream, before any image: what places are called is looked up by
    /// `background`, and in the meantime by `pool`.
    pub(crate) fn live(self, pool: ImageCache, background: BackgroundLookup) -> Self {
        Self { pool, background: Some(background), ..self }
    }

    /// The images in the order they came.
    pub(crate) fn slots(&self) -> &[ImageStats] {
        &self.slots
    }

    /// The index of an image among [`ImageCatalog::slots`].
    pub(crate) fn slot(&mut self, recorded: RecordedImage) -> usize {
        if let Some(&slot) = self.by_recorded.get(&recorded) {
            return slot;
        }
        self.pool.add(recorded.clone());
        if let Some(background) = &self.background {
            background.add(recorded.clone());
        }
        self.slots.push(ImageStats::new(recorded.clone()));
        self.by_recorded.insert(recorded, self.slots.len() - 1);
        self.slots.len() - 1
    }

    /// Takes note of a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.finder.living.note_process(pid);
        if let Some(background) = &self.background {
            background.note_process(pid);
        }
    }

    /// What a place in an image is called, unless it is looked up in the background from now on.
    pub(crate) fn resolve(&mut self, slot: usize, place: Place) -> Option<Rc<SymbolizedFrame>> {
        self.slots[slot].segment.is_looked_up = true;
        if let Some(named) = self.resolved.get(&(slot, place)) {
            return Some(Rc::clone(named));
        }
        if let Some(background) = &mut self.background {
            background.ask(slot, place);
            return None;
        }
        let resolution = self.pool.look_up(slot, place);
        let findings = self.pool.take_findings(slot);
        Some(self.store(LookupResult { slot, place, resolution, findings }))
    }

    /// What a place is called, if that is known by now.
    pub(crate) fn known(&self, slot: usize, place: Place) -> Option<Rc<SymbolizedFrame>> {
        self.resolved.get(&(slot, place)).cloned()
    }

    /// What a place is called as far as that is known without debug information.
    pub(crate) fn provisional(&mut self, slot: usize, place: Place) -> Rc<SymbolizedFrame> {
        let resolution = self.pool.look_up(slot, place);
        Rc::new(self.name(slot, resolution))
    }

    /// Whether places are still looked up in the background.
    pub(crate) fn is_waiting(&self) -> bool {
        self.background.as_ref().is_some_and(BackgroundLookup::is_waiting)
    }

    /// The next place that was looked up in the background, and what it is called, as
    /// [`BackgroundLookup::next`] has it.
    pub(crate) fn next(
        &mut self,
        patience: Option<Duration>,
    ) -> Option<(usize, Place, Rc<SymbolizedFrame>)> {
        let found = self.background.as_mut()?.next(patience)?;
        let (slot, place) = (found.slot, found.place);
        Some((slot, place, self.store(found)))
    }

    /// Resolves places that are given image by image, in their order: each image is closed when the
    /// next is opened. Where an image has many, the threads of `crew` share them.
    pub(crate) fn resolve_all(&mut self, places: &[(usize, Place)], crew: &LookupThreads) {
        for of_image in places.chunk_by(|(one, _), (other, _)| one == other) {
            if crew.is_for(of_image.len()) {
                self.resolve_together(of_image, crew);
                continue;
            }
            for &(slot, place) in of_image {
                let look_up =
                    |pool: &mut ImageCache| (pool.look_up(slot, place), pool.take_findings(slot));
                let (resolution, findings) = self.pool.with_single_image(look_up);
                self.store(LookupResult { slot, place, resolution, findings });
            }
        }
    }

    /// The same of one image, by several threads.
    fn resolve_together(&mut self, places: &[(usize, Place)], crew: &LookupThreads) {
        let Some(&(slot, _)) = places.first() else { return };
        let alone: Vec<Place> = places.iter().map(|&(_, place)| place).collect();
        let (found, findings) = crew.look_up(&self.slots[slot].recorded, &alone);
        let mut findings = Some(findings);
        for (place, resolution) in alone.into_iter().zip(found) {
            self.store(LookupResult { slot, place, resolution, findings: findings.take() });
        }
    }

    fn store(&mut self, found: LookupResult) -> Rc<SymbolizedFrame> {
        let LookupResult { slot, place, resolution, findings } = found;
        if let Some(findings) = findings {
            self.slots[slot].findings.add(findings);
        }
        let named = Rc::new(self.name(slot, resolution));
        self.resolved.insert((slot, place), Rc::clone(&named));
        named
    }

    /// Gives names their numbers.
    fn name(&mut self, slot: usize, mut resolution: Symbolized) -> SymbolizedFrame {
        if let Some(function) = resolution.function.filter(|_| resolution.calls.is_empty()) {
            // One name for all places of the function, in the way of a place without a name.
            let function = match function {
                Unnamed::At(start) => place_name(&self.slots[slot].recorded.path, start),
                Unnamed::Between(exports) => exports.into_bytes(),
            };
            resolution.calls.push(Call { function: Some(function.into()), ..Call::default() });
        }
        let lines = resolution.calls.iter().map(|call| named_line(&mut self.names, call));
        let mut lines: Box<[InternedLine]> = lines.collect();
        if resolution.status == Status::Mismatch {
            lines.iter_mut().for_each(|line| line.function = self.names.mismatched(line.function));
        }
        let problem = resolution.problem.and_then(|fault| self.slots[slot].problem(&fault));
        SymbolizedFrame { status: resolution.status, lines, problem }
    }

    /// Whether what the input says of a place in an image is taken for what it is called.
    pub(crate) fn can_reuse(&mut self, slot: usize, worth: Reuse) -> bool {
        match worth {
            Reuse::Full => true,
            Reuse::FunctionOnly => !self.may_add_lines(slot),
            Reuse::No => false,
        }
    }

    /// Whether looking up a place in an image may tell more than its function.
    fn may_add_lines(&mut self, slot: usize) -> bool {
        let ImageStats { recorded, may_add_lines, .. } = &mut self.slots[slot];
        *may_add_lines.get_or_insert_with(|| match recorded.kind {
            ImageKind::Elf => true,
            ImageKind::Kernel => self.finder.has_vmlinux(recorded),
            _ => false,
        })
    }

    /// Takes note of what the input says of an image in this segment.
    pub(crate) fn note_reported(&mut self, naming: &Naming) {
        self.reasons.insert(image_of(naming), naming.reason.clone());
    }

    /// Counts a frame of an image, by how its naming went and what was wrong there.
    pub(crate) fn count(&mut self, slot: usize, status: Status, problem: Option<&Rc<str>>) {
        self.slots[slot].count(status, problem);
    }

    /// A frame that was counted is counted as something else.
    pub(crate) fn uncount(&mut self, slot: usize, status: Status) {
        self.slots[slot].uncount(status);
    }

    /// The segment is over: what is told of each image that has frames in it.
    pub(crate) fn tell(&mut self) -> Vec<Naming> {
        self.look_up_packages();
        let mut namings = Vec::new();
        for slot in self.slots.iter_mut().filter(|slot| !slot.segment.counts.is_empty()) {
            let SegmentStats { counts, told, is_looked_up } = std::mem::take(&mut slot.segment);
            for (status, count) in &counts {
                *slot.totals.entry(*status).or_default() += count;
            }
            let mut naming = summary::naming(slot, &counts, &told, &self.commands);
            if !is_looked_up && let Some(reason) = self.reasons.remove(&image_of(&naming)) {
                naming.reason = reason;
            }
            namings.push(naming);
        }
        self.reasons.clear();
        namings
    }

    /// Finds the commands for the images that lack symbols.
    fn look_up_packages(&mut self) {
        let lacking =
            self.slots.iter().filter(|slot| summary::lacks_symbols(slot, &slot.segment.counts));
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
    pub(crate) fn explain(&mut self, recorded: &RecordedImage, slot: Option<usize>) -> String {
        let mut lines = match recorded.kind {
            ImageKind::Elf => match catch_panics(|| self.finder.explain(recorded)) {
                Ok(trace) => trace.lines(),
                Err(failure) => vec![failure.why],
            },
            _ => Vec::new(),
        };
        if let Some(slot) = slot {
            let findings = &mut self.slots[slot].findings;
            if findings.trace.is_empty() {
                // None of its frames was looked up.
                self.pool.open(slot);
                *findings = self.pool.take_findings(slot).unwrap_or_default();
            }
            for line in &findings.trace {
                if !lines.contains(line) {
                    lines.push(line.clone());
                }
            }
        }
        summary::explanation(recorded, &lines, slot.map(|slot| &self.slots[slot]))
    }
}

/// What an image is told by: its path, kind and build ID.
fn image_of(naming: &Naming) -> [Vec<u8>; 3] {
    [naming.image.clone(), naming.kind.clone(), naming.build_id.clone()]
}

/// What a place without a name is called: `image+0xoffset`.
fn place_name(path: &[u8], offset: u64) -> Vec<u8> {
    let image = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    [image, format!("+{offset:#x}").as_bytes()].concat()
}

fn named_line(names: &mut Interner, call: &Call) -> InternedLine {
    InternedLine {
        function: call.function.as_deref().map_or(0, |name| names.function(name)),
        file: call.file.as_deref().map_or(0, |path| names.file(path)),
        line: call.line,
        column: call.column,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::SearchPaths;
    use std::os::unix::ffi::OsStrExt;

    fn recorded(path: &std::path::Path) -> RecordedImage {
        let path = path.as_os_str().as_bytes().into();
        RecordedImage { kind: ImageKind::Elf, build_id: Box::default(), path, seen: None }
    }

    fn finder() -> Rc<Finder> {
        let detail = Detail { inlines: false, lines: false, debug: true };
        Rc::new(Finder::new(SearchPaths::default(), detail))
    }

    /// This program, and a copy of it.
    fn add_two_images(catalog: &mut ImageCatalog, directory: &std::path::Path) -> [usize; 2] {
        let exe = std::env::current_exe().unwrap();
        let copy = directory.join("copy");
        std::fs::copy(&exe, &copy).unwrap();
        let slots = [&exe, &copy].map(|path| catalog.slot(recorded(path)));
        assert_eq!(catalog.slot(recorded(&exe)), slots[0]);
        slots
    }

    #[test]
    fn images_are_open_in_turn_when_places_are_given_by_image() {
        let directory = tempfile::tempdir().unwrap();
        let mut catalog = ImageCatalog::new(finder());
        let slots = add_two_images(&mut catalog, directory.path());
        let place = Place { offset: 0x1000, return_address: false };
        let none = LookupThreads::new(false, Box::new(|_| ImageCache::new(finder())));
        catalog.resolve_all(&slots.map(|slot| (slot, place)), &none);
        assert_eq!(catalog.pool.open_images(), 1);
        let other = Place { offset: 0x2000, return_address: false };
        slots.iter().for_each(|&slot| drop(catalog.resolve(slot, other)));
        assert_eq!(catalog.pool.open_images(), 2);
    }

    #[test]
    fn images_are_closed_and_opened_again_when_memory_is_short() {
        let directory = tempfile::tempdir().unwrap();
        let mut catalog = ImageCatalog {
            pool: ImageCache::with_room(finder(), 0),
            ..ImageCatalog::new(finder())
        };
        let slots = add_two_images(&mut catalog, directory.path());
        // Somewhere in this test program there is code with names.
        let mut named = 0;
        for offset in (0..1 << 22).step_by(4096) {
            let place = Place { offset, return_address: false };
            let results = slots.map(|slot| catalog.resolve(slot, place).unwrap());
            assert_eq!(results[0].lines, results[1].lines);
            named += usize::from(results[0].status == Status::Named);
            assert_eq!(catalog.pool.open_images(), 1);
            if named == 3 {
                break;
            }
        }
        assert_eq!(named, 3);
    }
}
