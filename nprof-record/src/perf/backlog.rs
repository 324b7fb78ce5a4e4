//! The records that a drain leaves in the rings.

/// Records that stay in the rings until the next drain, because older ones may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Backlog {
    Nothing,
    Samples,
    /// Records of processes and mappings. Mapped files may soon be deleted, so these are urgent.
    Sideband,
}
