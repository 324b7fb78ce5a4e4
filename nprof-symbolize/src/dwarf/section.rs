//! The input of the engine: sections of the files that an image's debug information is spread
//! over, read on demand. The folder `find` finds and opens those files.
//!
//! Only compressed sections are held in memory: of a file of a gigabyte, the engine reads the
//! pages that an address needs.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The bytes of one section. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Section {
    /// A part of a file. The caller has checked that the file is that long; if it is truncated
    /// later, reading fails, where a memory map would end in SIGBUS.
    File {
        /// The file.
        file: Rc<File>,
        /// The offset of the section in the file.
        start: u64,
        /// The size of the section in bytes.
        size: u64,
    },
    /// Bytes in memory: a section that was compressed in the file.
    Memory(Rc<Vec<u8>>),
}

impl Default for Section {
    /// An empty section, in place of an absent one.
    fn default() -> Self {
        Self::Memory(Rc::default())
    }
}

impl Section {
    /// Returns the size of the section in bytes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Reads `length` bytes at `offset`; fewer where the section ends before that.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or was truncated since it was opened.
    pub(crate) fn read(&self, offset: u64, length: u64) -> io::Result<Cow<'_, [u8]>> {
        let begin = offset.min(self.len());
        let end = offset.saturating_add(length).min(self.len());
        match self {
            Self::Memory(bytes) => Ok(Cow::Borrowed(&bytes[begin as usize..end as usize])),
            Self::File { file, start, .. } => {
                // Fails at the end of a file that was truncated, as it must.
                let mut bytes = vec![0; (end - begin) as usize];
                file.read_exact_at(&mut bytes, start.saturating_add(begin))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Returns the part of the section that begins at `offset`; shorter where the section ends
    /// before it does.
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

    /// Returns the memory that its bytes take.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::File { .. } => 0,
            Self::Memory(bytes) => bytes.len(),
        }
    }
}

/// A file that holds debug information.
pub(crate) trait DebugFile {
    /// True if the least significant byte of a number comes first.
    fn is_little_endian(&self) -> bool;

    /// Returns the section of a name, such as `.debug_info` or `.debug_info.dwo`; empty if there
    /// is none. The engine requests each name at most once, when it first needs it. The
    /// implementation falls back to the older `.zdebug_*`, decompresses, and of several
    /// `.debug_info.dwo` returns the one for which [`is_type_unit`] is false.
    ///
    /// # Errors
    ///
    /// When the section exists but cannot be read: it lies outside of the file, is compressed in
    /// an unknown way, or too large.
    ///
    /// [`is_type_unit`]: super::is_type_unit
    fn section(&self, name: &str) -> anyhow::Result<Section>;
}

/// The file of a unit that was split off when it was compiled, as its skeleton names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitUnit {
    /// The path of the `.dwo` file, relative to `directory` unless it is absolute.
    pub(crate) name: Vec<u8>,
    /// The directory of the compilation.
    pub(crate) directory: Vec<u8>,
    /// The ID that skeleton and split unit share.
    pub(crate) id: u64,
}

/// The files an image's debug information is spread over.
pub(crate) trait DebugFiles {
    /// Opens the file with the debug information of the whole image. Called once.
    fn main(&self) -> Box<dyn DebugFile>;

    /// Opens the supplementary file, which several files share (`dwz`, `.gnu_debugaltlink`,
    /// `.debug_sup`). Called once, at the first reference to it. None if there is none, or only
    /// another one.
    fn supplementary(&self) -> Option<Box<dyn DebugFile>>;

    /// Opens the package of all split units (`.dwp`). Called once, at the first skeleton.
    fn package(&self) -> Option<Box<dyn DebugFile>>;

    /// Opens the file of one split unit (`.dwo`), which is not in the package. The engine itself
    /// compares the `id` of its unit.
    fn split(&self, wanted: &SplitUnit) -> Option<Box<dyn DebugFile>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_end_of_the_section() {
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
