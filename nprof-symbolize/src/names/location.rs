//! What places are called, by the numbers that names have.

use std::rc::Rc;

use nprof_stream::Status;

/// A function and its place in the source, by their numbers in [`crate::names::interner::Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InternedLine {
    /// The function, 0 when only the line is known.
    pub(crate) function: u32,
    /// The source file, 0 when unknown.
    pub(crate) file: u32,
    /// The line, 0 when unknown.
    pub(crate) line: u32,
    /// The column, 0 when unknown.
    pub(crate) column: u32,
}

/// What a place is called.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SymbolizedFrame {
    /// How it went.
    pub(crate) status: Status,
    /// Innermost first.
    pub(crate) lines: Box<[InternedLine]>,
    /// What was wrong with the debug information.
    pub(crate) problem: Option<Rc<str>>,
}
