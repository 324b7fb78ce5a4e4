//! OpenFileBudget that are read while they grow. They are held open, for they may be gone before they are
//! read to their end; but only so many of them.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;

/// OpenFileBudget held open at most. What lies beyond that is opened anew for each look, or not read.
const FILES_MAX: usize = 64;

/// How much of a file is read at once, bytes.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// How much of a file is read in one look, bytes; the rest is left for the next.
const MAX_BYTES_PER_POLL: usize = 8 << 20;

/// How much of all files is read in one round of records, bytes; the rest is left for the next.
const MAX_BYTES_PER_DRAIN: usize = 4 * MAX_BYTES_PER_POLL;

/// Counts the files held open, and what is read of all of them.
#[derive(Clone, Debug)]
pub(crate) struct OpenFileBudget {
    held: Rc<Cell<usize>>,
    /// What may still be read in this round, bytes.
    left: Rc<Cell<usize>>,
}

/// A file held open.
#[derive(Debug)]
struct Held {
    file: File,
    files: OpenFileBudget,
}

impl Default for OpenFileBudget {
    fn default() -> Self {
        Self { held: Rc::default(), left: Rc::new(Cell::new(MAX_BYTES_PER_DRAIN)) }
    }
}

impl OpenFileBudget {
    /// A round of records is over.
    pub(crate) fn end_drain(&self) {
        self.left.set(MAX_BYTES_PER_DRAIN);
    }

    fn hold(&self, file: File) -> Option<Rc<Held>> {
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

/// A file that grows, how far it was read, and what its reader has to remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowingFile<T> {
    held: Option<Rc<Held>>,
    inode: u64,
    position: u64,
    state: T,
}

impl<T: Default> GrowingFile<T> {
    /// A file that is open; `None` when there are too many.
    pub(crate) fn of(file: File, files: &OpenFileBudget) -> Option<Self> {
        let inode = file.metadata().ok()?.ino();
        Some(Self { held: Some(files.hold(file)?), inode, ..Self::default() })
    }

    /// The file's inode.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// Reads what is new in the file: in the one that is held, or one opened now, which is held
    /// if there is room. `take` gets a piece of it, how many bytes there are from its beginning
    /// on, and the state; it gives how many of them it used up. A file that became another one,
    /// or shorter, is read from its beginning.
    pub(crate) fn read(
        &mut self,
        files: &OpenFileBudget,
        open: impl FnOnce() -> Option<File>,
        take: impl FnMut(&[u8], u64, &mut T) -> u64,
    ) {
        if let Some(held) = self.held.clone() {
            return self.read_new(files, &held.file, take);
        }
        let Some(file) = open() else { return };
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
        if metadata.ino() != self.inode || size < self.position {
            let (held, inode) = (self.held.take(), metadata.ino());
            *self = Self { held, inode, ..Self::default() };
        }
        let mut left = MAX_BYTES_PER_POLL.min(files.left.get());
        while self.position < size && left > 0 {
            let available = size - self.position;
            let mut piece =
                vec![0; usize::try_from(available).map_or(CHUNK_BYTES, |a| a.min(CHUNK_BYTES))];
            let Ok(length) = read_at(file, &mut piece, self.position) else { return };
            files.left.set(files.left.get().saturating_sub(length));
            let used = take(&piece[..length], available, &mut self.state);
            if used == 0 {
                return;
            }
            self.position = self.position.saturating_add(used);
            left = left.saturating_sub(length);
        }
    }
}

/// Fills a buffer, as far as the file goes.
fn read_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64) {
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

    /// A file of this test's own.
    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let name = format!("nprof-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        (path, file.expect("a file"))
    }

    #[test]
    fn a_file_is_read_as_it_grows_and_anew_when_it_shrinks() {
        let (path, mut file) = scratch("grows");
        let mut growing = GrowingFile::<bool>::default();
        let mut read = |file: &File| {
            let mut names = Vec::new();
            growing.read_new(&OpenFileBudget::default(), file, |piece, available, in_line| {
                assert_eq!(available, piece.len() as u64);
                perf_map::read(piece, false, in_line, |_, _, name| names.push(name.to_vec())) as u64
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
    fn one_look_at_an_endless_file_ends() {
        let (path, file) = scratch("endless");
        file.set_len(1 << 40).expect("a hole");
        let mut growing = GrowingFile::<bool>::default();
        for look in 1..=2 {
            growing.read_new(&OpenFileBudget::default(), &file, |piece, _, in_line| {
                perf_map::read(piece, true, in_line, |_, _, _| panic!("there is none")) as u64
            });
            assert_eq!(growing.position, look * MAX_BYTES_PER_POLL as u64);
        }
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn one_round_of_looks_at_endless_files_ends() {
        let (path, file) = scratch("many");
        file.set_len(1 << 40).expect("a hole");
        let files = OpenFileBudget::default();
        let look = || {
            let mut read = 0;
            GrowingFile::<()>::default().read_new(&files, &file, |piece, _, ()| {
                read += piece.len();
                piece.len() as u64
            });
            read
        };
        assert_eq!((0..10).map(|_| look()).sum::<usize>(), MAX_BYTES_PER_DRAIN);
        files.end_drain();
        assert_eq!(look(), MAX_BYTES_PER_POLL);
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn only_so_many_files_are_held() {
        let files = OpenFileBudget::default();
        let open = || File::open("/dev/null").expect("it is there");
        let mut held: Vec<_> = (0..FILES_MAX).map(|_| files.hold(open()).expect("room")).collect();
        assert!(files.hold(open()).is_none());
        held.pop();
        assert!(files.hold(open()).is_some());
        held.clear();
        assert_eq!(files.held.get(), 0);
    }
}
