//! The search for the files of one image, and the choice between them.

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
use crate::image::code_bytes::ImageCode;
use crate::image::opened::{ElfImage, OpenImage};

/// The steps of the search for an image's own file, in order.
const IMAGE_SOURCES: [ImageSource; 4] = [
    ImageSource::RecordedPath,
    ImageSource::LiveProcesses,
    ImageSource::BuildIdDirectories,
    ImageSource::Debuginfod,
];

/// The same for an image without a build ID. The file that a process has executed is surely the image.
const SOURCES_WITHOUT_ID: [ImageSource; 3] =
    [ImageSource::Copy, ImageSource::LiveProcesses, ImageSource::RecordedPath];

/// A step of the search for an image's own file.
#[derive(Clone, Copy, Debug)]
enum ImageSource {
    /// The copy that the recorder kept of a file without a build ID.
    Copy,
    /// The path in the recording, under the root of the system.
    RecordedPath,
    /// The running processes of the recording.
    LiveProcesses,
    /// The directories of files by build ID.
    BuildIdDirectories,
    /// The servers.
    Debuginfod,
}

/// An opened image.
pub(crate) struct OpenedImage {
    /// Its symbols and debug information.
    pub(crate) image: OpenImage,
    /// True if it is of another build than the recorded one, which the user allowed.
    pub(crate) is_other_build: bool,
}

/// The places to search, and the purpose of the files.
pub(crate) struct Finder {
    /// The directories.
    pub(crate) search_paths: SearchPaths,
    /// The detail that lookups want.
    pub(crate) detail: Detail,
    /// True if a file of another build is better than none.
    pub(crate) allow_mismatch: bool,
    /// The processes of the recording.
    pub(crate) live_processes: Rc<LiveProcesses>,
    /// The debuginfod servers. None if the user did not allow requests.
    pub(crate) debuginfod: Option<Rc<Debuginfod>>,
    /// The number of threads that share the memory bound of open images.
    pub(crate) sharers: usize,
}

/// The file that was executed.
pub(super) struct ExecutedFile {
    pub(super) file: ElfFile,
    /// True if it is of another build than the recorded one.
    is_other_build: bool,
}

/// The files of one image.
pub(super) struct ImageFiles {
    pub(super) executed: Result<ExecutedFile, Failure>,
    /// The files with its debug information, in the order they were found.
    pub(super) debug: Vec<ElfFile>,
    /// The places of the files that its debug information refers to.
    references: ReferencePaths,
}

/// The places of the files that an image's debug information refers to.
#[derive(Clone)]
pub(super) struct ReferencePaths {
    pub(super) search_paths: SearchPaths,
    /// Paths in the directories to search: the recorded one, and those of the found files.
    pub(super) beside: Vec<PathBuf>,
}

/// The files that were tried and refused.
#[derive(Default)]
struct Refused {
    /// The most informative reason.
    failure: Option<Failure>,
    /// The first file of another build.
    other_build: Option<ElfFile>,
}

impl Finder {
    /// Creates a finder that searches these paths only: no processes, no servers.
    pub(crate) fn new(search_paths: SearchPaths, detail: Detail) -> Self {
        let live_processes = Rc::default();
        Self {
            search_paths,
            detail,
            allow_mismatch: false,
            live_processes,
            debuginfod: None,
            sharers: 1,
        }
    }

    /// Finds and opens a recorded ELF image.
    ///
    /// # Errors
    ///
    /// If no file of it has symbols or debug information.
    pub(crate) fn open(
        &self,
        recorded: &RecordedImage,
        log: &SearchLog,
    ) -> Result<OpenedImage, Failure> {
        self.combine(self.files(recorded, log), log)
    }

    /// Returns the whole search for an image, a line for each file: also for those that are opened
    /// only when a frame needs them.
    pub(crate) fn explain(&self, recorded: &RecordedImage) -> SearchLog {
        let log = SearchLog::default();
        let files = self.files(recorded, &log);
        let executed = files.executed.iter().map(|executed| &executed.file);
        // The search itself may open fewer files; this lists those that a frame would open.
        let mut all = executed.chain(&files.debug);
        if let Some(main) = all.find(|file| file.headers.has_dwarf()) {
            let split = self.split_files(main, &files.references, &log);
            split.find_supplementary();
            // Only skeletons of split units refer to addresses by their index in .debug_addr.
            if main.headers.section(b".debug_addr").is_some() {
                split.find_package();
            }
        }
        // A failure is in the log, too.
        let _ = self.combine(files, &log);
        log
    }

    /// Finds the files of an image.
    pub(super) fn files(&self, recorded: &RecordedImage, log: &SearchLog) -> ImageFiles {
        let executed = self.executed_file(recorded, log);
        let file = executed.as_ref().ok().map(|executed| &executed.file);
        let mut search_paths = self.search_paths.clone();
        // The debug files of a program in a container may be in the container, too.
        let container_root = file.and_then(|file| process_root(&file.path));
        search_paths.symfs = search_paths.symfs.or(container_root);
        let debug = self.debug_files(recorded, file, &search_paths, log);
        let beside = beside(recorded, &search_paths, file.into_iter().chain(&debug));
        ImageFiles { executed, debug, references: ReferencePaths { search_paths, beside } }
    }

    /// Finds the file that was executed.
    fn executed_file(
        &self,
        recorded: &RecordedImage,
        log: &SearchLog,
    ) -> Result<ExecutedFile, Failure> {
        let mut refused = Refused::default();
        let has_id = !recorded.build_id.is_empty();
        let sources = if has_id { &IMAGE_SOURCES[..] } else { &SOURCES_WITHOUT_ID };
        for &source in sources {
            for path in self.image_paths(source, recorded, log) {
                if let Some(file) = self.try_executed(source, &path, recorded, log, &mut refused) {
                    return Ok(ExecutedFile { file, is_other_build: false });
                }
            }
        }
        // Only after all sources: a file of the right build is always better.
        if let Some(file) = refused.other_build.filter(|_| self.allow_mismatch) {
            log.tried(&file.path, "is used although it is of another build");
            return Ok(ExecutedFile { file, is_other_build: true });
        }
        let reason = "its path is not absolute".to_owned();
        Err(refused.failure.unwrap_or(Failure { status: Status::NoImage, reason }))
    }

    /// Returns the paths of one step of the search.
    fn image_paths(
        &self,
        source: ImageSource,
        recorded: &RecordedImage,
        log: &SearchLog,
    ) -> Vec<PathBuf> {
        match source {
            ImageSource::Copy => self.search_paths.by_copy_key(&recorded.copy_key),
            ImageSource::RecordedPath => {
                self.search_paths.recorded(&recorded.path).into_iter().collect()
            }
            ImageSource::LiveProcesses => self.paths_in_processes(recorded),
            ImageSource::BuildIdDirectories => {
                let mut paths = self.search_paths.by_build_id(&recorded.build_id, "");
                paths.extend(self.search_paths.copies(&recorded.build_id, "elf"));
                paths
            }
            ImageSource::Debuginfod => {
                let fetched = self.fetch(&recorded.build_id, ArtifactKind::Executable, log);
                fetched.into_iter().collect()
            }
        }
    }

    /// Opens a file if it is the image; otherwise notes the reason in `refused`.
    fn try_executed(
        &self,
        source: ImageSource,
        path: &Path,
        recorded: &RecordedImage,
        log: &SearchLog,
        refused: &mut Refused,
    ) -> Option<ElfFile> {
        let file = match ElfFile::open(path) {
            Ok(file) => file,
            Err(failure) => {
                log.tried(path, &failure.reason);
                refused.note(path, failure, None);
                return None;
            }
        };
        let is_copy = self.search_paths.symfs.is_some();
        let checked = match &*recorded.build_id {
            // Its key identifies it.
            [] if matches!(source, ImageSource::Copy) => Ok(()),
            [] => identity::is_unchanged(&file, &recorded.load, recorded.seen_ns, is_copy),
            build_id => identity::has_build_id(&file, build_id),
        };
        match checked {
            Ok(()) => {
                log.tried(path, format!("is the image: {}", file.description()));
                Some(file)
            }
            Err(failure) => {
                log.tried(path, &failure.reason);
                refused.note(path, failure, Some(file));
                None
            }
        }
    }

    /// Returns the paths of an image in running processes of the recording.
    fn paths_in_processes(&self, recorded: &RecordedImage) -> Vec<PathBuf> {
        // A process ID may belong to another program by now; a build ID or the segments show that.
        let is_known = !recorded.build_id.is_empty() || !recorded.load.is_empty();
        if !is_known || self.search_paths.symfs.is_some() {
            return Vec::new();
        }
        let under = |root: PathBuf| {
            SearchPaths { debug_dirs: Vec::new(), symfs: Some(root) }.recorded(&recorded.path)
        };
        let mut paths: Vec<PathBuf> =
            self.live_processes.roots().into_iter().filter_map(under).collect();
        paths.extend(self.live_processes.mapped(&recorded.path));
        paths
    }

    /// Fetches a file from the servers, if the user allowed requests.
    pub(super) fn fetch(
        &self,
        build_id: &[u8],
        kind: ArtifactKind,
        log: &SearchLog,
    ) -> Option<PathBuf> {
        self.debuginfod.as_ref()?.fetch(build_id, kind, log)
    }

    /// Fetches the files that an image lacks on this system, before it is opened.
    pub(crate) fn prefetch(&self, recorded: &RecordedImage) {
        if recorded.kind == ImageKind::Elf && !recorded.build_id.is_empty() {
            self.files(recorded, &SearchLog::default());
        }
    }

    /// Finds the files with the image's debug information, in the order they are tried.
    fn debug_files(
        &self,
        recorded: &RecordedImage,
        image: Option<&ElfFile>,
        search_paths: &SearchPaths,
        log: &SearchLog,
    ) -> Vec<ElfFile> {
        // With --allow-mismatch the debug file must match the file in use, not the recorded one.
        let build_id = image.map_or(&*recorded.build_id, |image| &image.headers.build_id);
        let mut files = Vec::new();
        if has_any(image, &files, Headers::has_dwarf)
            || (self.detail.is_symbols_only() && has_any(image, &files, Headers::has_symbols))
        {
            return files;
        }
        for path in search_paths.by_build_id(build_id, ".debug") {
            let checked = |file: &ElfFile| identity::has_build_id(file, build_id);
            try_debug_file(&mut files, log, &path, checked);
        }
        if !has_any(image, &files, Headers::has_dwarf)
            && let Some(image) = image
            && let Some(link) = &image.headers.debug_link
        {
            // The link is relative to the installed path, which may differ from where the image was found.
            let beside = beside(recorded, search_paths, [image]);
            for path in beside.iter().flat_map(|image| search_paths.by_link(image, &link.name)) {
                let checked = |file: &ElfFile| identity::is_linked(file, build_id, link.crc);
                try_debug_file(&mut files, log, &path, checked);
            }
        }
        if !has_any(image, &files, Headers::has_dwarf)
            && let Some(path) = self.fetch(build_id, ArtifactKind::DebugInfo, log)
        {
            // The client has checked its build ID.
            try_debug_file(&mut files, log, &path, |_| Ok(()));
        }
        if !has_any(image, &files, Headers::has_symbols) {
            files.extend(image.and_then(|image| contents::debug_data(image, log)));
        }
        files
    }

    /// Combines the best part of each file: DWARF before a symbol table before exported symbols.
    pub(super) fn combine(
        &self,
        files: ImageFiles,
        log: &SearchLog,
    ) -> Result<OpenedImage, Failure> {
        let ImageFiles { executed, debug: mut files, references } = files;
        let code: ImageCode = match &executed {
            Ok(ExecutedFile { is_other_build: true, .. }) => {
                Err("the file is of another build".to_owned())
            }
            Ok(ExecutedFile { file, .. }) => Ok(Box::new(file.bytes())),
            Err(failure) => Err(failure.reason.clone()),
        };
        let (headers, is_other_build) = match executed {
            Ok(ExecutedFile { file, is_other_build }) => {
                // The image is first: its own symbols and DWARF are preferred.
                files.insert(0, file);
                (Rc::clone(&files[0].headers), is_other_build)
            }
            Err(failure) => {
                // The segments of a debug file map offsets of the missing image to addresses.
                let Some(file) = files.iter().find(|file| has_segment_sizes(&file.headers)) else {
                    return Err(failure);
                };
                log.tried(&file.path, "is used in place of the image");
                (Rc::clone(&file.headers), false)
            }
        };
        let has_symbols = files.iter().any(|file| file.headers.has_symbols());
        let dwarf = if self.detail.reads_debug_info(has_symbols) {
            self.dwarf(&files, &references, log)
        } else {
            Err(None)
        };
        // Ranges of the unwind table replace the sizes that a full symbol table has.
        let function_ranges = if has_symbols {
            FunctionRanges::default()
        } else {
            contents::function_ranges(&files, log)
        };
        let symbols = contents::symbols(&files, &function_ranges, log);
        // The symbol table suffices for functions.
        let is_go_of_use = dwarf.is_err() && !(has_symbols && self.detail.is_symbols_only());
        let go = files.first().filter(|_| is_go_of_use);
        let go = go.and_then(|file| contents::go_table(file, log));
        if dwarf.is_err() && go.is_none() {
            log.note("no DWARF: no inlined calls, no lines");
        }
        let headers = (*headers).clone();
        let image = ElfImage { headers, symbols, dwarf, function_ranges, go, code };
        Ok(OpenedImage { image: OpenImage::Elf(Box::new(image)), is_other_build })
    }

    /// Opens the first debug information that can be read.
    ///
    /// # Errors
    ///
    /// If none can be read: the fault of the first, None if there is no debug information.
    pub(super) fn dwarf(
        &self,
        files: &[ElfFile],
        references: &ReferencePaths,
        log: &SearchLog,
    ) -> Result<Dwarf, Option<DwarfError>> {
        let mut fault = None;
        for file in files.iter().filter(|file| file.headers.has_dwarf()) {
            let split = self.split_files(file, references, log);
            // Threads that share an image share the memory bound.
            match Dwarf::load(Box::new(split), ROOM_BYTES / self.sharers) {
                Ok(dwarf) => {
                    log.tried(&file.path, "inlined calls, files and lines from DWARF");
                    return Ok(dwarf);
                }
                Err(error) => {
                    log.tried(&file.path, format!("DWARF: {error}"));
                    // The first file is the best candidate, so that its fault is the one to report.
                    fault.get_or_insert(error);
                }
            }
        }
        Err(fault)
    }

    fn split_files(
        &self,
        main: &ElfFile,
        references: &ReferencePaths,
        log: &SearchLog,
    ) -> SplitFiles {
        SplitFiles {
            main: main.clone(),
            beside: references.beside.clone(),
            search_paths: references.search_paths.clone(),
            debuginfod: self.debuginfod.clone(),
            log: log.clone(),
            missing: Cell::default(),
        }
    }
}

impl Refused {
    /// Notes a refused file, which is an ELF file if there is a `file`.
    fn note(&mut self, path: &Path, failure: Failure, file: Option<ElfFile>) {
        let Failure { status, reason } = failure;
        if self.other_build.is_none() && status == Status::Mismatch {
            self.other_build = file;
        }
        // A file that is wrong is more informative than one that does not exist.
        let is_better = match &self.failure {
            None => true,
            Some(first) => first.status == Status::NoImage && status != Status::NoImage,
        };
        if is_better {
            let reason = format!("{}: {reason}", path.display());
            self.failure = Some(Failure { status, reason });
        }
    }
}

/// True if the image or one of its debug files satisfies `predicate`.
fn has_any(image: Option<&ElfFile>, files: &[ElfFile], predicate: fn(&Headers) -> bool) -> bool {
    image.into_iter().chain(files).any(|file| predicate(&file.headers))
}

/// Returns the paths in the directories to search for other files of an image: those of its files,
/// and the recorded one.
fn beside<'f>(
    recorded: &RecordedImage,
    search_paths: &SearchPaths,
    files: impl IntoIterator<Item = &'f ElfFile>,
) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = files.into_iter().map(|file| file.path.clone()).collect();
    // A file found by its build ID or in a process is elsewhere.
    let recorded = search_paths.recorded(&recorded.path).filter(|path| !paths.contains(path));
    paths.extend(recorded);
    paths
}

/// Tries a debug file, and adds it to `files` if `check` accepts it.
fn try_debug_file(
    files: &mut Vec<ElfFile>,
    log: &SearchLog,
    path: &Path,
    check: impl FnOnce(&ElfFile) -> Result<(), Failure>,
) {
    let opened = ElfFile::open(path);
    match opened.and_then(|file| check(&file).map(|()| file)) {
        Ok(file) => {
            log.tried(path, format!("is a debug file of the image: {}", file.description()));
            files.push(file);
        }
        Err(failure) => log.tried(path, failure.reason),
    }
}

/// Returns the root of the process through which a file was found, `/proc/PID/root`.
fn process_root(path: &Path) -> Option<PathBuf> {
    let root: PathBuf = path.components().take(4).collect();
    let is_root = root.starts_with("/proc") && root.ends_with("root");
    is_root.then_some(root)
}

/// True if the headers of a debug file still have the sizes of the image's segments. objcopy(1)
/// sets them to 0, since the segments' bytes are not in the file.
fn has_segment_sizes(headers: &Headers) -> bool {
    headers.segments.iter().any(|segment| segment.executable && segment.size > 0)
}
