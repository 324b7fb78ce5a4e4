//! Facts about an image that opening it shows.

use crate::find::Failure;

/// What was found out of an image as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageFindings {
    /// What was tried to open it, a line each.
    pub(crate) trace: Vec<String>,
    /// Why it could not be opened.
    pub(crate) failure: Option<Failure>,
    /// Whether it was opened from a file of another build.
    pub(crate) is_other: bool,
    /// Whether its symbols are all it has, and not only what other files may use.
    pub(crate) has_all_symbols: bool,
}

impl ImageFindings {
    /// Adds what was found out of the same image later, or on another thread.
    pub(crate) fn add(&mut self, other: Self) {
        let mut lines = other.trace;
        lines.retain(|line| !self.trace.contains(line));
        self.trace.extend(lines);
        self.failure = self.failure.take().or(other.failure);
        self.is_other |= other.is_other;
        self.has_all_symbols |= other.has_all_symbols;
    }
}
