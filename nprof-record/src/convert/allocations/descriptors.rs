//! The descriptors that a process has. Pure.

use std::collections::BTreeMap;

use nprof_stream::NodeId;

/// The most descriptors of a process that are followed: the kernel's default limit (/proc/sys/fs/nr_open).
const DESCRIPTORS_MAX: usize = 1 << 20;

/// An open descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenDescriptor {
    /// The stack of its opening.
    pub(crate) node: NodeId,
    /// The time of its opening.
    pub(crate) time_ns: u64,
    /// The file or peer.
    pub(crate) object: Vec<u8>,
}

/// The descriptors of a process, by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptors(BTreeMap<u32, OpenDescriptor>);

impl Descriptors {
    /// Adds a descriptor. Returns the one with the same number of which the end was not seen.
    pub(crate) fn open(&mut self, number: u32, opened: OpenDescriptor) -> Option<OpenDescriptor> {
        // The program may have written any number of records.
        if self.0.len() == DESCRIPTORS_MAX && !self.0.contains_key(&number) {
            return None;
        }
        self.0.insert(number, opened)
    }

    /// Returns the open descriptor with a number.
    pub(crate) fn get(&self, number: u32) -> Option<&OpenDescriptor> {
        self.0.get(&number)
    }

    /// Removes the descriptors of a range of numbers, and returns those that were open.
    pub(crate) fn close(&mut self, first: u32, last: u32) -> Vec<OpenDescriptor> {
        if first > last {
            return Vec::new();
        }
        let numbers: Vec<_> = self.0.range(first..=last).map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| self.0.remove(number)).collect()
    }

    /// Returns the descriptors that a child of a fork at a time has.
    pub(crate) fn forked_at(&self, time_ns: u64) -> Self {
        let before = self.0.iter().filter(|(_, opened)| opened.time_ns <= time_ns);
        Self(before.map(|(number, opened)| (*number, opened.clone())).collect())
    }

    /// Moves all descriptors of `other` here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Returns the open descriptors, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &OpenDescriptor)> {
        self.0.iter().map(|(number, opened)| (*number, opened))
    }

    /// Removes the descriptors of which `lives` is false, and returns them.
    pub(crate) fn split_off(&mut self, lives: impl Fn(u32) -> bool) -> Vec<OpenDescriptor> {
        let closed = self.0.extract_if(.., |number, _| !lives(*number));
        closed.map(|(_, descriptor)| descriptor).collect()
    }

    /// Drops the stacks, because their ids are not valid any more.
    pub(crate) fn drop_nodes(&mut self) {
        self.0.values_mut().for_each(|opened| opened.node = NodeId::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(node: u32, time_ns: u64) -> OpenDescriptor {
        OpenDescriptor { node: NodeId(node), time_ns, object: b"/file".to_vec() }
    }

    #[test]
    fn range_closes_open_descriptors_only() {
        let mut descriptors = Descriptors::default();
        for (number, node) in [(3, 1), (5, 2), (9, 3)] {
            assert_eq!(descriptors.open(number, opened(node, 1)), None);
        }
        assert_eq!(descriptors.open(5, opened(4, 2)), Some(opened(2, 1)), "dup2 has closed it");
        assert_eq!(descriptors.close(4, u32::MAX), [opened(4, 2), opened(3, 1)]);
        assert_eq!(descriptors.close(4, 3), []);
        assert_eq!(descriptors.iter().map(|(number, _)| number).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn number_of_descriptors_is_bounded() {
        let mut descriptors = Descriptors::default();
        for number in 0..=DESCRIPTORS_MAX as u32 {
            descriptors.open(number, OpenDescriptor { object: Vec::new(), ..opened(1, 1) });
        }
        assert_eq!(descriptors.iter().count(), DESCRIPTORS_MAX);
        assert!(descriptors.open(7, opened(2, 2)).is_some(), "known ones are replaced");
    }

    #[test]
    fn child_has_descriptors_of_the_time_of_its_fork() {
        let mut descriptors = Descriptors::default();
        descriptors.open(3, opened(1, 1));
        descriptors.open(4, opened(1, 5));
        let mut child = descriptors.forked_at(4);
        assert_eq!(child.iter().map(|(number, _)| number).collect::<Vec<_>>(), [3]);
        let mut image = Descriptors::default();
        image.append(&mut child);
        assert_eq!(child.iter().count(), 0);
        assert_eq!(image.split_off(|number| number != 3), [opened(1, 1)]);
        assert_eq!(image.iter().count(), 0);
    }
}
