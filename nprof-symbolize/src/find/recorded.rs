//! An image as the stream describes it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use nprof_stream::{ImageKind, limits};

use super::elf_file::ElfFile;

/// An image as the stream describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecordedImage {
    /// Its kind.
    pub(crate) kind: ImageKind,
    /// Its build ID, empty if it has none.
    pub(crate) build_id: Box<[u8]>,
    /// Its path, or a name in brackets.
    pub(crate) path: Box<[u8]>,
    /// The first time it was seen, in ns since 1970. None if it has a build ID, or the stream does
    /// not state the time of day.
    pub(crate) seen_ns: Option<u64>,
}

impl RecordedImage {
    /// Describes an ELF file by its path, or one with a build ID, as a recording would. None if
    /// `wanted` is neither.
    pub(crate) fn of(wanted: &OsStr) -> Option<Self> {
        let kind = ImageKind::Elf;
        // A file with a hexadecimal name is a file.
        if let Ok(path) = std::fs::canonicalize(wanted)
            && let Ok(file) = ElfFile::open(&path)
        {
            let build_id = file.headers.build_id[..].into();
            let path = path.as_os_str().as_bytes().into();
            return Some(Self { kind, build_id, path, seen_ns: None });
        }
        let build_id = parse_hex(wanted.to_str()?)?;
        let is_build_id = (2..=limits::BUILD_ID).contains(&build_id.len());
        is_build_id.then(|| Self { kind, build_id, path: Box::default(), seen_ns: None })
    }
}

/// Parses hexadecimal digits, two for each byte. None if there are others, or an odd number.
fn parse_hex(digits: &str) -> Option<Box<[u8]>> {
    // Also excludes a sign, which from_str_radix accepts.
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}
