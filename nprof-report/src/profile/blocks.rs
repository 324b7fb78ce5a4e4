//! The blocks of memory that samples of an event in bytes represent. Pure.
//!
//! A sample of an allocation weighs the size of its block, or, of a block smaller than the period,
//! represents several of its size. The number of blocks is therefore estimated as weight divided by size,
//! without bias. A sample can also state the number itself.

use nprof_stream::Sample;

/// Bits of the fraction of a number of blocks: sums of integers do not depend on the order of addition, as
/// those of floating-point numbers would.
const FRACTION_BITS: u32 = 20;

/// A number of blocks, of which a sample can represent a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockNumber(u64);

impl BlockNumber {
    /// Adds other blocks.
    pub fn add(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// Returns the number with its fraction.
    pub fn value(self) -> f64 {
        self.0 as f64 / f64::from(1 << FRACTION_BITS)
    }
}

/// The number of blocks, the largest of them, and their mean age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// In 2^-20 blocks.
    number: u64,
    largest: u64,
    /// Of the blocks with a known age: their number in 2^-20 blocks, and the sum of their ages.
    aged: u64,
    age_ns: u128,
}

impl Blocks {
    /// Returns the blocks of a sample.
    pub fn of(sample: &Sample<'_>) -> Self {
        let extra = |key| sample.extras.number(key);
        // A block of at least a period weighs its size.
        let size = extra("size").unwrap_or(sample.weight);
        let (number, largest) = match (extra("blocks"), size) {
            (Some(number), _) => (scaled(u128::from(number)), extra("largest").unwrap_or(0)),
            (None, 0) => (scaled(u128::from(sample.count)), 0),
            (None, size) => {
                let number = (u128::from(sample.weight) << FRACTION_BITS) / u128::from(size);
                (u64::try_from(number).unwrap_or(u64::MAX), size)
            }
        };
        let age = extra("age");
        // The mean age is that of the blocks with an age alone.
        let aged = if age.is_some() { number } else { 0 };
        let age_ns = u128::from(aged) * u128::from(age.unwrap_or(0));
        Self { number, largest, aged, age_ns }
    }

    /// Adds other blocks.
    pub fn add(&mut self, other: Self) {
        self.number = self.number.saturating_add(other.number);
        self.largest = self.largest.max(other.largest);
        self.aged = self.aged.saturating_add(other.aged);
        self.age_ns = self.age_ns.saturating_add(other.age_ns);
    }

    /// Returns their number, rounded.
    pub fn number(self) -> u64 {
        // Half a block more, without an overflow of the largest number.
        (self.number >> FRACTION_BITS) + (self.number >> (FRACTION_BITS - 1) & 1)
    }

    /// Returns their number.
    pub fn exact_number(self) -> BlockNumber {
        BlockNumber(self.number)
    }

    /// Returns their mean size, given their weight. None without blocks.
    pub fn mean_size(self, weight: u64) -> Option<f64> {
        let mean = (self.number > 0).then(|| weight as f64 / self.exact_number().value())?;
        // Recorders round the number of blocks that a sample states, and the fraction here is rounded down:
        // 16384 bytes in blocks of 3000 are 5.46 blocks, and 5 of them had a mean of 3277.
        Some(self.largest().map_or(mean, |largest| mean.min(largest as f64)))
    }

    /// Returns the size of the largest sampled block. None if no sample states a size.
    pub fn largest(self) -> Option<u64> {
        (self.largest > 0).then_some(self.largest)
    }

    /// Returns the mean age in ns of the blocks with an age. None without any.
    pub fn mean_age_ns(self) -> Option<f64> {
        (self.aged > 0).then(|| self.age_ns as f64 / self.aged as f64)
    }
}

/// Returns a number of blocks in 2^-20 blocks.
fn scaled(number: u128) -> u64 {
    u64::try_from(number << FRACTION_BITS).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{EventId, ExtrasBuilder, NO_CPU, NodeId, TaskId};

    fn blocks(weight: u64, extras: &[(&str, u64)]) -> Blocks {
        let mut builder = ExtrasBuilder::new();
        for &(key, value) in extras {
            builder.add_number(key, value);
        }
        let (event, task, node) = (EventId(1), TaskId(0), NodeId(0));
        let extras = builder.extras();
        Blocks::of(&Sample { time: 0, event, task, cpu: NO_CPU, node, weight, count: 3, extras })
    }

    #[test]
    fn sample_of_small_blocks_represents_several() {
        let mut sum = blocks(4096, &[("size", 64)]);
        assert_eq!((sum.number(), sum.largest(), sum.mean_age_ns()), (64, Some(64), None));
        sum.add(blocks(1 << 20, &[("age", 5_000)]));
        assert_eq!((sum.number(), sum.largest()), (65, Some(1 << 20)));
        assert_eq!(sum.mean_age_ns(), Some(5_000.0));
        assert_eq!(sum.mean_size(4096 + (1 << 20)).map(f64::round), Some(16195.0));
        // 10 blocks of 1 us each, and one of 5 us.
        sum.add(blocks(640, &[("size", 64), ("age", 1_000)]));
        assert_eq!(sum.mean_age_ns().map(f64::round), Some(1364.0));
    }

    #[test]
    fn sample_states_the_number_of_live_blocks() {
        let live = blocks(4096, &[("blocks", 7)]);
        assert_eq!(
            (live.number(), live.largest(), live.mean_size(4096).map(f64::round)),
            (7, None, Some(585.0))
        );
        assert_eq!(blocks(4096, &[("blocks", 7), ("largest", 900)]).largest(), Some(900));
        // 5.46 blocks of 3000 bytes, rounded.
        let rounded = blocks(16384, &[("blocks", 5), ("largest", 3000)]);
        assert_eq!(rounded.mean_size(16384), Some(3000.0));
        assert_eq!(blocks(0, &[]).number(), 3);
        assert_eq!(Blocks::default().mean_size(0), None);
    }

    #[test]
    fn hostile_numbers_saturate() {
        let mut sum = blocks(u64::MAX, &[("size", 1), ("age", u64::MAX)]);
        sum.add(sum);
        assert!(sum.number() > 1 << 40 && sum.mean_age_ns().is_some_and(f64::is_finite));
    }
}
