//! Recursion on a path: calls that repeat one after another, printed once with their count.

/// The longest sequence of calls that is found to repeat.
const MAX_PERIOD: usize = 16;

/// Consecutive calls of a path that come one or several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Index of the first call in the path.
    pub start: usize,
    /// Number of calls that repeat.
    pub period: usize,
    /// Number of times they come, one after another.
    pub count: usize,
}

impl Repetition {
    /// Returns the index after the last call.
    pub fn end(self) -> usize {
        self.start + self.period * self.count
    }

    /// Returns the indices in the path of the call with index `nth` within the period.
    pub fn occurrences(self, nth: usize) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |time| self.start + time * self.period + nth)
    }
}

/// Cuts a path into repetitions. At each call the repetition that covers most calls is taken; of
/// equal ones, that with the shortest period.
pub fn repetitions(path: &[usize]) -> Vec<Repetition> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < path.len() {
        let rest = &path[start..];
        let mut best = Repetition { start, period: 1, count: 1 };
        // A period that repeats fits at least twice into the rest.
        for period in 1..=MAX_PERIOD.min(rest.len() / 2) {
            let count = 1 + rest[period..]
                .chunks_exact(period)
                .take_while(|next| *next == &rest[..period])
                .count();
            // Only a longer one replaces the best: of equal ones the shortest period stays.
            if count > 1 && count * period > best.count * best.period {
                best = Repetition { start, period, count };
            }
        }
        found.push(best);
        start = best.end();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn periods_and_counts(path: &[usize]) -> Vec<(usize, usize)> {
        repetitions(path).iter().map(|found| (found.period, found.count)).collect()
    }

    #[test]
    fn repeated_calls_are_one_repetition() {
        assert_eq!(periods_and_counts(&[1, 2, 3]), [(1, 1), (1, 1), (1, 1)]);
        assert_eq!(periods_and_counts(&[1, 2, 2, 2, 3]), [(1, 1), (1, 3), (1, 1)]);
        assert_eq!(
            periods_and_counts(&[7, 1, 2, 3, 1, 2, 3, 1, 2, 9]),
            [(1, 1), (3, 2), (1, 1), (1, 1), (1, 1)]
        );
        assert_eq!(periods_and_counts(&[1, 1, 1, 1]), [(1, 4)]);
    }

    proptest! {
        #[test]
        fn repetitions_expand_to_the_path(path in proptest::collection::vec(0..3usize, 0..60)) {
            let mut expanded = Vec::new();
            for found in repetitions(&path) {
                for _ in 0..found.count {
                    expanded.extend_from_slice(&path[found.start..found.start + found.period]);
                }
            }
            prop_assert_eq!(expanded, path);
        }
    }
}
