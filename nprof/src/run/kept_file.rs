//! The file that keeps a recording.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::new_name;
use crate::programs::NPROF;
use crate::run::request::Request;

/// The file of a recording.
pub(crate) struct KeptFile {
    /// Its path.
    pub(crate) path: PathBuf,
    file: File,
    /// True if it did not exist before.
    is_new: bool,
}

impl KeptFile {
    /// Creates the file of the recording before anything runs. A file that exists stays as it is: perhaps
    /// nothing will be recorded.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub(crate) fn create(request: &Request) -> anyhow::Result<Self> {
        if let Some(path) = &request.output {
            let is_new = !path.exists();
            let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = opened.map_err(|error| new_name::refused(path, &error))?;
            return Ok(Self { path: path.clone(), file, is_new });
        }
        let create_new = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let stem = format!("{NPROF}-{}", request.program());
        let (path, file) = new_name::create(&stem, ".nprof", create_new)?;
        Ok(Self { path, file, is_new: true })
    }

    /// True for a file of which reports can be made; false for a pipe or a device.
    pub(crate) fn is_regular(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.is_file())
    }

    /// Empties the file, when there is a recording, and returns it for writing.
    ///
    /// # Errors
    ///
    /// If it cannot be emptied.
    pub(crate) fn begin(&self) -> anyhow::Result<File> {
        let path = || self.path.display().to_string();
        // A pipe or a device has no length.
        if self.is_regular() {
            self.file.set_len(0).with_context(path)?;
        }
        self.file.try_clone().with_context(path)
    }

    /// Removes the file if it is new and empty. True if it is empty.
    pub(crate) fn remove_if_empty(&self) -> bool {
        let is_empty = fs::metadata(&self.path).is_ok_and(|file| file.is_file() && file.len() == 0);
        if self.is_new && is_empty {
            let _ = fs::remove_file(&self.path);
        }
        is_empty
    }
}
