//! Replaces a file atomically: a reader sees the previous or the new content, never a part.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

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

    /// Prints to a temporary file next to it and renames that. If there can be none (the directory is
    /// read-only, the file belongs to another user), overwrites the file itself, not atomically.
    ///
    /// # Errors
    ///
    /// An I/O error, or the error of `print`.
    pub(crate) fn write<E: From<io::Error>>(
        &self,
        print: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<(), E> {
        let temporary = match self.temporary() {
            Err(_) if self.present.is_some() => {
                return print_to(File::create(&self.path)?, print);
            }
            temporary => temporary?,
        };
        print_to(temporary.as_file(), print)?;
        // Only now: an error while printing leaves the file as it is.
        temporary.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Creates the temporary file, with the permissions of the file that it replaces.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let directory = match self.path.parent() {
            // A rename is atomic only within a file system, so the temporary file is in the same directory.
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let usual = Permissions::from_mode(MODE);
        let file = Builder::new().prefix(".nprof-").permissions(usual).tempfile_in(directory)?;
        if let Some(present) = &self.present {
            // A new file would change the owner, and with it the rights of others.
            if !is_of_same_user(present, file.as_file())? {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            file.as_file().set_permissions(present.permissions())?;
        }
        Ok(file)
    }
}

fn print_to<E: From<io::Error>>(
    file: impl Write,
    print: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    // Printers write line by line.
    let mut out = BufWriter::new(file);
    print(&mut out)?;
    Ok(out.flush()?)
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
        file.write(|out| out.write_all(b"first")).unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let open = fs::File::open(&path).unwrap();
        AtomicFile::of(&link).unwrap().write(|out| out.write_all(b"2nd")).unwrap();
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
