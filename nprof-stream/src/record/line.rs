//! A function and a line: the part that locations and code have in common.

use crate::record::ids::{FileId, FunctionId};

/// One call of a frame: a function, and the line in its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function; none if only the line is known.
    pub function: FunctionId,
    /// The source file, none when unknown.
    pub file: FileId,
    /// The line, 0 if unknown. For the caller of an inlined function, the line of the call.
    pub line: u32,
    /// The column, 0 when unknown.
    pub column: u32,
}
