//! Counts a function once per stack, also when it recurses.

/// The rows on which the current stack was counted.
///
/// A recursive function is on a stack several times; its total must grow only once.
#[derive(Clone, Debug, Default)]
pub struct OncePerStack {
    /// Number of the current stack, from 1.
    stack: u64,
    /// By row, the number of the last stack counted on it; 0 for none. Stamps instead of a cleared set:
    /// starting a stack costs nothing.
    last: Vec<u64>,
}

impl OncePerStack {
    /// Begins the next stack.
    pub fn next_stack(&mut self) {
        self.stack += 1;
    }

    /// Counts the current stack on a row. True if it was not counted there before.
    #[inline]
    pub fn is_first(&mut self, row: usize) -> bool {
        // Rows are numbered as they are found: the next one is beyond the end.
        if self.last.len() <= row {
            self.last.resize(row + 1, 0);
        }
        std::mem::replace(&mut self.last[row], self.stack) != self.stack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursive_row_counts_once_per_stack() {
        let mut once = OncePerStack::default();
        once.next_stack();
        assert_eq!([3, 0, 3, 0].map(|row| once.is_first(row)), [true, true, false, false]);
        once.next_stack();
        assert!(once.is_first(3));
    }
}
