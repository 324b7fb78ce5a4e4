//! The memory of processes: the image and offset of an address. Pure.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

/// Mapped code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The address after its last one.
    pub(super) end: u64,
    /// The difference of an address and its offset in the image.
    pub(super) bias: u64,
    /// The number of the image.
    pub(super) image: u32,
}

/// The mappings of a process by their first addresses.
type Mappings = BTreeMap<u64, Mapping>;

/// The memory of all processes, and of the kernel.
#[derive(Debug, Default)]
pub(super) struct AddressSpaces {
    /// Shared between a process and its child until one of them changes.
    processes: FxHashMap<u32, Rc<Mappings>>,
    kernel: Mappings,
}

impl AddressSpaces {
    /// Adds a mapping of a process, in the place of those that overlap it.
    pub(super) fn map(&mut self, pid: u32, start: u64, mapping: Mapping) {
        // Copied only if a child shares them.
        let mappings = Rc::make_mut(self.processes.entry(pid).or_default());
        insert(mappings, start, mapping);
    }

    /// Adds a mapping of the kernel.
    pub(super) fn map_kernel(&mut self, start: u64, mapping: Mapping) {
        insert(&mut self.kernel, start, mapping);
    }

    /// Gives a process the memory of its parent.
    pub(super) fn fork(&mut self, parent: u32, pid: u32) {
        if let Some(mappings) = self.processes.get(&parent).cloned() {
            self.processes.insert(pid, mappings);
        }
    }

    /// Forgets a process that ended, or its memory before it executes another file.
    pub(super) fn clear(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// True if a process has mapped code.
    pub(super) fn has_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Returns the image and offset of an address. None if nothing is mapped there.
    pub(super) fn find(&self, pid: u32, is_kernel: bool, address: u64) -> Option<(u32, u64)> {
        let mappings = match is_kernel {
            true => &self.kernel,
            false => self.processes.get(&pid)?,
        };
        let (_, mapping) = mappings.range(..=address).next_back()?;
        let is_inside = address < mapping.end;
        is_inside.then(|| (mapping.image, address.wrapping_sub(mapping.bias)))
    }
}

/// Inserts a mapping, and cuts those that overlap it.
fn insert(mappings: &mut Mappings, start: u64, mapping: Mapping) {
    let before = mappings.range(..start).next_back().map(|(&at, &before)| (at, before));
    if let Some((at, before)) = before.filter(|(_, before)| before.end > start) {
        mappings.insert(at, Mapping { end: start, ..before });
        if before.end > mapping.end {
            mappings.insert(mapping.end, before);
        }
    }
    let inside: Vec<u64> = mappings.range(start..mapping.end).map(|(&at, _)| at).collect();
    for at in inside {
        if let Some(old) = mappings.remove(&at).filter(|old| old.end > mapping.end) {
            mappings.insert(mapping.end, old);
        }
    }
    mappings.insert(start, mapping);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mapping_replaces_the_part_that_it_overlaps() {
        let mut spaces = AddressSpaces::default();
        let mapping = |end, image| Mapping { end, bias: 0, image };
        spaces.map(1, 10, mapping(50, 0));
        spaces.map(1, 20, mapping(30, 1));
        spaces.fork(1, 2);
        spaces.map(2, 0, mapping(25, 2));
        let found = |pid, address| spaces.find(pid, false, address).map(|(image, _)| image);
        assert_eq!(
            [9, 10, 20, 29, 30, 50].map(|at| found(1, at)),
            [None, Some(0), Some(1), Some(1), Some(0), None]
        );
        assert_eq!([9, 24, 25, 49].map(|at| found(2, at)), [Some(2), Some(2), Some(1), Some(0)]);
        assert_eq!(spaces.find(1, true, 20), None);
    }
}
