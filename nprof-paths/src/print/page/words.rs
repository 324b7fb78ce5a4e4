//! Values that the data of the page has once, by number. Pure.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use serde_json::Value;

/// Values in the order in which they were first used.
#[derive(Debug)]
pub(super) struct Words<T> {
    list: Vec<Value>,
    keys: Vec<T>,
    numbers: FxHashMap<T, u64>,
    bytes: usize,
}

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self { list: Vec::new(), keys: Vec::new(), numbers: FxHashMap::default(), bytes: 0 }
    }
}

impl<T: Clone + Eq + Hash + Into<Value>> Words<T> {
    /// Returns the number of a value; adds it if it is new.
    pub(super) fn number(&mut self, value: &T) -> u64 {
        if let Some(&number) = self.numbers.get(value) {
            return number;
        }
        let number = self.list.len() as u64;
        let written = value.clone().into();
        self.bytes += length(&written);
        self.list.push(written);
        self.keys.push(value.clone());
        self.numbers.insert(value.clone(), number);
        number
    }

    /// Removes the values from this number on.
    pub(super) fn truncate(&mut self, length_before: usize) {
        for key in self.keys.drain(length_before..) {
            self.numbers.remove(&key);
        }
        for value in self.list.drain(length_before..) {
            self.bytes -= length(&value);
        }
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the length of all values in the page.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all values by number.
    pub(super) fn list(&self) -> &[Value] {
        &self.list
    }
}

/// Returns the length of a value and a comma in the page, which has `<` as an escape of six characters.
pub(super) fn length(value: &Value) -> usize {
    let text = value.to_string();
    text.len() + 5 * text.matches('<').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_values_are_new_again() {
        let mut words: Words<String> = Words::default();
        let number = |words: &mut Words<String>, word: &str| words.number(&word.to_owned());
        assert_eq!([number(&mut words, "a"), number(&mut words, "b<c>")], [0, 1]);
        let bytes = words.bytes();
        assert_eq!([number(&mut words, "d"), number(&mut words, "a")], [2, 0]);
        words.truncate(2);
        assert_eq!((words.len(), words.bytes()), (2, bytes));
        assert_eq!(number(&mut words, "d"), 2);
    }
}
