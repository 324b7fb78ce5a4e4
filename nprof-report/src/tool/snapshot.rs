//! A file that is written again and again, each time as a whole: who reads it meanwhile gets what
//! was written before or what is written now, never a part.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::Builder;

/// What a new file may be used for, but for what the umask takes away.
const MODE: u32 = 0o666;

/// A regular file to be written as a whole.
#[derive(Debug)]
pub struct Snapshot {
    /// Where it is, behind symbolic links.
    path: PathBuf,
    /// What it is, if it is there.
    present: Option<Metadata>,
}

impl Snapshot {
    /// The file of this name, or where it will be; `None` for what is no regular file, and for
    /// one that is open already (`/dev/stdout`).
    pub fn of(path: &Path) -> Option<Self> {
        match fs::metadata(path) {
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

    /// Writes a file beside it, and puts it into its place. Where that is not to be had, as the
    /// directory may not be written to or the file is another user's, the file itself is written.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        match (self.replace(bytes), &self.present) {
            (Err(_), Some(_)) => fs::write(&self.path, bytes),
            (replaced, _) => replaced,
        }
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let usual = Permissions::from_mode(MODE);
        let mut file =
            Builder::new().prefix(".nprof-").permissions(usual).tempfile_in(directory)?;
        if let Some(present) = &self.present {
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
    fn a_reader_keeps_what_it_opened_and_links_and_permissions_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("out"), directory.path().join("link"));
        let snapshot = Snapshot::of(&path).unwrap();
        snapshot.write(b"first").unwrap();
        std::os::unix::fs::symlink("out", &link).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let open = fs::File::open(&path).unwrap();
        Snapshot::of(&link).unwrap().write(b"2nd").unwrap();
        assert_eq!(io::read_to_string(open).unwrap(), "first");
        assert_eq!(fs::read(&path).unwrap(), b"2nd");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(Snapshot::of(Path::new("/dev/null")).is_none());
        assert!(Snapshot::of(Path::new("/proc/self/status")).is_none());
        assert!(Snapshot::of(directory.path()).is_none());
    }
}
