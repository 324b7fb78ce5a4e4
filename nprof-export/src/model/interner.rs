//! Numbers distinct values in the order of their first appearance.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Distinct values and their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    numbers: FxHashMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default(), values: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// Returns the number of a value; the next one for a new value.
    pub(crate) fn number(&mut self, value: T) -> u32 {
        let next = self.values.len() as u32;
        let number = *self.numbers.entry(value.clone()).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        number
    }

    /// Returns the values in the order of their numbers.
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns the count of values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_a_number() {
        let mut interner = Interner::default();
        let numbers = ["b", "a", "b"].map(|value| interner.number(value));
        assert_eq!((numbers, interner.values(), interner.len()), ([0, 1, 0], &["b", "a"][..], 2));
    }
}
