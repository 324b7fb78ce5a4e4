//! Reads files while they grow. A limited number is held open, because they may be removed before
//! they have been read to their end.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;

/// The most files held open. Others are opened again for each poll, or not read.
const FILES_MAX: usize = 64;

/// The bytes of a file read at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// The most bytes of a file read in one poll; the rest is left for the next.
const MAX_BYTES_PER_POLL: usize = 8 << 20;

/// The most bytes of all files read in one drain of the rings; the rest is left for the next.
const MAX_BYTES_PER_DRAIN: usize = 4 * MAX_BYTES_PER_POLL;

/// The most bytes of the files of all ended processes read in one drain. No later drain reads the rest:
/// the files may be removed by then. The names of all processes have the same limit.
const MAX_BYTES_AT_ENDS: usize = 256 << 20;

/// The limits of all growing files: open files, and bytes read in one drain.
#[derive(Clone, Debug)]
pub(crate) struct OpenFileBudget {
    held: Rc<Cell<usize>>,
    /// The bytes that may still be read in this drain.
    left_bytes: Rc<Cell<usize>>,
    /// The same for files of processes that end.
    left_bytes_at_ends: Rc<Cell<usize>>,
}

/// A file held open.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) file: File,
    files: OpenFileBudget,
}

impl Default for OpenFileBudget {
    fn default() -> Self {
        Self {
            held: Rc::default(),
            left_bytes: Rc::new(Cell::new(MAX_BYTES_PER_DRAIN)),
            left_bytes_at_ends: Rc::new(Cell::new(MAX_BYTES_AT_ENDS)),
        }
    }
}

impl OpenFileBudget {
    /// Ends a drain of the rings: the next one has the full budget of bytes.
    pub(crate) fn end_drain(&self) {
        self.left_bytes.set(MAX_BYTES_PER_DRAIN);
        self.left_bytes_at_ends.set(MAX_BYTES_AT_ENDS);
    }

    /// Returns the budget for the files of a process that ends.
    pub(crate) fn at_end(&self) -> Self {
        Self { left_bytes: self.left_bytes_at_ends.clone(), ..self.clone() }
    }

    /// Counts a file as held open until it is dropped. None if there are too many.
    pub(crate) fn hold(&self, file: File) -> Option<Rc<Held>> {
        (self.held.get() < FILES_MAX).then(|| {
            self.held.set(self.held.get() + 1);
            Rc::new(Held { file, files: self.clone() })
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.files.held.set(self.files.held.get().saturating_sub(1));
    }
}

/// A growing file, the position to which it was read, and the state of its reader.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowingFile<T> {
    held: Option<Rc<Held>>,
    inode: u64,
    position: u64,
    state: T,
}

impl<T: Default> GrowingFile<T> {
    /// Holds an open file. None if there are too many.
    pub(crate) fn hold(file: File, files: &OpenFileBudget) -> Option<Self> {
        let inode = file.metadata().ok()?.ino();
        Some(Self { held: Some(files.hold(file)?), inode, ..Self::default() })
    }

    /// Returns the inode of the file.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns the position to which it was read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Reads bytes at a position of the held file. None if no file is held, or it ends before.
    pub(crate) fn bytes_at(&self, position: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = read_at(&self.held.as_ref()?.file, &mut bytes, position).ok()?;
        (read == length).then_some(bytes)
    }

    /// Reads the new part of the held file, or of one that `open` opens, which is then held if the
    /// budget permits. `open` gets the inode of the held file, and returns another file that has its
    /// name now; the rest of the held file is read before that.
    ///
    /// Passes each chunk to `take`, with the number of bytes from its start to the end of the file,
    /// and the state; `take` returns the number of bytes it has consumed. A file that was replaced
    /// or truncated is read from its start.
    pub(crate) fn read(
        &mut self,
        files: &OpenFileBudget,
        open: impl FnOnce(Option<u64>) -> Option<File>,
        mut take: impl FnMut(&[u8], u64, &mut T) -> u64,
    ) {
        let held = self.held.clone();
        let opened = open(held.as_ref().map(|_| self.inode));
        if let Some(held) = held {
            self.read_new(files, &held.file, &mut take);
        }
        let Some(file) = opened else { return };
        // Before the new file is held, since it takes the place of the old one.
        self.held = None;
        self.read_new(files, &file, take);
        self.held = files.hold(file);
    }

    fn read_new(
        &mut self,
        files: &OpenFileBudget,
        file: &File,
        mut take: impl FnMut(&[u8], u64, &mut T) -> u64,
    ) {
        let Ok(metadata) = file.metadata() else { return };
        let size = metadata.len();
        // The name has another file now, or the file was truncated: start again.
        if metadata.ino() != self.inode || size < self.position {
            let (held, inode) = (self.held.take(), metadata.ino());
            *self = Self { held, inode, ..Self::default() };
        }
        // The process may write as fast as this reads, and a sparse file may have any size.
        let mut left = MAX_BYTES_PER_POLL.min(files.left_bytes.get());
        while self.position < size && left > 0 {
            let available = size - self.position;
            let mut chunk =
                vec![0; usize::try_from(available).map_or(CHUNK_BYTES, |a| a.min(CHUNK_BYTES))];
            let Ok(length) = read_at(file, &mut chunk, self.position) else { return };
            files.left_bytes.set(files.left_bytes.get().saturating_sub(length));
            let used = take(&chunk[..length], available, &mut self.state);
            // An incomplete entry at the end of the file.
            if used == 0 {
                return;
            }
            self.position = self.position.saturating_add(used);
            left = left.saturating_sub(length);
        }
    }
}

/// Fills a buffer, up to the end of the file. Returns the number of bytes read.
fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64) {
            // The end of the file, for now.
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::jit::perf_map;
    use std::io::Write;

    /// Creates a temporary file.
    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let name = format!("nprof-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        (path, file.expect("a file"))
    }

    #[test]
    fn reads_growing_file_and_restarts_truncated_one() {
        let (path, mut file) = scratch("grows");
        let mut growing = GrowingFile::<bool>::default();
        let mut read = |file: &File| {
            let mut names = Vec::new();
            growing.read_new(&OpenFileBudget::default(), file, |chunk, available, in_line| {
                assert_eq!(available, chunk.len() as u64);
                perf_map::read(chunk, false, in_line, |_, _, name| names.push(name.to_vec())) as u64
            });
            names.concat()
        };
        assert_eq!(read(&file), b"");
        file.write_all(b"1 1 a\n2 1 b\n3 1").expect("written");
        assert_eq!(read(&file), b"ab");
        file.write_all(b" c\n").expect("written");
        assert_eq!((read(&file), read(&file)), (b"c".to_vec(), b"".to_vec()));
        file.set_len(6).expect("cut");
        assert_eq!(read(&file), b"a");
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn reads_rest_of_held_file_and_then_file_that_replaced_it() {
        let (path, mut old) = scratch("old");
        let (new_path, mut new) = scratch("new");
        old.write_all(b"1 1 a\n").expect("written");
        let (mut growing, files) = (GrowingFile::<bool>::default(), OpenFileBudget::default());
        let mut read = |opened: Option<&File>| {
            let mut names = Vec::new();
            let inode = old.metadata().expect("it").ino();
            let open = |held: Option<u64>| {
                assert!(held.is_none_or(|held| held == inode));
                opened.map(|file| file.try_clone().expect("a copy"))
            };
            growing.read(&files, open, |chunk, _, in_line| {
                perf_map::read(chunk, false, in_line, |_, _, name| names.push(name.to_vec())) as u64
            });
            names.concat()
        };
        assert_eq!(read(Some(&old)), b"a");
        assert_eq!(read(None), b"");
        (&old).write_all(b"2 1 b\n").expect("written");
        new.write_all(b"3 1 c\n").expect("written");
        assert_eq!(read(Some(&new)), b"bc");
        assert_eq!(files.held.get(), 1);
        for path in [path, new_path] {
            std::fs::remove_file(path).expect("removed");
        }
    }

    #[test]
    fn one_poll_of_endless_file_is_bounded() {
        let (path, file) = scratch("endless");
        file.set_len(1 << 40).expect("a hole");
        let mut growing = GrowingFile::<bool>::default();
        for poll in 1..=2 {
            growing.read_new(&OpenFileBudget::default(), &file, |chunk, _, in_line| {
                perf_map::read(chunk, true, in_line, |_, _, _| panic!("no lines")) as u64
            });
            assert_eq!(growing.position, poll * MAX_BYTES_PER_POLL as u64);
        }
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn one_drain_of_endless_files_is_bounded() {
        let (path, file) = scratch("many");
        file.set_len(1 << 40).expect("a hole");
        let files = OpenFileBudget::default();
        let poll = |files: &OpenFileBudget| {
            let mut read = 0;
            GrowingFile::<()>::default().read_new(files, &file, |chunk, _, ()| {
                read += chunk.len();
                chunk.len() as u64
            });
            read
        };
        assert_eq!((0..10).map(|_| poll(&files)).sum::<usize>(), MAX_BYTES_PER_DRAIN);
        assert_eq!(poll(&files.at_end()), MAX_BYTES_PER_POLL);
        files.end_drain();
        assert_eq!(poll(&files), MAX_BYTES_PER_POLL);
        let ends = files.at_end();
        assert_eq!((0..100).map(|_| poll(&ends)).sum::<usize>(), MAX_BYTES_AT_ENDS);
        assert_eq!((poll(&files.at_end()), poll(&files)), (0, MAX_BYTES_PER_POLL));
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn number_of_held_files_is_bounded() {
        let files = OpenFileBudget::default();
        let open = || File::open("/dev/null").expect("exists");
        let mut held: Vec<_> = (0..FILES_MAX).map(|_| files.hold(open()).expect("room")).collect();
        assert!(files.hold(open()).is_none());
        held.pop();
        assert!(files.hold(open()).is_some());
        held.clear();
        assert_eq!(files.held.get(), 0);
    }
}
