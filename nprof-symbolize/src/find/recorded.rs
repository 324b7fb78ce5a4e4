//! An image as the stream describes it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use nprof_stream::ImageKind;

use super::elf_file::ElfFile;

/// What the stream says of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RecordedImage {
    /// What it is.
    pub(crate) kind: ImageKind,
    /// Its build ID, empty when there is none.
    pub(crate) build_id: Box<[u8]>,
    /// Its path, or a name in brackets.
    pub(crate) path: Box<[u8]>,
    /// When it was first seen, ns since 1970, if it has no build ID and the stream tells.
    pub(crate) seen: Option<u64>,
}

impl RecordedImage {
    /// What a recording would say of an ELF file, or of a build ID; `None` if it is neither.
    pub(crate) fn of(wanted: &OsStr) -> Option<Self> {
        let kind = ImageKind::Elf;
        if let Ok(path) = std::fs::canonicalize(wanted)
            && let Ok(file) = ElfFile::open(&path)
        {
            let build_id = file.headers.build_id[..].into();
            let path = path.as_os_str().as_bytes().into();
            return Some(Self { kind, build_id, path, seen: None });
        }
        let digits = wanted.to_str().filter(|id| id.len() % 2 == 0)?;
        let digits = Some(digits).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let build_id: Option<Box<[u8]>> = (0..digits.len()).step_by(2).map(byte).collect();
        let build_id =
            build_id.filter(|id| (2..=nprof_stream::limits::BUILD_ID).contains(&id.len()))?;
        Some(Self { kind, build_id, path: Box::default(), seen: None })
    }
}
