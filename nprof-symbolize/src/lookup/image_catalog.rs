//! The images of the input, the results of their lookups, and statistics of them.
//!
//! The catalog outlives epochs and segments: an offset is looked up once for the whole input.
//! Memory grows with the number of distinct offsets and images.

use std::rc::Rc;
use std::time::Duration;

use nprof_object::ImageOffset;
use nprof_stream::{ImageKind, Naming, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dwarf::Call;
use crate::find::{Finder, RecordedImage};
use crate::image::code::FunctionCode;
use crate::image::opened::{Symbolized, Unnamed};
use crate::lookup::background::{BackgroundLookup, LookupResult};
use crate::lookup::code_store::{CodeStore, InternedCode};
use crate::lookup::image_cache::{CodeLookup, ImageCache, catch_panics};
use crate::lookup::lookup_key::LookupKey;
use crate::lookup::parallel::LookupThreads;
use crate::lookup::reuse::Reuse;
use crate::names::interner::Interner;
use crate::names::location::{InternedLine, SymbolizedFrame};
use crate::stats::debug_packages::DebugPackages;
use crate::stats::image_stats::{ImageStats, SegmentStats};
use crate::stats::self_samples::SelfSamples;
use crate::stats::summary::{self, Commands};

/// All images of the input.
pub(crate) struct ImageCatalog {
    /// Finds the files of images.
    pub(crate) finder: Rc<Finder>,
    /// The images for lookups on this thread.
    cache: ImageCache,
    /// Lookups of a live stream, which does not wait for them.
    background: Option<BackgroundLookup>,
    packages: DebugPackages,
    /// The commands that install debug symbols, and the paths for which they were searched.
    commands: Commands,
    searched_paths: FxHashSet<Box<[u8]>>,
    images: Vec<ImageStats>,
    by_recorded: FxHashMap<RecordedImage, usize>,
    symbolized: FxHashMap<LookupKey, Rc<SymbolizedFrame>>,
    codes: CodeStore,
    /// The reasons in `@naming` records of the input, in this segment.
    reported_reasons: FxHashMap<ImageIdentity, Vec<u8>>,
    /// The names of all functions and files.
    pub(crate) names: Interner,
}

/// The path, kind and build ID of an image, as `@naming` records identify it.
#[derive(PartialEq, Eq, Hash)]
struct ImageIdentity {
    path: Vec<u8>,
    kind: Vec<u8>,
    build_id: Vec<u8>,
}

impl ImageCatalog {
    /// Creates a catalog without images.
    pub(crate) fn new(finder: Rc<Finder>) -> Self {
        let packages = DebugPackages::new(finder.search_paths.symfs.as_deref());
        Self {
            cache: ImageCache::new(Rc::clone(&finder)),
            finder,
            background: None,
            packages,
            commands: Commands::new(),
            searched_paths: FxHashSet::default(),
            images: Vec::new(),
            by_recorded: FxHashMap::default(),
            symbolized: FxHashMap::default(),
            codes: CodeStore::default(),
            reported_reasons: FxHashMap::default(),
            names: Interner::default(),
        }
    }

    /// Makes it the catalog of a live stream, before the first image: `background` looks offsets
    /// up, and `cache` gives provisional names until it has.
    pub(crate) fn live(self, cache: ImageCache, background: BackgroundLookup) -> Self {
        Self { cache, background: Some(background), ..self }
    }

    /// Returns the images in the order they came.
    pub(crate) fn images(&self) -> &[ImageStats] {
        &self.images
    }

    /// Returns the index of an image, added if it is new.
    pub(crate) fn index_of(&mut self, recorded: RecordedImage) -> usize {
        if let Some(&index) = self.by_recorded.get(&recorded) {
            return index;
        }
        self.cache.add(recorded.clone());
        if let Some(background) = &self.background {
            background.add(recorded.clone());
        }
        self.images.push(ImageStats::new(recorded.clone()));
        self.by_recorded.insert(recorded, self.images.len() - 1);
        self.images.len() - 1
    }

    /// Adds a process of the recording.
    pub(crate) fn note_process(&self, pid: u32) {
        self.finder.live_processes.note_process(pid);
        if let Some(background) = &self.background {
            background.note_process(pid);
        }
    }

    /// Looks up an offset. None if the lookup now runs in the background.
    pub(crate) fn resolve(&mut self, key: LookupKey) -> Option<Rc<SymbolizedFrame>> {
        // Also for a known result: it came from a lookup of this run.
        self.images[key.image].segment.is_looked_up = true;
        if let Some(frame) = self.known(key) {
            return Some(frame);
        }
        // Requested once; the result is stored when it arrives.
        if let Some(background) = &mut self.background {
            background.request(key);
            return None;
        }
        let symbolized = self.cache.look_up(key.image, key.offset);
        let code = key.code.then(|| self.cache.code(key.image, key.offset));
        let findings = self.cache.take_findings(key.image);
        Some(self.store(LookupResult { key, symbolized, code, findings }))
    }

    /// Returns the result of a finished lookup.
    pub(crate) fn known(&self, key: LookupKey) -> Option<Rc<SymbolizedFrame>> {
        self.symbolized.get(&key.without_code()).filter(|_| self.codes.knows(key)).cloned()
    }

    /// Returns the code of a finished lookup. None if there is none, or it was not requested.
    pub(crate) fn code(&self, key: LookupKey) -> Option<Rc<InternedCode>> {
        self.codes.get(key)
    }

    /// Returns a line for each image with samples for which there is no code.
    pub(crate) fn missing_code(&self) -> Vec<String> {
        self.codes.missing(|image| &self.images[image].recorded.path)
    }

    /// Looks up an offset at once, without debug information.
    pub(crate) fn provisional(&mut self, key: LookupKey) -> Rc<SymbolizedFrame> {
        let symbolized = self.cache.look_up(key.image, key.offset);
        Rc::new(self.intern(key.image, symbolized))
    }

    /// True if background lookups are waiting.
    pub(crate) fn is_waiting(&self) -> bool {
        self.background.as_ref().is_some_and(BackgroundLookup::is_waiting)
    }

    /// Returns the next result of the background, as [`BackgroundLookup::next`] does.
    pub(crate) fn next(
        &mut self,
        limit: Option<Duration>,
    ) -> Option<(LookupKey, Rc<SymbolizedFrame>)> {
        let result = self.background.as_mut()?.next(limit)?;
        Some((result.key, self.store(result)))
    }

    /// Looks up sorted keys: each image is closed when the next is opened, and `threads` share the
    /// images with many offsets.
    pub(crate) fn resolve_all(&mut self, keys: &[LookupKey], threads: &LookupThreads) {
        for of_image in keys.chunk_by(|one, other| one.image == other.image) {
            self.resolve_image(of_image, threads);
            self.read_code(of_image);
        }
    }

    /// Reads the code of sorted keys of one image.
    fn read_code(&mut self, keys: &[LookupKey]) {
        for &key in keys.iter().filter(|key| key.code) {
            let read = |cache: &mut ImageCache| cache.code(key.image, key.offset);
            let code = self.cache.with_single_image(read);
            self.store_code(key, code);
        }
    }

    /// Looks up sorted keys of one image.
    fn resolve_image(&mut self, keys: &[LookupKey], threads: &LookupThreads) {
        if threads.is_for(keys.len()) {
            return self.resolve_in_parallel(keys, threads);
        }
        let Some(&LookupKey { image, .. }) = keys.first() else { return };
        let mut offsets = distinct_offsets(keys);
        self.cache.with_single_image(|cache| {
            cache.sort_by_unit(image, &mut offsets);
            cache.set_sorted(image, true);
        });
        for offset in offsets {
            let (symbolized, findings) = self.cache.with_single_image(|cache| {
                (cache.look_up(image, offset), cache.take_findings(image))
            });
            let key = LookupKey { image, offset, code: false };
            self.store(LookupResult { key, symbolized, code: None, findings });
        }
        // The image may stay open for later lookups, which come in any order.
        self.cache.with_single_image(|cache| cache.set_sorted(image, false));
    }

    /// Looks up sorted keys of one image on several threads.
    fn resolve_in_parallel(&mut self, keys: &[LookupKey], threads: &LookupThreads) {
        let Some(first) = keys.first() else { return };
        let image = first.image;
        let offsets = distinct_offsets(keys);
        let (symbolized, findings) = threads.look_up(&self.images[image].recorded, offsets);
        let mut findings = Some(findings);
        for (offset, symbolized) in symbolized {
            // The findings belong to the image; one result carries them.
            let key = LookupKey { image, offset, code: false };
            let findings = findings.take();
            self.store(LookupResult { key, symbolized, code: None, findings });
        }
    }

    /// Stores a result and the findings about its image.
    fn store(&mut self, result: LookupResult) -> Rc<SymbolizedFrame> {
        let LookupResult { key, symbolized, code, findings } = result;
        if let Some(findings) = findings {
            self.images[key.image].findings.add(findings);
        }
        let frame = Rc::new(self.intern(key.image, symbolized));
        self.symbolized.insert(key.without_code(), Rc::clone(&frame));
        if let Some(code) = code {
            self.store_code(key, code);
        }
        frame
    }

    /// Stores the code of a lookup.
    fn store_code(&mut self, key: LookupKey, code: CodeLookup) {
        let names = &mut self.names;
        self.codes.store(key, code, |code| intern_code(names, code));
    }

    /// Replaces names by their numbers.
    fn intern(&mut self, image: usize, mut symbolized: Symbolized) -> SymbolizedFrame {
        if let Some(unnamed) = symbolized.unnamed.filter(|_| symbolized.calls.is_empty()) {
            // One name for all offsets of the function, so that reports can group by it.
            let function = unnamed_function(&self.images[image].recorded.path, &unnamed);
            symbolized.calls.push(Call { function: Some(function.into()), ..Call::default() });
        }
        let lines = symbolized.calls.iter().map(|call| intern_call(&mut self.names, call));
        let mut lines: Box<[InternedLine]> = lines.collect();
        if symbolized.status == Status::Mismatch {
            // Marked in the name, so that every report shows it.
            lines.iter_mut().for_each(|line| line.function = self.names.mismatched(line.function));
        }
        let problem = symbolized.problem.and_then(|fault| self.images[image].problem(&fault));
        SymbolizedFrame { status: symbolized.status, lines, problem }
    }

    /// True if an existing annotation of an image replaces a lookup.
    pub(crate) fn can_reuse(&mut self, image: usize, reuse: Reuse) -> bool {
        match reuse {
            Reuse::Full => true,
            Reuse::FunctionOnly => !self.may_add_lines(image),
            Reuse::No => false,
        }
    }

    /// True if a lookup in an image may find more than a function.
    fn may_add_lines(&mut self, image: usize) -> bool {
        let ImageStats { recorded, may_add_lines, .. } = &mut self.images[image];
        *may_add_lines.get_or_insert_with(|| match recorded.kind {
            ImageKind::Elf => true,
            // /proc/kallsyms has functions only; vmlinux has lines, too.
            ImageKind::Kernel => self.finder.has_vmlinux(recorded),
            _ => false,
        })
    }

    /// Stores the reason in a `@naming` record of the input.
    pub(crate) fn note_reported(&mut self, naming: &Naming) {
        self.reported_reasons.insert(ImageIdentity::of(naming), naming.reason.clone());
    }

    /// Counts a frame of an image by its status, and the problem there.
    pub(crate) fn count(&mut self, image: usize, status: Status, problem: Option<&Rc<str>>) {
        self.images[image].count(status, problem);
    }

    /// Takes back the count of a frame that gets another status.
    pub(crate) fn uncount(&mut self, image: usize, status: Status) {
        self.images[image].uncount(status);
    }

    /// Ends the segment: returns a `@naming` record for each image that has frames in it.
    pub(crate) fn end_segment(&mut self) -> Vec<Naming> {
        self.search_packages();
        let mut namings = Vec::new();
        for image in self.images.iter_mut().filter(|image| !image.segment.counts.is_empty()) {
            let SegmentStats { counts, problems, is_looked_up } =
                std::mem::take(&mut image.segment);
            for (status, count) in &counts {
                *image.totals.entry(*status).or_default() += count;
            }
            let mut naming = summary::naming(image, &counts, &problems, &self.commands);
            // If all frames were reused, the reason of the earlier run still holds.
            if !is_looked_up
                && let Some(reason) = self.reported_reasons.remove(&ImageIdentity::of(&naming))
            {
                naming.reason = reason;
            }
            namings.push(naming);
        }
        // Reasons of another segment may be outdated.
        self.reported_reasons.clear();
        namings
    }

    /// Finds the commands that install symbols for the images that lack them.
    fn search_packages(&mut self) {
        let lacking =
            self.images.iter().filter(|image| summary::lacks_symbols(image, &image.segment.counts));
        let paths = lacking.map(|image| &*image.recorded.path);
        // Each path once for all segments: a search takes some milliseconds.
        let paths: Vec<&[u8]> =
            paths.filter(|path| self.searched_paths.insert((*path).into())).collect();
        self.commands.extend(self.packages.commands(&paths));
    }

    /// Returns the lines of `--verbose` about all images.
    pub(crate) fn summary(&self, self_samples: Option<&SelfSamples>) -> String {
        summary::summary(&self.images, &self.commands, self_samples)
    }

    /// Returns the lines of `--explain` about an image: the one at `index`, or one that is not in
    /// the input.
    pub(crate) fn explain(&mut self, recorded: &RecordedImage, index: Option<usize>) -> String {
        let mut lines = match recorded.kind {
            ImageKind::Elf => match catch_panics(|| self.finder.explain(recorded)) {
                Ok(log) => log.lines(),
                Err(failure) => vec![failure.reason],
            },
            _ => Vec::new(),
        };
        if let Some(index) = index {
            let findings = &mut self.images[index].findings;
            if findings.log.is_empty() && recorded.kind != ImageKind::Anonymous {
                // None of its frames was looked up, so that it was never opened.
                self.cache.open(index);
                *findings = self.cache.take_findings(index).unwrap_or_default();
            }
            for line in &findings.log {
                if !lines.contains(line) {
                    lines.push(line.clone());
                }
            }
        }
        summary::explanation(recorded, &lines, index.map(|index| &self.images[index]))
    }
}

impl ImageIdentity {
    fn of(naming: &Naming) -> Self {
        Self {
            path: naming.image.clone(),
            kind: naming.kind.clone(),
            build_id: naming.build_id.clone(),
        }
    }
}

/// Returns the name of a function without one: `libc.so.6+0x3d1f0 (after mrand48_r)`.
fn unnamed_function(path: &[u8], function: &Unnamed) -> Vec<u8> {
    let image = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let after = function.after.iter().map(|name| format!(" (after {name})"));
    [image, format!("+{:#x}", function.start).as_bytes(), after.collect::<String>().as_bytes()]
        .concat()
}

/// Returns the offsets of sorted keys, each once.
fn distinct_offsets(keys: &[LookupKey]) -> Vec<ImageOffset> {
    let mut offsets: Vec<ImageOffset> = keys.iter().map(|key| key.offset).collect();
    offsets.dedup();
    offsets
}

fn intern_code(names: &mut Interner, code: FunctionCode) -> InternedCode {
    let mut rows = Vec::new();
    for (offset, calls) in code.rows {
        // A row without names ends the row before it.
        let none = if calls.is_empty() { &[Call::default()][..] } else { &[] };
        rows.extend(calls.iter().chain(none).map(|call| (offset, intern_call(names, call))));
    }
    let callees = code.callees.iter().map(|(offset, call)| (*offset, intern_call(names, call)));
    let (start, arch) = (code.start, code.arch.name());
    InternedCode { start, arch, bytes: code.bytes, rows, callees: callees.collect() }
}

fn intern_call(names: &mut Interner, call: &Call) -> InternedLine {
    let function = call.function.as_deref().map_or(0, |name| names.function(name));
    let file = call.file.as_deref().map_or(0, |path| names.file(path));
    let md5 = call.md5.filter(|_| names.has_md5s);
    InternedLine {
        function: names.at_line(function, call.start_line),
        file: names.with_md5(file, md5),
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
        RecordedImage { path, ..RecordedImage::new(ImageKind::Elf) }
    }

    fn finder() -> Rc<Finder> {
        let detail = Detail { inlines: false, lines: false, debug: true };
        Rc::new(Finder::new(SearchPaths::default(), detail))
    }

    fn key(image: usize, offset: u64) -> LookupKey {
        LookupKey { image, offset: ImageOffset(offset), code: false }
    }

    /// Adds this program and a copy of it.
    fn add_two_images(catalog: &mut ImageCatalog, directory: &std::path::Path) -> [usize; 2] {
        let exe = std::env::current_exe().unwrap();
        let copy = directory.join("copy");
        std::fs::copy(&exe, &copy).unwrap();
        let images = [&exe, &copy].map(|path| catalog.index_of(recorded(path)));
        assert_eq!(catalog.index_of(recorded(&exe)), images[0]);
        images
    }

    #[test]
    fn sorted_lookups_keep_one_image_open() {
        let directory = tempfile::tempdir().unwrap();
        let mut catalog = ImageCatalog::new(finder());
        let images = add_two_images(&mut catalog, directory.path());
        let none = LookupThreads::new(false, Box::new(|_| ImageCache::new(finder())));
        catalog.resolve_all(&images.map(|image| key(image, 0x1000)), &none);
        assert_eq!(catalog.cache.open_images(), 1);
        images.iter().for_each(|&image| drop(catalog.resolve(key(image, 0x2000))));
        assert_eq!(catalog.cache.open_images(), 2);
    }

    #[test]
    fn images_beyond_the_memory_bound_are_closed_and_reopened() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ImageCache::with_kept_bytes(finder(), 0);
        let mut catalog = ImageCatalog { cache, ..ImageCatalog::new(finder()) };
        let images = add_two_images(&mut catalog, directory.path());
        // Somewhere in this test program there is code with names.
        let mut named = 0;
        for offset in (0..1 << 22).step_by(4096) {
            let results = images.map(|image| catalog.resolve(key(image, offset)).unwrap());
            assert_eq!(results[0].status, results[1].status);
            if results[0].status == Status::Named {
                assert_eq!(results[0].lines, results[1].lines);
            }
            named += usize::from(results[0].status == Status::Named);
            assert_eq!(catalog.cache.open_images(), 1);
            if named == 3 {
                break;
            }
        }
        assert_eq!(named, 3);
    }
}
