//! What the engine takes: the sections of the files an image's debug information is spread over,
//! read on demand. Finding and opening those files is the work of `images`.
//!
//! Nothing is read before it is asked for, and nothing but a packed section is held: a file of a
//! gigabyte costs the pages of it that name something.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The bytes of one section, wherever they are. A clone shares them.
#[derive(Clone, Debug)]
pub(crate) enum Section {
    /// A part of a file, which is read where it is needed. Whoever makes one has seen that the
    /// file is that long; should it be cut later, reading fails.
    File {
        /// The file.
        file: Rc<File>,
        /// Where the section begins in it.
        start: u64,
        /// How many bytes it has.
        size: u64,
    },
    /// Bytes in memory: what was packed in the file, unpacked once.
    Memory(Rc<Vec<u8>>),
}

impl Default for Section {
    /// A section without bytes, which is as good as none.
    fn default() -> Self {
        Self::Memory(Rc::default())
    }
}

impl Section {
    /// How many bytes it has.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// The `length` bytes at `offset`; fewer where the section ends before that.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or was cut since it was opened.
    pub(crate) fn read(&self, offset: u64, length: u64) -> io::Result<Cow<'_, [u8]>> {
        let begin = offset.min(self.len());
        let end = offset.saturating_add(length).min(self.len());
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(&bytes[begin as usize..end as usize])),
            Self::File { file, start, .. } => {
                let mut bytes = vec![0; (end - begin) as usize];
                file.read_exact_at(&mut bytes, start.saturating_add(begin))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// The part of it that begins at `offset`; shorter where the section ends before that.
    pub(crate) fn part(&self, offset: u64, length: u64) -> Self {
        let begin = offset.min(self.len());
        let end = offset.saturating_add(length).min(self.len());
        match self {
            Self::Memory(bytes) => {
                Self::Memory(bytes[begin as usize..end as usize].to_vec().into())
            }
            Self::File { file, start, .. } => Self::File {
                file: Rc::clone(file),
                start: start.saturating_add(begin),
                size: end - begin,
            },
        }
    }

    /// How much memory it holds, bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::File { .. } => 0,
            Self::Memory(bytes) => bytes.len(),
        }
    }
}

/// A file that holds debug information.
pub(crate) trait DebugFile {
    /// The order of its bytes.
    fn is_little_endian(&self) -> bool;

    /// The section of a name, as `.debug_info` or `.debug_info.dwo`; empty when there is none.
    /// The engine asks for each name once at most, when it first needs it: the place to find the
    /// older `.zdebug_*` in its stead, and to unpack.
    ///
    /// # Errors
    ///
    /// When the section is there and cannot be had: outside of the file, packed in an unknown
    /// way, too large.
    fn section(&self, name: &str) -> anyhow::Result<Section>;
}

/// Where a unit went that was split off when it was compiled: what its skeleton says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitUnit {
    /// The path of the `.dwo` file, relative to `directory` unless it is absolute.
    pub(crate) name: Vec<u8>,
    /// The directory of the compilation.
    pub(crate) directory: Vec<u8>,
    /// What skeleton and split unit have in common.
    pub(crate) id: u64,
}

/// The files an image's debug information is spread over.
pub(crate) trait DebugFiles {
    /// The file with the debug information of the whole image. The engine asks once.
    fn main(&self) -> Box<dyn DebugFile>;

    /// The file that several files share (`dwz`, `.gnu_debugaltlink`, `.debug_sup`). The engine
    /// asks once, at the first reference to it. `None` when there is none, or not the right one.
    fn supplementary(&self) -> Option<Box<dyn DebugFile>>;

    /// The package of all split units (`.dwp`). The engine asks once, at the first skeleton.
    fn package(&self) -> Option<Box<dyn DebugFile>>;

    /// The file of one split unit (`.dwo`), asked for when it is not in the package. Whether its
    /// unit is the one that is wanted is seen by the engine, which compares the `id`.
    fn split(&self, wanted: &SplitUnit) -> Option<Box<dyn DebugFile>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_where_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = Rc::new(File::open(&path).unwrap());
        let in_file = Section::File { file, start: 2, size: 6 };
        let in_memory = Section::Memory(Rc::new(b"234567".to_vec()));
        for section in [in_file.clone(), in_memory] {
            assert_eq!(section.len(), 6);
            assert_eq!(&*section.read(0, 3).unwrap(), b"234");
            assert_eq!(&*section.read(4, 100).unwrap(), b"67");
            assert_eq!(&*section.read(6, 1).unwrap(), b"");
            assert_eq!(&*section.read(u64::MAX, u64::MAX).unwrap(), b"");
            let part = section.part(1, 3);
            assert_eq!((part.len(), &*part.read(1, 9).unwrap()), (3, &b"45"[..]));
            assert_eq!(section.part(4, 9).len(), 2);
        }
        std::fs::write(&path, b"0123").unwrap();
        assert!(in_file.read(0, 6).is_err());
    }
}
