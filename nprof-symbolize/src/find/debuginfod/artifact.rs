//! The kinds of files that servers have.

/// A file that belongs to a build ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactKind {
    /// The file with the debug information.
    DebugInfo,
    /// The file that was executed.
    Executable,
}
