//! The search for the files of one image, and what each of them contributes.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nprof_stream::{ImageKind, Status};

use super::debuginfod::{ArtifactKind, Debuginfod};
use super::elf_file::ElfFile;
use super::failure::Failure;
use super::live_processes::LiveProcesses;
use super::recorded::RecordedImage;
use super::search_log::SearchLog;
use super::search_paths::SearchPaths;
use super::split_files::SplitFiles;
use super::{contents, identity};
use crate::dwarf::detail::Detail;
use crate::dwarf::{Dwarf, DwarfError, ROOM_BYTES};
use crate::elf::function_ranges::FunctionRanges;
use crate::elf::headers::Headers;
use crate::image::opened::{ElfImage, OpenImage};

/// An image that was opened.
pub(crate) struct Opened {
    /// Its names.
    pub(crate) image: OpenImage,
    /// Whether it is of another build than the recorded one, which was allowed.
    pub(crate) is_other: bool,
}

/// Where to look for files, and what for.
pub(crate) struct Finder {
    /// The directories.
    pub(crate) places: SearchPaths,
    /// What the files are wanted for.
    pub(crate) detail: Detail,
    /// Whether a file of another build is better than none.
    pub(crate) allow_mismatch: bool,
    /// The processes of the recording.
    pub(crate) living: Rc<LiveProcesses>,
    /// The servers to ask, if they may be asked.
    pub(crate) debuginfod: Option<Rc<Debuginfod>>,
    /// How many threads share the memory that open images may take.
    pub(crate) sharers: usize,
}

/// The files of one image.
struct Files {
    /// The file that was executed, and whether it is of another build.
    image: Result<(ElfFile, bool), Failure>,
    /// Those that hold debug information, in the order they were found.
    debug: Vec<ElfFile>,
    /// Where the others are to be looked for.
    nearby: Nearby,
}

/// Where the files are to be looked for that an image's debug information refers to.
#[derive(Clone)]
pub(super) struct Nearby {
    pub(super) places: SearchPaths,
    /// What they may stand beside: the image where it was, and the files that were found.
    pub(super) beside: Vec<PathBuf>,
}

impl Finder {
    /// Looks in these places for what is recorded, and nowhere else.
    pub(crate) fn new(places: SearchPaths, detail: Detail) -> Self {
        let living = Rc::default();
        Self { places, detail, allow_mismatch: false, living, debuginfod: None, sharers: 1 }
    }

    /// Finds and opens the ELF file the stream names.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn open(
        &self,
        recorded: &RecordedImage,
        trace: &SearchLog,
    ) -> Result<Opened, Failure> {
        self.put_together(self.files(recorded, trace), trace)
    }

    /// What is tried for an image, a line each: also the files that are opened only when a frame
    /// needs them.
    pub(crate) fn explain(&self, recorded: &RecordedImage) -> SearchLog {
        let trace = SearchLog::default();
        let files = self.files(recorded, &trace);
        let all: Vec<ElfFile> =
            files.image.iter().map(|(file, _)| file).chain(&files.debug).cloned().collect();
        if let Some(main) = all.iter().find(|file| file.headers.has_dwarf()) {
            let spread = self.spread(main, &files.nearby, &trace);
            spread.find_shared();
            // Only what was split refers to addresses by their number.
            if main.headers.section(b".debug_addr").is_some() {
                spread.find_package();
            }
        }
        // What is wrong is in the trace.
        let _ = self.put_together(files, &trace);
        trace
    }

    fn files(&self, recorded: &RecordedImage, trace: &SearchLog) -> Files {
        let image = self.image(recorded, trace);
        let mut places = self.places.clone();
        // Debug files of a container may be in it.
        let root = image.as_ref().ok().and_then(|(image, _)| root_of(&image.path));
        places.symfs = places.symfs.or(root);
        let found = image.as_ref().ok().map(|(image, _)| image);
        let debug = self.debug_files(recorded, found, &places, trace);
        let beside = beside(recorded, &places, found.into_iter().chain(&debug));
        Files { image, debug, nearby: Nearby { places, beside } }
    }

    /// The file that was executed, and whether it is of another build.
    fn image(
        &self,
        recorded: &RecordedImage,
        trace: &SearchLog,
    ) -> Result<(ElfFile, bool), Failure> {
        let (mut failure, mut other) = (None, None);
        let mut look = |path: PathBuf| match self.try_image(&path, recorded) {
            Ok(file) => {
                trace.tried(&path, format!("is the image: {}", file.description()));
                Some(file)
            }
            Err((file, Failure { status, why })) => {
                trace.tried(&path, &why);
                let why = format!("{}: {why}", path.display());
                if other.is_none() {
                    other = file.filter(|_| status == Status::Mismatch);
                }
                // A wrong file says more than none.
                let is_absent = |f: &Failure| f.status == Status::NoImage;
                let says_more = |f| is_absent(f) && status != Status::NoImage;
                if failure.as_ref().is_none_or(says_more) {
                    failure = Some(Failure { status, why });
                }
                None
            }
        };
        let path = &recorded.path;
        let found = self.places.recorded(path).into_iter().find_map(&mut look);
        let by_id = || self.places.by_build_id(&recorded.build_id, "").into_iter();
        let found = found.or_else(|| self.in_processes(recorded).into_iter().find_map(&mut look));
        let found = found.or_else(|| by_id().find_map(&mut look));
        let found = found.or_else(|| {
            let fetched = self.fetch(&recorded.build_id, ArtifactKind::Executable, trace);
            fetched.into_iter().find_map(&mut look)
        });
        if let Some(file) = found {
            return Ok((file, false));
        }
        if let Some(other) = other.filter(|_| self.allow_mismatch) {
            trace.tried(&other.path, "is taken all the same");
            return Ok((other, true));
        }
        let why = "its path is not absolute".to_owned();
        Err(failure.unwrap_or(Failure { status: Status::NoImage, why }))
    }

    /// Opens a file if it is the image; if it is another ELF file, gives that with the reason.
    fn try_image(
        &self,
        path: &Path,
        recorded: &RecordedImage,
    ) -> Result<ElfFile, (Option<ElfFile>, Failure)> {
        let file = ElfFile::open(path).map_err(|failure| (None, failure))?;
        let is_copy = self.places.symfs.is_some();
        let checked = match &*recorded.build_id {
            [] => identity::is_unchanged(&file, recorded.seen, is_copy),
            build_id => identity::has_build_id(&file, build_id),
        };
        match checked {
            Ok(()) => Ok(file),
            Err(failure) => Err((Some(file), failure)),
        }
    }

    /// What living processes of the recording have of an image. Only a build ID tells whether a
    /// process is the recorded one still.
    fn in_processes(&self, recorded: &RecordedImage) -> Vec<PathBuf> {
        if recorded.build_id.is_empty() || self.places.symfs.is_some() {
            return Vec::new();
        }
        let under = |root: PathBuf| {
            SearchPaths { debug_dirs: Vec::new(), symfs: Some(root) }.recorded(&recorded.path)
        };
        let mut paths: Vec<PathBuf> = self.living.roots().into_iter().filter_map(under).collect();
        paths.extend(self.living.mapped(&recorded.path));
        paths
    }

    pub(super) fn fetch(
        &self,
        build_id: &[u8],
        wanted: ArtifactKind,
        trace: &SearchLog,
    ) -> Option<PathBuf> {
        self.debuginfod.as_ref()?.fetch(build_id, wanted, trace)
    }

    /// Fetches what an image lacks here, so that it is here when it is opened.
    pub(crate) fn prefetch(&self, recorded: &RecordedImage) {
        if recorded.kind == ImageKind::Elf && !recorded.build_id.is_empty() {
            self.files(recorded, &SearchLog::default());
        }
    }

    /// The files that may hold the image's debug information, in the order they are tried.
    fn debug_files(
        &self,
        recorded: &RecordedImage,
        image: Option<&ElfFile>,
        places: &SearchPaths,
        trace: &SearchLog,
    ) -> Vec<ElfFile> {
        let build_id = image.map_or(&*recorded.build_id, |image| &image.headers.build_id);
        let mut files = Vec::new();
        let has = |files: &[ElfFile], what: fn(&Headers) -> bool| {
            image.into_iter().chain(files).any(|file| what(&file.headers))
        };
        if has(&files, Headers::has_dwarf)
            || (self.detail.is_symbols_only() && has(&files, Headers::has_symbols))
        {
            return files;
        }
        for path in places.by_build_id(build_id, ".debug") {
            let found = ElfFile::open(&path);
            let found =
                found.and_then(|file| identity::has_build_id(&file, build_id).map(|()| file));
            keep(&mut files, trace, &path, found);
        }
        let linked = image.and_then(|image| Some((image, image.headers.debug_link.as_ref()?)));
        if let Some((image, link)) = linked.filter(|_| !has(&files, Headers::has_dwarf)) {
            let beside = beside(recorded, places, [image]);
            for path in beside.iter().flat_map(|image| places.by_link(image, &link.name)) {
                let found = ElfFile::open(&path);
                let found = found
                    .and_then(|file| identity::is_linked(&file, build_id, link.crc).map(|()| file));
                keep(&mut files, trace, &path, found);
            }
        }
        if !has(&files, Headers::has_dwarf)
            && let Some(path) = self.fetch(build_id, ArtifactKind::DebugInfo, trace)
        {
            keep(&mut files, trace, &path, ElfFile::open(&path));
        }
        if !has(&files, Headers::has_symbols) {
            files.extend(image.and_then(|image| contents::debug_data(image, trace)));
        }
        files
    }

    /// Takes the best each file has to offer: DWARF before a symbol table before exports.
    fn put_together(&self, files: Files, trace: &SearchLog) -> Result<Opened, Failure> {
        let Files { image, debug: mut files, nearby } = files;
        let (headers, is_other) = match image {
            Ok((image, is_other)) => {
                files.insert(0, image);
                (Rc::clone(&files[0].headers), is_other)
            }
            Err(failure) => {
                // Without the image its debug file may still tell where its code was.
                let told = files.iter().find(|file| tells_offsets(&file.headers));
                let Some(told) = told else { return Err(failure) };
                trace.tried(&told.path, "stands in for the image");
                (Rc::clone(&told.headers), false)
            }
        };
        let symbols = contents::symbols(&files, trace);
        let has_symbols = files.iter().any(|file| file.headers.has_symbols());
        let wanted = self.detail.reads_debug_info(has_symbols);
        let dwarf = if wanted { self.dwarf(&files, &nearby, trace) } else { Err(None) };
        let function_ranges = if has_symbols {
            FunctionRanges::default()
        } else {
            contents::function_ranges(&files, trace)
        };
        let image = ElfImage { headers: (*headers).clone(), symbols, dwarf, function_ranges };
        Ok(Opened { image: OpenImage::Elf(Box::new(image)), is_other })
    }

    /// The first debug information that can be read, else why the first cannot.
    pub(super) fn dwarf(
        &self,
        files: &[ElfFile],
        nearby: &Nearby,
        trace: &SearchLog,
    ) -> Result<Dwarf, Option<DwarfError>> {
        let mut fault = None;
        for file in files.iter().filter(|file| file.headers.has_dwarf()) {
            match Dwarf::load(Box::new(self.spread(file, nearby, trace)), ROOM_BYTES / self.sharers)
            {
                Ok(dwarf) => {
                    trace.tried(&file.path, "inlined calls, files and lines from DWARF");
                    return Ok(dwarf);
                }
                Err(error) => {
                    trace.tried(&file.path, format!("DWARF: {error}"));
                    fault.get_or_insert(error);
                }
            }
        }
        trace.note("no DWARF: no inlined calls, no lines");
        Err(fault)
    }

    fn spread(&self, main: &ElfFile, nearby: &Nearby, trace: &SearchLog) -> SplitFiles {
        SplitFiles {
            main: main.clone(),
            files: nearby.beside.clone(),
            places: nearby.places.clone(),
            debuginfod: self.debuginfod.clone(),
            trace: trace.clone(),
            missing: Cell::default(),
        }
    }
}

/// Where other files of an image may stand beside: where it was, and where these are.
fn beside<'f>(
    recorded: &RecordedImage,
    places: &SearchPaths,
    files: impl IntoIterator<Item = &'f ElfFile>,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = files.into_iter().map(|file| file.path.clone()).collect();
    // A file that was found by its build ID, or in a process, is not where it was.
    let was = places.recorded(&recorded.path).filter(|was| !paths.contains(was));
    paths.extend(was);
    paths
}

/// Takes note of a debug file that was tried, and keeps it when it is the right one.
fn keep(files: &mut Vec<ElfFile>, trace: &SearchLog, path: &Path, found: Result<ElfFile, Failure>) {
    match found {
        Ok(file) => {
            trace.tried(path, format!("is a debug file of the image: {}", file.description()));
            files.push(file);
        }
        Err(failure) => trace.tried(path, failure.why),
    }
}

/// The root of the process through which a file was found, `/proc/PID/root`.
fn root_of(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let root: PathBuf = parts.by_ref().take(4).collect();
    let is_root = root.starts_with("/proc") && root.ends_with("root");
    is_root.then_some(root)
}

/// Whether the headers of a debug file still say where in the image its segments were.
/// objcopy(1) leaves no sizes, since the segments' bytes are not there.
fn tells_offsets(headers: &Headers) -> bool {
    headers.segments.iter().any(|segment| segment.executable && segment.size > 0)
}
