//! The location of a frame, with interned names.

use std::rc::Rc;

use nprof_stream::Status;

/// A function and its position in the source, by the numbers of names in
/// [`crate::names::interner::Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InternedLine {
    /// The function, 0 if only the line is known.
    pub(crate) function: u32,
    /// The source file, 0 if unknown.
    pub(crate) file: u32,
    /// The line, 0 if unknown.
    pub(crate) line: u32,
    /// The column, 0 if unknown.
    pub(crate) column: u32,
}

/// The location of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SymbolizedFrame {
    /// The result of the lookup.
    pub(crate) status: Status,
    /// The calls, innermost first: all but the last are inlined.
    pub(crate) lines: Box<[InternedLine]>,
    /// The problem with the debug information there, if any.
    pub(crate) problem: Option<Rc<str>>,
}
