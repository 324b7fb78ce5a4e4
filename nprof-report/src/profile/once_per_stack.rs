//! Counts a function once per stack, however often it is on it.

/// Marks the rows that the present stack was counted on.
///
/// A recursive function is on a stack several times; its total must grow only once.
#[derive(Clone, Debug, Default)]
pub struct OncePerStack {
    /// The number of the present stack, from 1.
    stack: u64,
    /// By row, the number of the last stack that was counted on it; 0 for none.
    last: Vec<u64>,
}

impl OncePerStack {
    /// Begins the next stack.
    pub fn next_stack(&mut self) {
        self.stack += 1;
    }

    /// True if the present stack was not counted on this row before; it is from now on.
    #[inline]
    pub fn is_first(&mut self, row: usize) -> bool {
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
