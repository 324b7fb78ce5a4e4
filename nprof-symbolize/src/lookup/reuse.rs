//! The reuse of existing annotations.

/// The reusable part of an annotation of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// All of it: a lookup would give the same.
    Full,
    /// The function only: its line is unknown, and debug information may now have it.
    FunctionOnly,
    /// Nothing: the frame is looked up.
    No,
}
