//! Names, each kept once.

use rustc_hash::FxHashMap;

/// A name that has been seen, see [`Names`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// Every distinct name once. Names outlive epochs: sums that are kept for long are kept by name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    ids: FxHashMap<Box<[u8]>, NameId>,
    names: Vec<Box<[u8]>>,
}

impl Names {
    /// The id of a name, the same for equal names.
    pub fn intern(&mut self, name: &[u8]) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = NameId(self.names.len() as u32);
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }

    /// The name behind an id; empty for one that is not from here.
    pub fn get(&self, id: NameId) -> &[u8] {
        self.names.get(id.0 as usize).map_or(&[], |name| name)
    }
}
