//! How much of an existing annotation can be reused.

/// How much of an annotation of the input can be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// All of it: a lookup would give the same.
    Full,
    /// The function only: its line is unknown, and debug information may now have it.
    FunctionOnly,
    /// Nothing: the frame is looked up.
    No,
}
