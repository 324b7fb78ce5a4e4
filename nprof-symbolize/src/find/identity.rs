//! Whether a file is the one that is meant: by build ID, by checksum, by time.

use std::time::{Duration, SystemTime};

use nprof_stream::Status;

use super::elf_file::ElfFile;
use super::failure::Failure;
use super::hex::hex;

/// How far clocks of files and of recordings may be apart: file systems round, and a program may
/// be run as soon as it is linked.
const SLACK: Duration = Duration::from_millis(20);

/// Whether a file has a build ID.
///
/// # Errors
///
/// When it has another one or none; the message names both.
pub(crate) fn has_build_id(file: &ElfFile, build_id: &[u8]) -> Result<(), Failure> {
    let found = &file.headers.build_id;
    if found == build_id {
        return Ok(());
    }
    let found = if found.is_empty() { "none".to_owned() } else { hex(found) };
    Err(mismatch(format!("another build ID: it has {found}, want {}", hex(build_id))))
}

/// Whether a file an image was loaded from without a build ID can be that image still: it must
/// not have been changed since. `seen` is when the image was first seen, ns since 1970.
///
/// # Errors
///
/// When it was changed.
pub(crate) fn is_unchanged(
    file: &ElfFile,
    seen: Option<u64>,
    is_copy: bool,
) -> Result<(), Failure> {
    let Some((seen, [bytes, anything])) = seen.zip(file.changed()) else { return Ok(()) };
    let seen = SystemTime::UNIX_EPOCH + Duration::from_nanos(seen) + SLACK;
    // Of a copy only the time of its bytes is that of the original.
    let changed = if is_copy { bytes } else { bytes.max(anything) };
    let Ok(after) = changed.duration_since(seen) else { return Ok(()) };
    let why = format!(
        "it has no build ID, and was changed {} s after the image was recorded",
        after.as_secs()
    );
    Err(mismatch(why))
}

/// Whether a file is the one a debug link names: by build ID where both have one, else by its
/// CRC.
///
/// # Errors
///
/// When it is another one or cannot be read.
pub(crate) fn is_linked(file: &ElfFile, build_id: &[u8], crc: u32) -> Result<(), Failure> {
    if !build_id.is_empty() && !file.headers.build_id.is_empty() {
        return has_build_id(file, build_id);
    }
    match file.checksum() {
        Ok(found) if found == crc => Ok(()),
        Ok(found) => Err(mismatch(format!("another checksum: it has {found:08x}, want {crc:08x}"))),
        Err(error) => Err(Failure { status: Status::Unreadable, why: error.to_string() }),
    }
}

fn mismatch(why: String) -> Failure {
    Failure { status: Status::Mismatch, why }
}
