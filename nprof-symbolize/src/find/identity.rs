//! The identity of files: by build ID, by checksum, or by segments and time.

use std::time::{Duration, SystemTime};

use nprof_stream::{LoadSegment, Status};

use super::elf_file::ElfFile;
use super::failure::Failure;
use nprof_stream::number::hex;

/// The tolerance between the times of files and of recordings: file systems round their times to
/// the kernel's tick (at most 10 ms), and a program may run as soon as it is linked.
const TOLERANCE: Duration = Duration::from_millis(20);

/// Checks that a file has a build ID.
///
/// # Errors
///
/// If it has another one or none; the message states both.
pub(crate) fn has_build_id(file: &ElfFile, build_id: &[u8]) -> Result<(), Failure> {
    let found = &file.headers.build_id;
    if found == build_id {
        return Ok(());
    }
    let found = if found.is_empty() { "none".to_owned() } else { hex(found) };
    Err(mismatch(format!("another build ID: it has {found}, want {}", hex(build_id))))
}

/// Checks that the file of an image without a build ID has these loaded segments, and is unchanged since the
/// image was first seen at `seen_ns`, in ns since 1970. Succeeds if there are no segments and no time to compare.
///
/// # Errors
///
/// If it has others, or was changed later.
pub(crate) fn is_unchanged(
    file: &ElfFile,
    load: &[LoadSegment],
    seen_ns: Option<u64>,
    is_copy: bool,
) -> Result<(), Failure> {
    // The path of a process in a container or a chroot has another file here.
    if !load.is_empty() && !has_segments(file, load) {
        return Err(mismatch(
            "another file: its loaded segments are not those of the image".to_owned(),
        ));
    }
    let Some((seen_ns, changed)) = seen_ns.zip(file.changed()) else { return Ok(()) };
    let seen = SystemTime::UNIX_EPOCH + Duration::from_nanos(seen_ns) + TOLERANCE;
    // A copy keeps at most the modification time of the original. The time of the inode cannot be
    // set, so that it also shows a file that was replaced by an older one.
    let changed = if is_copy { changed.bytes } else { changed.bytes.max(changed.inode) };
    let Ok(after) = changed.duration_since(seen) else { return Ok(()) };
    let reason =
        format!("it has no build ID, and was changed {} s after it was recorded", after.as_secs());
    Err(mismatch(reason))
}

/// Checks that a file is the one in a debug link: by build ID if both have one, else by its CRC.
///
/// # Errors
///
/// If it is another one or cannot be read.
pub(crate) fn is_linked(file: &ElfFile, build_id: &[u8], crc: u32) -> Result<(), Failure> {
    if !build_id.is_empty() && !file.headers.build_id.is_empty() {
        return has_build_id(file, build_id);
    }
    match file.checksum() {
        Ok(found) if found == crc => Ok(()),
        Ok(found) => Err(mismatch(format!("another checksum: it has {found:08x}, want {crc:08x}"))),
        Err(error) => Err(Failure { status: Status::Unreadable, reason: error.to_string() }),
    }
}

fn has_segments(file: &ElfFile, load: &[LoadSegment]) -> bool {
    file.headers
        .segments
        .iter()
        .map(|it| (it.offset.0, it.address.0, it.size, it.executable))
        .eq(load.iter().map(|it| (it.offset, it.address, it.size, it.executable)))
}

fn mismatch(reason: String) -> Failure {
    Failure { status: Status::Mismatch, reason }
}
