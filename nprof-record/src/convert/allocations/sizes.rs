//! The sizes of the blocks of a stack, of which the largest is asked for. Pure.

use std::collections::BTreeMap;

/// A multiset of sizes. Most stacks allocate blocks of one size, which need no memory besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    largest: u64,
    /// The number of blocks of the largest size.
    number: u64,
    /// The numbers of blocks of the smaller sizes.
    smaller: BTreeMap<u64, u64>,
}

impl Sizes {
    /// Returns the largest size; 0 without blocks.
    pub(crate) fn largest(&self) -> u64 {
        self.largest
    }

    /// True without blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Adds a block.
    pub(crate) fn add(&mut self, size: u64) {
        self.add_several(size, 1);
    }

    /// Removes a block.
    pub(crate) fn remove(&mut self, size: u64) {
        if size != self.largest {
            // A size without blocks would be found as the next largest.
            if let Some(number) = self.smaller.get_mut(&size) {
                *number -= 1;
                if *number == 0 {
                    self.smaller.remove(&size);
                }
            }
            return;
        }
        self.number = self.number.saturating_sub(1);
        if self.number == 0 {
            (self.largest, self.number) = self.smaller.pop_last().unwrap_or_default();
        }
    }

    /// Adds the blocks of another stack.
    pub(crate) fn append(&mut self, other: Self) {
        self.add_several(other.largest, other.number);
        for (size, number) in other.smaller {
            self.add_several(size, number);
        }
    }

    fn add_several(&mut self, size: u64, number: u64) {
        // An empty set has the largest size 0, which blocks may have, too.
        if number == 0 {
            return;
        }
        if size == self.largest {
            self.number += number;
        } else if size < self.largest {
            *self.smaller.entry(size).or_default() += number;
        } else {
            if self.number > 0 {
                self.smaller.insert(self.largest, self.number);
            }
            (self.largest, self.number) = (size, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_is_that_of_a_sorted_list() {
        let (mut sizes, mut model) = (Sizes::default(), Vec::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let size = random >> 60;
            if random >> 40 & 1 == 0 {
                sizes.add(size);
                model.push(size);
            } else if let Some(at) = model.iter().position(|it| *it == size) {
                model.swap_remove(at);
                sizes.remove(size);
            }
            assert_eq!(sizes.largest(), model.iter().copied().max().unwrap_or(0));
        }
    }

    #[test]
    fn appended_sizes_are_removed_as_the_others() {
        let (mut one, mut other) = (Sizes::default(), Sizes::default());
        [5, 9].into_iter().for_each(|size| one.add(size));
        [9, 7, 12].into_iter().for_each(|size| other.add(size));
        one.append(other);
        let largest = [12, 9, 9, 7, 5].map(|size| {
            let largest = one.largest();
            one.remove(size);
            largest
        });
        assert_eq!((largest, one), ([12, 9, 9, 7, 5], Sizes::default()));
    }
}
