//! A cache of values computed from ids, which are valid only within an epoch.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::model::tables::Tables;

/// The largest number of values: 8 MiB with keys and values of 32 bytes together. A stack of the
/// longest allowed depth fits twice.
const MAX_VALUES: usize = 1 << 17;

/// Values by key, dropped when the ids in the keys change their meaning (see
/// [`Tables::generation`]), or when there are `MAX_VALUES` of them.
#[derive(Clone, Debug)]
pub struct EpochCache<K, V> {
    generation: u64,
    values: FxHashMap<K, V>,
}

impl<K, V> Default for EpochCache<K, V> {
    fn default() -> Self {
        Self { generation: 0, values: FxHashMap::default() }
    }
}

impl<K: Eq + Hash, V: Copy> EpochCache<K, V> {
    /// Returns the value of a key. None if the current epoch has none.
    #[inline]
    pub fn get(&mut self, tables: &Tables, key: &K) -> Option<V> {
        // Checked at every access, so that no owner can forget it; it costs one comparison.
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.values.clear();
        }
        self.values.get(key).copied()
    }

    /// Adds a value for the epoch of the last [`EpochCache::get`].
    #[inline]
    pub fn insert(&mut self, key: K, value: V) {
        // Starting over is simpler than dropping the oldest, and an epoch of the recorder rarely has more.
        if self.values.len() >= MAX_VALUES {
            self.values.clear();
        }
        self.values.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn values_are_dropped_with_their_epoch() {
        let mut tables = Tables::new();
        let mut cache = EpochCache::default();
        assert_eq!(cache.get(&tables, &1), None);
        cache.insert(1, 'a');
        assert_eq!(cache.get(&tables, &1), Some('a'));
        tables.apply(&Record::Epoch(Box::default()));
        assert_eq!(cache.get(&tables, &1), None);
    }
}
