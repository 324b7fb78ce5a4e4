//! Interned names.

use rustc_hash::FxHashMap;

/// The id of a name in [`Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// All distinct names. They stay valid across epochs, so that reports can keep sums by name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: FxHashMap<Box<[u8]>, NameId>,
    names: Vec<Box<[u8]>>,
}

impl Names {
    /// Returns the id of a name; equal names have equal ids.
    pub fn intern(&mut self, name: &[u8]) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.names.len() as u32);
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// Returns the name of an id; empty for an id of another set.
    pub fn get(&self, id: NameId) -> &[u8] {
        self.names.get(id.0 as usize).map_or(&[], |name| name)
    }
}
