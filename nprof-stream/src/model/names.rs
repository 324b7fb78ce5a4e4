//! Interned names.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// The id of a name in [`Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// The name of samples that a report folded, to bound its memory or because they are too few.
pub const OTHER: &[u8] = b"(other)";

/// Distinct names.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: FxHashMap<Arc<[u8]>, NameId>,
    names: Vec<Arc<[u8]>>,
    bytes: usize,
}

/// Memory that a name takes besides its bytes: the counts of the [`Arc`] (16 bytes), two pointers to it
/// (32), its id, and the empty part of both tables.
const OVERHEAD_BYTES: usize = 64;

impl Names {
    /// Returns the id of a name; equal names have equal ids.
    pub fn intern(&mut self, name: &[u8]) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.names.len() as u32);
        let name: Arc<[u8]> = name.into();
        self.bytes += name.len() + OVERHEAD_BYTES;
        self.names.push(Arc::clone(&name));
        self.ids.insert(name, id);
        id
    }

    /// True if a name has an id.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.ids.contains_key(name)
    }

    /// Returns the memory that the names take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all names.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the name of an id; empty for an id of another set.
    pub fn get(&self, id: NameId) -> &[u8] {
        self.names.get(id.0 as usize).map_or(&[], |name| name)
    }
}
