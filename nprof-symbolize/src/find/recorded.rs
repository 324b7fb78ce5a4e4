//! An image as the stream describes it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use nprof_stream::{Image, ImageKind, LoadSegment, limits};

use super::elf_file::ElfFile;

/// The size of the key of a copy (nprof-format(5), key `file` of an image).
const COPY_KEY_BYTES: usize = 8;

/// An image as the stream describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecordedImage {
    /// Its kind.
    pub(crate) kind: ImageKind,
    /// Its build ID, empty if it has none.
    pub(crate) build_id: Box<[u8]>,
    /// Its path, or a name in brackets.
    pub(crate) path: Box<[u8]>,
    /// The key of its copy, if it has no build ID and the recorder kept one (`--keep-images`); else
    /// empty.
    pub(crate) copy_key: Box<[u8]>,
    /// The first time it was seen, in ns since 1970. None if it has a build ID, or the stream does
    /// not state the time of day.
    pub(crate) seen_ns: Option<u64>,
    /// Its loaded segments, if it has no build ID and the stream states them; else empty.
    pub(crate) load: Box<[LoadSegment]>,
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
            return Some(Self { build_id, path, ..Self::new(kind) });
        }
        let build_id = parse_hex(wanted.to_str()?)?;
        let is_build_id = (2..=limits::BUILD_ID).contains(&build_id.len());
        is_build_id.then(|| Self { build_id, ..Self::new(kind) })
    }

    /// Describes the image of a record; `seen_ns` is the first time it was seen.
    pub(crate) fn of_record(image: &Image<'_>, seen_ns: Option<u64>) -> Self {
        let copy_key = image.extras.get("file");
        // Checked, since it becomes a path.
        let copy_key = copy_key.and_then(|key| parse_hex(std::str::from_utf8(&key).ok()?));
        let load = image.extras.get("load").filter(|_| image.build_id.is_empty());
        Self {
            build_id: image.build_id.into(),
            path: image.path.into(),
            copy_key: copy_key.filter(|key| key.len() == COPY_KEY_BYTES).unwrap_or_default(),
            seen_ns,
            load: load.map(|load| LoadSegment::decode(&load).into()).unwrap_or_default(),
            ..Self::new(image.kind)
        }
    }

    /// Describes an image about which nothing is known but its kind.
    pub(crate) fn new(kind: ImageKind) -> Self {
        let (build_id, path, copy_key, load) = Default::default();
        Self { kind, build_id, path, copy_key, seen_ns: None, load }
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
