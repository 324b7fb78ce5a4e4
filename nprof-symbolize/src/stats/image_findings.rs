//! Facts about an image that opening it shows.

use crate::find::Failure;

/// Facts about an image as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageFindings {
    /// The files that were tried, a line each.
    pub(crate) log: Vec<String>,
    /// The reason it could not be opened.
    pub(crate) failure: Option<Failure>,
    /// True if it was opened from a file of another build.
    pub(crate) is_other_build: bool,
    /// True if its symbols are complete, and not only those exported to other files.
    pub(crate) has_all_symbols: bool,
}

impl ImageFindings {
    /// Adds findings about the same image, made later or on another thread.
    pub(crate) fn add(&mut self, other: Self) {
        let mut lines = other.log;
        lines.retain(|line| !self.log.contains(line));
        self.log.extend(lines);
        self.failure = self.failure.take().or(other.failure);
        self.is_other_build |= other.is_other_build;
        self.has_all_symbols |= other.has_all_symbols;
    }
}
