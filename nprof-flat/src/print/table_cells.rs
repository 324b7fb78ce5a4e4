//! The cells of a table. Pure.

use std::ops::Range;

/// Width reserved for each column of names, before numbers are added.
pub(super) const NAME_WIDTH: usize = 18;

/// The cells of a table, and the numbers for which there was no room.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableCells {
    /// Lines of cells; the first one has the names of the columns.
    pub(crate) cells: Vec<Vec<String>>,
    /// Number of cells at the beginning of a line that are numbers.
    pub(crate) numbers: usize,
    /// Groups of columns with their names.
    pub(crate) groups: Vec<(Range<usize>, String)>,
    /// Names of the numbers that were left out.
    pub(crate) left_out: Vec<String>,
}
