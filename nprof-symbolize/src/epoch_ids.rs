//! The ids that names have in the epoch at hand.

/// Which numbers of the catalog's names have been defined in this epoch, and as which ids.
#[derive(Default)]
pub(crate) struct EpochIds {
    ids: Vec<u32>,
    count: u32,
}

impl EpochIds {
    pub(crate) fn forget(&mut self) {
        self.ids.clear();
        self.count = 0;
    }

    /// The id of a number, and whether it has yet to be defined. `None` when the stream has no
    /// more ids, which takes 67 million names in one epoch.
    pub(crate) fn id(&mut self, number: u32) -> Option<(u32, bool)> {
        let index = number as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, 0);
        }
        if self.ids[index] != 0 {
            return Some((self.ids[index], false));
        }
        if self.count >= nprof_format::limits::ID {
            return None;
        }
        self.count += 1;
        self.ids[index] = self.count;
        Some((self.count, true))
    }
}
