//! An open ELF file: its headers, and its sections, read on demand.

use std::fs::File;
use std::io::{Cursor, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use nprof_stream::Status;
use object::{Endianness, ReadCache, elf};

use super::decompress;
use super::failure::Failure;
use crate::dwarf::{DebugFile, Section as Bytes, UNIT_HEADER, is_type_unit};
use crate::elf::headers::{Compression, Headers, Section};
use nprof_stream::number::hex;

/// The section with the units of a `.dwo` file.
const UNITS_OF_DWO: &str = ".debug_info.dwo";

/// An ELF file. A clone shares it.
#[derive(Clone)]
pub(crate) struct ElfFile {
    /// Its path, or that of the file it was extracted from.
    pub(crate) path: PathBuf,
    /// Its headers.
    pub(crate) headers: Rc<Headers>,
    contents: Contents,
}

#[derive(Clone)]
enum Contents {
    /// A file of this many bytes.
    File(Rc<File>, u64),
    Memory(Rc<[u8]>),
}

/// A reader that can seek.
pub(crate) trait Seekable: Read + Seek {}
impl<T: Read + Seek> Seekable for T {}

/// The times of a file's last changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeTimes {
    /// The modification time of its bytes, which copying may keep.
    pub(crate) bytes: SystemTime,
    /// The time its inode changed, which no program can set.
    pub(crate) inode: SystemTime,
}

impl ElfFile {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If it does not exist, or is no regular file or no ELF file.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        // Checked first: opening a pipe blocks, and opening a device may have side effects.
        let metadata = std::fs::metadata(path).map_err(|error| absent(&error))?;
        if !metadata.is_file() {
            return Err(unreadable("not a regular file"));
        }
        let file = File::open(path).map_err(|error| absent(&error))?;
        Self::new(path, Contents::File(Rc::new(file), metadata.len()))
    }

    /// Opens a file in memory.
    ///
    /// # Errors
    ///
    /// If it is no ELF file.
    pub(crate) fn of_bytes(path: &Path, bytes: Rc<[u8]>) -> Result<Self, Failure> {
        Self::new(path, Contents::Memory(bytes))
    }

    fn new(path: &Path, contents: Contents) -> Result<Self, Failure> {
        let headers = Headers::read(&contents.data());
        let headers = headers.map_err(|error| unreadable(format!("{error:#}")))?;
        Ok(Self { path: path.to_owned(), headers: Rc::new(headers), contents })
    }

    /// Returns its bytes, for a parser.
    pub(crate) fn data(&self) -> ReadCache<Box<dyn Seekable + '_>> {
        self.contents.data()
    }

    /// Returns its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match &self.contents {
            Contents::File(_, size) => *size,
            Contents::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the times of its last changes. None for a file in memory.
    pub(crate) fn changed(&self) -> Option<ChangeTimes> {
        use std::os::unix::fs::MetadataExt;
        let Contents::File(file, _) = &self.contents else { return None };
        let metadata = file.metadata().ok()?;
        // Times before 1970 count as unknown.
        let seconds = u64::try_from(metadata.ctime()).ok()?;
        let since = std::time::Duration::new(seconds, u32::try_from(metadata.ctime_nsec()).ok()?);
        let inode = SystemTime::UNIX_EPOCH + since;
        Some(ChangeTimes { bytes: metadata.modified().ok()?, inode })
    }

    /// Computes the CRC-32 of the whole file, as `.gnu_debuglink` states it.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub(crate) fn checksum(&self) -> std::io::Result<u32> {
        let mut from = self.contents.reader();
        // The file is shared, and parsers move its position.
        from.rewind()?;
        let mut hasher = crc32fast::Hasher::new();
        // Read in pieces: debug files have gigabytes.
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer)? {
                0 => return Ok(hasher.finalize()),
                count => hasher.update(&buffer[..count]),
            }
        }
    }

    /// Returns all of its bytes, read on demand.
    pub(crate) fn bytes(&self) -> Bytes {
        match &self.contents {
            Contents::File(file, size) => {
                Bytes::File { file: Rc::clone(file), start: 0, size: *size }
            }
            Contents::Memory(bytes) => Bytes::Memory(bytes.to_vec().into()),
        }
    }

    /// Returns the bytes of a section: decompressed in memory if they are compressed, else read on
    /// demand.
    ///
    /// # Errors
    ///
    /// If they lie outside of the file, or cannot be decompressed.
    pub(crate) fn contents(&self, section: &Section) -> anyhow::Result<Bytes> {
        let start = section.offset.unwrap_or_default();
        // A hostile header may overflow.
        let end = start.checked_add(section.size).context("it lies outside of the file")?;
        ensure!(end <= self.size(), "it lies outside of the file");
        let bytes = match &self.contents {
            Contents::File(file, _) => {
                Bytes::File { file: Rc::clone(file), start, size: section.size }
            }
            Contents::Memory(bytes) => {
                Bytes::Memory(bytes[start as usize..end as usize].to_vec().into())
            }
        };
        if section.compression == Compression::None {
            return Ok(bytes);
        }
        let compressed = bytes.read(0, bytes.len())?;
        Ok(Bytes::Memory(decompress::section(&compressed, section.compression)?.into()))
    }

    /// Reads a whole section of at most `max_bytes`. Empty if there is none or it cannot be read.
    pub(crate) fn whole(&self, name: &[u8], max_bytes: u64) -> Vec<u8> {
        let section = self.headers.section(name).filter(|section| section.size <= max_bytes);
        let bytes = section.and_then(|section| self.contents(section).ok());
        let bytes = bytes.and_then(|bytes| Some(bytes.read(0, bytes.len()).ok()?.into_owned()));
        bytes.unwrap_or_default()
    }

    /// Describes the file for the log: its identity and its useful contents.
    pub(crate) fn description(&self) -> String {
        let headers = &self.headers;
        let has = |name: &[u8]| headers.section(name).is_some_and(|section| section.size > 0);
        let dwarf = headers.dwarf_size();
        let mut parts = vec![size(self.size())];
        parts.push(match &headers.build_id[..] {
            [] => "no build ID".to_owned(),
            id => format!("build ID {}", hex(id)),
        });
        if dwarf > 0 {
            let split = if has(b".debug_info.dwo") { "split DWARF" } else { "DWARF" };
            let is_compressed = headers.sections.iter().any(|s| s.compression != Compression::None);
            let suffix = if is_compressed { ", compressed" } else { "" };
            parts.push(format!("{split} ({}{suffix})", size(dwarf)));
        }
        if has(b".gnu_debugaltlink") || has(b".debug_sup") {
            parts.push("refers to a supplementary file (dwz)".to_owned());
        }
        if headers.has_symbols() {
            parts.push("symbols".to_owned());
        }
        if has(b".gnu_debugdata") {
            parts.push("compressed symbols (.gnu_debugdata)".to_owned());
        }
        if headers.sections.iter().any(|s| s.kind == elf::SHT_DYNSYM.0 && s.offset.is_some()) {
            parts.push("exports".to_owned());
        }
        if has(b".eh_frame") {
            parts.push("unwind table".to_owned());
        }
        if headers.sections.is_empty() {
            parts.push("no sections".to_owned());
        }
        parts.join(", ")
    }
}

impl Contents {
    fn reader(&self) -> Box<dyn Seekable + '_> {
        match self {
            Self::File(file, _) => Box::new(&**file),
            Self::Memory(bytes) => Box::new(Cursor::new(&bytes[..])),
        }
    }

    fn data(&self) -> ReadCache<Box<dyn Seekable + '_>> {
        // Reads the requested ranges, never the whole file.
        ReadCache::new(self.reader())
    }
}

impl ElfFile {
    /// Returns the first section of a name that does not begin with a type unit.
    ///
    /// With `-gdwarf-5 -gsplit-dwarf -fdebug-types-section`, gcc 12 gives each type unit a section
    /// of its own, before the one with the code; binutils 2.40 mark none as member of a group.
    fn section_with_code(&self, name: &str) -> Option<&Section> {
        let mut sections = self.headers.sections.iter();
        let is_little = self.is_little_endian();
        sections.find(|section| {
            let is_named = section.name == name.as_bytes() && section.offset.is_some();
            let bytes = is_named.then(|| self.contents(section).ok()).flatten();
            let head = bytes.as_ref().and_then(|bytes| bytes.read(0, UNIT_HEADER).ok());
            head.is_some_and(|head| !is_type_unit(&head, is_little))
        })
    }
}

impl DebugFile for ElfFile {
    fn is_little_endian(&self) -> bool {
        self.headers.endian == Endianness::Little
    }

    fn section(&self, name: &str) -> anyhow::Result<Bytes> {
        // The older GNU form of compression has section names of its own.
        let old = name.replacen(".debug_", ".zdebug_", 1);
        let mut section = self.headers.section(name.as_bytes());
        if name == UNITS_OF_DWO {
            section = self.section_with_code(name).or(section);
        }
        match section.or_else(|| self.headers.section(old.as_bytes())) {
            Some(section) => self.contents(section),
            None => Ok(Bytes::default()),
        }
    }
}

fn unreadable(reason: impl Into<String>) -> Failure {
    Failure { status: Status::Unreadable, reason: reason.into() }
}

/// Returns the failure for a file that cannot be opened.
fn absent(error: &std::io::Error) -> Failure {
    match error.kind() {
        // The file exists: it must not count as absent.
        ErrorKind::PermissionDenied => unreadable(error.to_string()),
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Failure { status: Status::NoImage, reason: "no such file".to_owned() }
        }
        _ => Failure { status: Status::NoImage, reason: error.to_string() },
    }
}

/// Formats a number of bytes for users.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} KB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}
