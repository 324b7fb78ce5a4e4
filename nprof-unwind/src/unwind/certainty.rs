//! The certainty of a walk.

/// The certainty of the frames found so far, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    /// A frame may be missing or wrong, so the stack is never complete.
    Guessed,
    /// The code of each frame without a table shows its caller.
    Analyzed,
    /// All frames have tables.
    Tables,
}
