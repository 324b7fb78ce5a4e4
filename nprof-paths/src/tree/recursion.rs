//! Recursion in a path: calls that repeat one after another are told once, with how often.

/// Calls that repeat no later than after so many are found.
const PERIOD: usize = 16;

/// Some calls of a path in a row, and how often they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where the first of them stands.
    pub(crate) start: usize,
    /// How many they are.
    pub(crate) period: usize,
    /// How often they come, one after another.
    pub(crate) times: usize,
}

impl Block {
    /// The places of a call of the block, each time it comes; `nth` counts within the period.
    pub(crate) fn places(self, nth: usize) -> impl Iterator<Item = usize> {
        (0..self.times).map(move |time| self.start + time * self.period + nth)
    }

    /// What stands before the name of a call, so that one sees which calls come together.
    pub(crate) fn bracket(self, nth: usize) -> &'static str {
        match nth {
            _ if self.period == 1 => "",
            0 => "╭ ",
            last if last + 1 == self.period => "╰ ",
            _ => "│ ",
        }
    }

    /// How often a call is said to come: the first one says it for all.
    pub(crate) fn times_at(self, nth: usize) -> usize {
        if nth == 0 { self.times } else { 1 }
    }
}

/// Cuts a path into blocks. Of several ways the one that covers most is taken, and of these the
/// one that repeats soonest.
pub(crate) fn blocks(path: &[usize]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < path.len() {
        let rest = &path[start..];
        let mut best = Block { start, period: 1, times: 1 };
        for period in 1..=PERIOD.min(rest.len() / 2) {
            let times = 1 + rest[period..]
                .chunks_exact(period)
                .take_while(|next| *next == &rest[..period])
                .count();
            if times > 1 && times * period > best.times * best.period {
                best = Block { start, period, times };
            }
        }
        blocks.push(best);
        start += best.period * best.times;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(path: &[usize]) -> Vec<(usize, usize)> {
        blocks(path).iter().map(|block| (block.period, block.times)).collect()
    }

    #[test]
    fn what_repeats_is_one_block() {
        assert_eq!(found(&[1, 2, 3]), [(1, 1), (1, 1), (1, 1)]);
        assert_eq!(found(&[1, 2, 2, 2, 3]), [(1, 1), (1, 3), (1, 1)]);
        assert_eq!(
            found(&[7, 1, 2, 3, 1, 2, 3, 1, 2, 9]),
            [(1, 1), (3, 2), (1, 1), (1, 1), (1, 1)]
        );
        assert_eq!(found(&[1, 1, 1, 1]), [(1, 4)]);
    }

    proptest! {
        #[test]
        fn blocks_are_the_path(path in proptest::collection::vec(0..3usize, 0..60)) {
            let mut told = Vec::new();
            for block in blocks(&path) {
                for _ in 0..block.times {
                    told.extend_from_slice(&path[block.start..block.start + block.period]);
                }
            }
            prop_assert_eq!(told, path);
        }
    }
}
