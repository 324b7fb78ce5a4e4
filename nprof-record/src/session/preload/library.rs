//! The file of the library that programs load.
//!
//! It lies in a directory of the user and stays there: children that outlive the recorder load it, too,
//! and the loader prints an error for a file that is gone. Its name contains a checksum of its content, so
//! that another build has another file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::StatVfsMountFlags;
use rustix::process::geteuid;

/// The directories to try. All users can read them: a command may run as another user than the recorder.
const PARENTS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Writes the library into a file, unless it is there already, and returns its path.
///
/// # Errors
///
/// If this build has no library, or it cannot be written to any directory.
pub(crate) fn install() -> anyhow::Result<PathBuf> {
    if nprof_preload::LIBRARY.is_empty() {
        bail!("this build of nprof-record has no library to load into programs");
    }
    let mut refused = None;
    for parent in PARENTS {
        match install_below(Path::new(parent), nprof_preload::LIBRARY) {
            Ok(path) => return Ok(path),
            Err(error) => refused = Some(error.context(format!("cannot use {parent}"))),
        }
    }
    Err(refused.unwrap_or_else(|| anyhow::anyhow!("there is no directory for it")))
        .context("cannot install the library to load into programs")
}

/// Writes `content` into a file of a directory of this user below `parent`.
fn install_below(parent: &Path, content: &[u8]) -> anyhow::Result<PathBuf> {
    let flags = rustix::fs::statvfs(parent)?.f_flag;
    if flags.contains(StatVfsMountFlags::NOEXEC) {
        bail!("it is mounted with noexec");
    }
    let directory = parent.join(format!("nprof-{}", geteuid().as_raw()));
    match fs::create_dir(&directory) {
        // The umask may exclude the user of the command.
        Ok(()) => fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    // Programs load its files: no other user may write to it.
    let found = fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        bail!("{} belongs to another user, or others may write to it", directory.display());
    }
    let path = directory.join(format!("libnprof-{:016x}.so", checksum(content)));
    if fs::read(&path).is_ok_and(|found| found == content) {
        return Ok(path);
    }
    let partial = directory.join(format!("partial-{}", std::process::id()));
    let written = write(&partial, content).and_then(|()| fs::rename(&partial, &path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written?;
    Ok(path)
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(content)
}

/// Returns a checksum of a file (FNV-1a).
fn checksum(content: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    content.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_written_once_into_a_directory_of_the_user() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = install_below(parent.path(), b"one").expect("written");
        let first = fs::metadata(&path).expect("a file");
        assert_eq!(first.mode() & 0o777, 0o644);
        let directory = fs::metadata(path.parent().expect("a directory")).expect("there");
        assert_eq!(directory.mode() & 0o777, 0o755, "whatever the umask");
        assert_eq!(install_below(parent.path(), b"one").expect("there"), path);
        assert_eq!(fs::metadata(&path).expect("a file").ino(), first.ino(), "it stays");
        assert_ne!(install_below(parent.path(), b"two").expect("written"), path);
        fs::write(&path, b"damaged").expect("written");
        install_below(parent.path(), b"one").expect("written again");
        assert_eq!(fs::read(&path).expect("a file"), b"one");
    }

    #[test]
    fn directory_that_others_may_write_is_refused() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join(format!("nprof-{}", geteuid().as_raw()));
        fs::create_dir(&directory).expect("a directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("open to all");
        let error = install_below(parent.path(), b"one").expect_err("unsafe");
        assert!(error.to_string().contains("others may write"), "{error}");
        fs::remove_dir(&directory).expect("removed");
        std::os::unix::fs::symlink("/tmp", &directory).expect("a link");
        assert!(install_below(parent.path(), b"one").is_err(), "a link leads elsewhere");
    }
}
