//! Copies of images with frames, for symbolizing later (`--keep-images`): the files of containers,
//! chroots and memfds, and deleted files, may be gone by then.
//!
//! Copies are filed by build ID, in the layout of perf's cache (`~/.debug`); a file without one by a
//! hash of its identity. A thread copies, while the rings are drained. No failure ends the
//! recording: each is kept for a message.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use nprof_object::kallsyms;
use nprof_stream::escape::escaped;
use nprof_stream::number::hex;
use rustc_hash::FxHasher;

use crate::image::mapped_file;

/// The largest file that is copied. Programs with debug information have a few GiB at most; a
/// sparse file may claim any size.
const FILE_MAX_BYTES: u64 = 4 << 30;

/// The most bytes that one recording copies.
const TOTAL_MAX_BYTES: u64 = 16 << 30;

/// The most bytes of `/proc/kallsyms`: with all modules it has some 15 MiB.
const KALLSYMS_MAX_BYTES: u64 = 256 << 20;

/// The most files held open that wait for the thread. It opens the others itself: images may come
/// faster than their files are copied, and descriptors are limited.
const WAITING_MAX: usize = 128;

/// The reason of an image without a file.
const NOT_OPENED: &str = "it could not be opened";

/// The most failures that are kept for messages.
const FAILURES_MAX: usize = 8;

/// The key of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyKey {
    /// The build ID of the file.
    BuildId(Vec<u8>),
    /// A hash of the identity of a file without a build ID.
    File(u64),
}

impl CopyKey {
    /// Returns the key of a file.
    pub(crate) fn new(build_id: &[u8], path: &[u8], file: Option<&File>) -> Option<Self> {
        // A directory has the first byte as its name; one byte has no second part.
        if build_id.len() > 1 {
            return Some(Self::BuildId(build_id.to_vec()));
        }
        let metadata = file?.metadata().ok()?;
        let mut hasher = FxHasher::default();
        // Rewriting a file changes its time, replacing it the inode.
        let time = (metadata.mtime(), metadata.mtime_nsec());
        (path, metadata.dev(), metadata.ino(), metadata.len(), time).hash(&mut hasher);
        Some(Self::File(hasher.finish()))
    }

    /// Returns the directory of the copy.
    fn path(&self, directory: &Path) -> PathBuf {
        let (kind, key) = match self {
            Self::BuildId(id) => (".build-id", hex(id)),
            Self::File(id) => (".file-id", hex(&id.to_be_bytes())),
        };
        let (first, rest) = key.split_at(2);
        directory.join(kind).join(first).join(rest)
    }
}

/// An image to copy.
struct Copying {
    /// None if it could not be opened.
    source: Option<Source>,
    key: Option<CopyKey>,
    /// The path, for messages.
    path: Vec<u8>,
}

/// The source of a copy.
enum Source {
    File(File),
    /// A path with the inode of the file.
    Path(PathBuf, u64),
    /// The symbols of the running kernel.
    Kallsyms,
}

/// The copies of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptSummary {
    pub(crate) directory: PathBuf,
    /// The images that are in the directory now.
    pub(crate) images: u64,
    /// The bytes that were copied.
    pub(crate) bytes: u64,
    /// The first failures: path and reason.
    pub(crate) failures: Vec<(Vec<u8>, String)>,
    /// The number of all failures.
    pub(crate) failed: u64,
}

/// The directory of copies, and the thread that makes them.
#[derive(Debug)]
pub(crate) struct KeptImages {
    directory: PathBuf,
    thread: Option<(Sender<Copying>, JoinHandle<KeptSummary>)>,
    /// The number of open files that wait for the thread.
    waiting: Arc<AtomicUsize>,
    /// The images that were not copied because the thread could not be started, with the reason.
    not_started: Vec<(Vec<u8>, String)>,
}

impl KeptImages {
    /// Creates the directory unless it exists.
    ///
    /// # Errors
    ///
    /// If it cannot be created or written.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        create_directory(&directory.join(".build-id"))?;
        // The command may change the current directory of nothing but itself.
        Ok(Self {
            directory: directory.canonicalize()?,
            thread: None,
            waiting: Arc::default(),
            not_started: Vec::new(),
        })
    }

    /// Copies a file in the background, which was opened at a path and has this inode. Without `file`
    /// it could not be opened.
    pub(crate) fn keep(
        &mut self,
        file: Option<File>,
        opened_at: Option<&(PathBuf, u64)>,
        key: Option<CopyKey>,
        path: &[u8],
    ) {
        let source = match (file, opened_at) {
            (Some(_), Some((path, inode))) if self.waiting.load(Relaxed) >= WAITING_MAX => {
                Some(Source::Path(path.clone(), *inode))
            }
            (file, _) => file.map(Source::File),
        };
        if let Some(Source::File(_)) = source {
            self.waiting.fetch_add(1, Relaxed);
        }
        self.send(Copying { source, key, path: path.to_vec() });
    }

    /// Copies the symbols of the running kernel in the background.
    pub(crate) fn keep_kernel(&mut self, build_id: &[u8]) {
        let key = CopyKey::new(build_id, b"", None);
        let path = b"[kernel]".to_vec();
        self.send(Copying { source: Some(Source::Kallsyms), key, path });
    }

    fn send(&mut self, copying: Copying) {
        if self.thread.is_none() {
            // Not before the first image: the command is forked from a process without threads.
            let (sender, receiver) = channel();
            let (directory, waiting) = (self.directory.clone(), self.waiting.clone());
            let copy = move || copy_all(directory, &receiver, &waiting);
            match Builder::new().name("nprof-keep".to_owned()).spawn(copy) {
                Ok(thread) => self.thread = Some((sender, thread)),
                Err(error) => self.not_started.push((copying.path.clone(), error.to_string())),
            }
        }
        if let Some((sender, _)) = &self.thread {
            // The thread lives until the channel is closed.
            let _ = sender.send(copying);
        }
    }

    /// Waits for the last copy.
    pub(crate) fn finish(self) -> KeptSummary {
        let Self { directory, thread, not_started, .. } = self;
        let summary = thread.and_then(|(sender, thread)| {
            drop(sender);
            thread.join().ok()
        });
        let none = || KeptSummary { directory, ..KeptSummary::default() };
        let mut summary = summary.unwrap_or_else(none);
        for (path, reason) in not_started {
            summary.note_failure(path, reason);
        }
        summary
    }
}

impl KeptSummary {
    fn note_failure(&mut self, path: Vec<u8>, reason: String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push((path, reason));
        }
    }
}

/// Copies files until the channel is closed. `waiting` is the number of open files in the channel.
fn copy_all(directory: PathBuf, files: &Receiver<Copying>, waiting: &AtomicUsize) -> KeptSummary {
    let mut summary = KeptSummary { directory, ..KeptSummary::default() };
    while let Ok(Copying { source, key, path }) = files.recv() {
        if let Some(Source::File(_)) = source {
            waiting.fetch_sub(1, Relaxed);
        }
        let Some((source, key)) = source.zip(key) else {
            summary.note_failure(path, NOT_OPENED.to_owned());
            continue;
        };
        // The symbols of the kernel may exceed the limit.
        let left = TOTAL_MAX_BYTES.saturating_sub(summary.bytes);
        let directory = key.path(&summary.directory);
        let copied = match source {
            Source::File(file) => copy(&file, &directory.join("elf"), left),
            Source::Path(path, inode) => match mapped_file::open_same(&path, inode) {
                Some(file) => copy(&file, &directory.join("elf"), left),
                None => Err(io::Error::other(NOT_OPENED)),
            },
            Source::Kallsyms => copy_kallsyms(&directory.join("kallsyms")),
        };
        match copied {
            Ok(bytes) => {
                summary.images += 1;
                summary.bytes += bytes;
            }
            Err(error) => summary.note_failure(path, error.to_string()),
        }
    }
    summary
}

/// Copies a file to `target` unless it is there. Returns the number of copied bytes, of at most
/// `left`.
fn copy(file: &File, target: &Path, left: u64) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let bytes = metadata.len();
    if target.metadata().is_ok_and(|target| target.len() == bytes) {
        return Ok(0);
    }
    if bytes > FILE_MAX_BYTES.min(left) {
        let limit = if bytes > FILE_MAX_BYTES { "4 GiB of one file" } else { "16 GiB in all" };
        return Err(io::Error::other(format!("it exceeds the limit of {limit}")));
    }
    // A file that others may not read stays so; it need not be executable.
    let mode = metadata.mode() & 0o444 | 0o600;
    // std uses copy_file_range(2), which shares the blocks where the file system can.
    write(target, mode, |to| io::copy(&mut file.take(bytes), to))?;
    Ok(bytes)
}

/// Copies the symbols of the running kernel to `target` unless they are there.
fn copy_kallsyms(target: &Path) -> io::Result<u64> {
    if target.exists() {
        return Ok(0);
    }
    let mut text = Vec::new();
    File::open("/proc/kallsyms")?.take(KALLSYMS_MAX_BYTES).read_to_end(&mut text)?;
    if kallsyms::is_hidden(&text) {
        let reason = "/proc/kallsyms shows no addresses; run as root to keep its symbols";
        return Err(io::Error::other(reason));
    }
    // The addresses are hidden from others for a reason: they show where the kernel is.
    write(target, 0o600, |to| to.write_all(&text))?;
    Ok(text.len() as u64)
}

/// Writes a file with a function, so that others see no unfinished one.
fn write<T>(
    target: &Path,
    mode: u32,
    contents: impl FnOnce(&mut File) -> io::Result<T>,
) -> io::Result<()> {
    let parent = target.parent().unwrap_or(target);
    create_directory(parent)?;
    let temporary = target.with_extension(std::process::id().to_string());
    // A recorder that was killed may have left one. A new file, since others may have put a link in
    // its place.
    let _ = std::fs::remove_file(&temporary);
    let to = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary);
    let copied = to.and_then(|mut to| contents(&mut to));
    let result = copied.and_then(|_| std::fs::rename(&temporary, target));
    if result.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&temporary);
    }
    result
}

/// Creates a directory and its parents unless they exist.
fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

impl KeptSummary {
    /// Returns the part of the summary line.
    pub(crate) fn line(&self) -> String {
        let mebibytes = self.bytes as f64 / f64::from(1 << 20);
        let directory = escaped(self.directory.as_os_str().as_bytes());
        let plural = if self.images == 1 { "" } else { "s" };
        format!("kept {} image{plural} ({mebibytes:.1} MiB new) in {directory}", self.images)
    }

    /// Returns a warning for each of the first failures.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let failure =
            |(path, reason): &(Vec<u8>, String)| format!("{} is not kept: {reason}", escaped(path));
        let mut warnings: Vec<String> = self.failures.iter().map(failure).collect();
        let more = self.failed - self.failures.len() as u64;
        if more > 0 {
            warnings.push(format!("{more} more images are not kept"));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn kept(directory: &Path, files: &[(&Path, &[u8])]) -> KeptSummary {
        let mut kept = KeptImages::create(directory).expect("a directory");
        for (path, build_id) in files {
            let file = File::open(path).ok();
            let name = path.as_os_str().as_bytes();
            let key = CopyKey::new(build_id, name, file.as_ref());
            let inode = file.as_ref().map_or(0, |file| file.metadata().expect("known").ino());
            kept.keep(file, Some(&(path.to_path_buf(), inode)), key, name);
        }
        kept.finish()
    }

    #[test]
    fn files_are_kept_once_by_build_id_or_identity() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name| directory.path().join(name);
        fs::write(at("a"), b"first").expect("written");
        fs::write(at("b"), b"second").expect("written");
        let (a, b) = (at("a"), at("b"));
        let files = [(a.as_path(), &[0xab, 0xcd, 0xef][..]), (b.as_path(), &[])];
        let summary = kept(&at("kept"), &files);
        assert_eq!((summary.images, summary.bytes, summary.failed), (2, 11, 0));
        let copy = fs::read(at("kept").join(".build-id/ab/cdef/elf")).expect("a copy");
        assert_eq!(copy, b"first");
        let Some(CopyKey::File(id)) =
            CopyKey::new(&[], b.as_os_str().as_bytes(), File::open(&b).ok().as_ref())
        else {
            panic!("no key")
        };
        let copy = fs::read(CopyKey::File(id).path(&at("kept")).join("elf")).expect("a copy");
        assert_eq!(copy, b"second");
        // A second recording copies nothing again.
        let summary = kept(&at("kept"), &files);
        assert_eq!((summary.images, summary.bytes), (2, 0));
        fs::write(&b, b"changed").expect("written");
        let summary = kept(&at("kept"), &files);
        assert_eq!((summary.images, summary.bytes), (2, 7));
    }

    #[test]
    fn failures_are_named_and_end_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name| directory.path().join(name);
        File::create(at("sparse")).and_then(|file| file.set_len(FILE_MAX_BYTES + 1)).expect("it");
        fs::write(at("good"), b"good").expect("written");
        let (none, sparse, good) = (at("none"), at("sparse"), at("good"));
        let files =
            [(none.as_path(), &[1, 1][..]), (sparse.as_path(), &[2, 2]), (good.as_path(), &[3, 3])];
        let summary = kept(&at("kept"), &files);
        assert_eq!((summary.images, summary.failed), (1, 2));
        let warnings = summary.warnings();
        assert!(warnings[0].ends_with("none is not kept: it could not be opened"), "{warnings:?}");
        assert!(warnings[1].contains("exceeds the limit of 4 GiB"), "{warnings:?}");
        assert!(fs::exists(at("kept").join(".build-id/03/03/elf")).expect("known"));
        // No unfinished copy remains.
        assert!(!fs::exists(at("kept").join(".build-id/02/02")).expect("known"));
    }

    #[test]
    fn waiting_files_need_few_descriptors() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let mut kept = KeptImages::create(&at("kept")).expect("a directory");
        // A thread that copies only after all files are in the channel.
        let (sender, receiver) = channel();
        let (begin, begun) = channel::<()>();
        let (to, waiting) = (kept.directory.clone(), kept.waiting.clone());
        let thread = std::thread::spawn(move || {
            begun.recv().expect("a message");
            copy_all(to, &receiver, &waiting)
        });
        kept.thread = Some((sender, thread));
        for number in 0..WAITING_MAX * 4 {
            let path = at(&number.to_string());
            fs::write(&path, number.to_string()).expect("written");
            let file = File::open(&path).expect("opened");
            let inode = file.metadata().expect("known").ino();
            let key = Some(CopyKey::File(number as u64));
            kept.keep(Some(file), Some(&(path, inode)), key, b"image");
        }
        let links = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
        let links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
        let open = links.filter(|link| link.starts_with(directory.path())).count();
        assert_eq!(open, WAITING_MAX);
        begin.send(()).expect("it runs");
        let waiting = kept.waiting.clone();
        let summary = kept.finish();
        assert_eq!((summary.images, summary.failed), (WAITING_MAX as u64 * 4, 0));
        assert_eq!(waiting.load(Relaxed), 0);
    }

    #[test]
    fn private_file_stays_private() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name| directory.path().join(name);
        fs::write(at("secret"), b"x").expect("written");
        fs::set_permissions(at("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .expect("set");
        let path = at("secret");
        kept(&at("kept"), &[(path.as_path(), &[7, 7, 7])]);
        let copy = at("kept").join(".build-id/07/0707/elf").metadata().expect("a copy");
        assert_eq!(copy.mode() & 0o777, 0o600);
    }
}
