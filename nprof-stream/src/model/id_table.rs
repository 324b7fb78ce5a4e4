//! A table indexed by id.

use rustc_hash::FxHashMap;

/// A table indexed by id. Dense ids are in a vector; ids far beyond the number of entries are in a
/// map, so that a hostile stream cannot allocate more than its records justify.
#[derive(Clone, Debug)]
pub struct IdTable<T> {
    dense: Vec<Option<T>>,
    sparse: FxHashMap<u32, T>,
    count: usize,
}

impl<T> Default for IdTable<T> {
    fn default() -> Self {
        Self { dense: Vec::new(), sparse: FxHashMap::default(), count: 0 }
    }
}

impl<T> IdTable<T> {
    /// Returns the entry of an id. None if there is none.
    pub fn get(&self, id: u32) -> Option<&T> {
        match self.dense.get(id as usize) {
            Some(entry) => entry.as_ref(),
            None => self.sparse.get(&id),
        }
    }

    /// Returns the entry of an id for changing. None if there is none.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        match self.dense.get_mut(id as usize) {
            Some(entry) => entry.as_mut(),
            None => self.sparse.get_mut(&id),
        }
    }

    /// Returns the number of bytes that [`IdTable::insert`] adds to the table for an id.
    pub fn growth(&self, id: u32) -> usize {
        let index = id as usize;
        if index < self.dense.len() {
            0
        } else if self.is_sparse(index, self.count + 1) {
            // A map with its control bytes is at least seven sixteenths full.
            3 * size_of::<(u32, T)>()
        } else {
            (index + 1 - self.dense.len()) * size_of::<Option<T>>()
        }
    }

    /// True if an index is far beyond this number of entries. At most half of a long vector is empty; 1024
    /// allows for a stream that starts high.
    fn is_sparse(&self, index: usize, count: usize) -> bool {
        index > 2 * count + 1024
    }

    /// Adds or replaces the entry of an id.
    pub fn insert(&mut self, id: u32, value: T) {
        let index = id as usize;
        // Replaced entries count, too: the bound follows the records that arrived.
        self.count += 1;
        if index >= self.dense.len() {
            if self.is_sparse(index, self.count) {
                self.sparse.insert(id, value);
                return;
            }
            // Entries move out of the map as the vector reaches them, since `get` reads the vector
            // first.
            for id in self.dense.len() as u32..=id {
                self.dense.push(if self.sparse.is_empty() {
                    None
                } else {
                    self.sparse.remove(&id)
                });
            }
        }
        self.dense[index] = Some(value);
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.dense.clear();
        self.sparse.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_any_order() {
        let mut table = IdTable::default();
        for id in [70_000, 3, 1, 5_000, 2, 900] {
            table.insert(id, id);
        }
        for id in [70_000, 3, 1, 5_000, 2, 900] {
            assert_eq!(table.get(id), Some(&id));
        }
        assert_eq!(table.get(4), None);
        assert_eq!(table.get(u32::MAX), None);
        assert!(table.dense.len() < 5_000, "memory is proportional to the entries");
        // The vector has the ids up to 1,024, and 5,000 is in the map.
        assert_eq!(table.growth(3), 0);
        assert_eq!(table.growth(80_000), 3 * size_of::<(u32, u32)>());
        assert_eq!(table.growth(901), size_of::<Option<u32>>());
        for id in 1..=5_001 {
            table.insert(id, id);
        }
        assert_eq!(table.get(5_000), Some(&5_000));
        assert_eq!(table.get(70_000), Some(&70_000));
    }
}
