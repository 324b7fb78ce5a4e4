//! Replaces a file atomically: a reader sees the previous or the new content, never a part.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::Builder;

/// The mode of a new file before the umask, as open(2) callers usually pass it.
const MODE: u32 = 0o666;

/// A regular file that is replaced as a whole.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    /// Its path with symbolic links resolved: the link must survive the replacement.
    path: PathBuf,
    /// Its metadata. None if it does not exist yet.
    present: Option<Metadata>,
}

impl AtomicFile {
    /// Returns the file of this name, which need not exist. None if it is not a regular file, or is
    /// another name of an open file (`/dev/stdout`), which replacing would not reach.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
            // The names of open files: a rename would replace the name, not the open file.
            _ if path.starts_with("/dev") || path.starts_with("/proc") => None,
            Ok(metadata) if metadata.is_file() => {
                Some(Self { path: fs::canonicalize(path).ok()?, present: Some(metadata) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
                Some(Self { path: path.to_owned(), present: None })
            }
            _ => None,
        }
    }

    /// Writes a temporary file next to it and renames it. If that is impossible (the directory is
    /// read-only, the file belongs to another user), overwrites the file itself, not atomically.
    ///
    /// # Errors
    ///
    /// An I/O error.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match (self.replace(bytes), &self.present) {
            (Err(_), Some(_)) => fs::write(&self.path, bytes),
            (replaced, _) => replaced,
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = match self.path.parent() {
            // A rename is atomic only within a file system, so the temporary file is in the same directory.
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let usual = Permissions::from_mode(MODE);
        let mut file =
            Builder::new().prefix(".nprof-").permissions(usual).tempfile_in(directory)?;
        if let Some(present) = &self.present {
            // A new file would change the owner, and with it the rights of others.
            if !is_of_same_user(present, file.as_file())? {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            file.as_file().set_permissions(present.permissions())?;
        }
        file.write_all(bytes)?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

fn is_of_same_user(present: &Metadata, file: &File) -> io::Result<bool> {
    let new = file.metadata()?;
    Ok((present.uid(), present.gid()) == (new.uid(), new.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_readers_links_and_permissions_survive_a_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("out"), directory.path().join("link"));
        let file = AtomicFile::of(&path).unwrap();
        file.write(b"first").unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let open = fs::File::open(&path).unwrap();
        AtomicFile::of(&link).unwrap().write(b"2nd").unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "first");
        assert_eq!(fs::read(&path).unwrap(), b"2nd");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(AtomicFile::of(Path::new("/dev/null")).is_none());
        assert!(AtomicFile::of(Path::new("/proc/self/status")).is_none());
        assert!(AtomicFile::of(directory.path()).is_none());
    }
}
