//! The descriptors that a process has. Pure.

use std::collections::{BTreeMap, VecDeque};

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

/// A descriptor that was closed.
#[derive(Clone, Debug)]
struct ClosedDescriptor {
    number: u32,
    opened: OpenDescriptor,
    closed_ns: u64,
}

/// The descriptors of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptors {
    /// By their numbers.
    open: BTreeMap<u32, OpenDescriptor>,
    /// The latest closed ones, the oldest first.
    closed: VecDeque<ClosedDescriptor>,
    closed_max: usize,
}

impl Descriptors {
    /// Adds a descriptor. Returns the one with the same number of which the end was not seen.
    pub(crate) fn open(&mut self, number: u32, opened: OpenDescriptor) -> Option<OpenDescriptor> {
        // The program may have written any number of records.
        if self.open.len() == DESCRIPTORS_MAX && !self.open.contains_key(&number) {
            return None;
        }
        let closed_ns = opened.time_ns;
        let replaced = self.open.insert(number, opened)?;
        self.note_closed(number, replaced.clone(), closed_ns);
        Some(replaced)
    }

    /// Returns the open descriptor with a number.
    pub(crate) fn get(&self, number: u32) -> Option<&OpenDescriptor> {
        self.open.get(&number)
    }

    /// Removes the descriptors of a range of numbers, and returns those that were open.
    pub(crate) fn close(&mut self, first: u32, last: u32, time_ns: u64) -> Vec<OpenDescriptor> {
        if first > last {
            return Vec::new();
        }
        let numbers: Vec<_> = self.open.range(first..=last).map(|(number, _)| *number).collect();
        let mut closed = Vec::new();
        for number in numbers {
            let Some(opened) = self.open.remove(&number) else { continue };
            self.note_closed(number, opened.clone(), time_ns);
            closed.push(opened);
        }
        closed
    }

    fn note_closed(&mut self, number: u32, opened: OpenDescriptor, closed_ns: u64) {
        self.closed.push_back(ClosedDescriptor { number, opened, closed_ns });
        self.keep_closed(self.closed_max);
    }

    /// Changes the number of closed descriptors that are kept for children that were forked before. It is 0 at first.
    pub(crate) fn keep_closed(&mut self, most: usize) {
        self.closed_max = most;
        let surplus = self.closed.len().saturating_sub(most);
        self.closed.drain(..surplus);
    }

    /// Returns the descriptors that a child of a fork at a time has, as far as their end since then is known.
    pub(crate) fn forked_at(&self, time_ns: u64) -> Self {
        let since = self.closed.iter().filter(|closed| closed.closed_ns > time_ns);
        let since = since.map(|closed| (closed.number, &closed.opened));
        let before = self.iter().chain(since).filter(|(_, opened)| opened.time_ns <= time_ns);
        let open = before.map(|(number, opened)| (number, opened.clone())).collect();
        Self { open, ..Self::default() }
    }

    /// Takes all descriptors of `other`, in which they end now.
    pub(crate) fn take_from(&mut self, other: &mut Self, time_ns: u64) {
        self.open.extend(other.open.clone());
        other.close(0, u32::MAX, time_ns);
    }

    /// Returns the open descriptors, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &OpenDescriptor)> {
        self.open.iter().map(|(number, opened)| (*number, opened))
    }

    /// Removes the descriptors of which `lives` is false, and returns them.
    pub(crate) fn split_off(&mut self, lives: impl Fn(u32) -> bool) -> Vec<OpenDescriptor> {
        let closed = self.open.extract_if(.., |number, _| !lives(*number));
        closed.map(|(_, descriptor)| descriptor).collect()
    }

    /// Drops the stacks, because their ids are not valid any more.
    pub(crate) fn drop_nodes(&mut self) {
        let closed = self.closed.iter_mut().map(|closed| &mut closed.opened);
        self.open.values_mut().chain(closed).for_each(|opened| opened.node = NodeId::NONE);
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
        assert_eq!(descriptors.close(4, u32::MAX, 3), [opened(4, 2), opened(3, 1)]);
        assert_eq!(descriptors.close(4, 3, 3), []);
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
        child.keep_closed(1);
        assert_eq!(child.iter().map(|(number, _)| number).collect::<Vec<_>>(), [3]);
        let mut image = Descriptors::default();
        image.take_from(&mut child, 9);
        assert_eq!(child.iter().count(), 0);
        assert_eq!(child.forked_at(8).iter().count(), 1, "a child of the image before");
        assert_eq!(image.split_off(|number| number != 3), [opened(1, 1)]);
        assert_eq!(image.iter().count(), 0);
    }

    #[test]
    fn child_has_descriptors_that_were_closed_after_its_fork() {
        let mut descriptors = Descriptors::default();
        descriptors.keep_closed(4);
        for number in 3..6 {
            descriptors.open(number, opened(number, 1));
        }
        descriptors.close(3, 3, 4);
        descriptors.open(3, opened(7, 5));
        descriptors.open(4, opened(8, 6));
        descriptors.close(5, 5, 7);
        let of_child = |time_ns| {
            let child = descriptors.forked_at(time_ns);
            child.iter().map(|(number, opened)| (number, opened.node.0)).collect::<Vec<_>>()
        };
        assert_eq!(of_child(0), []);
        assert_eq!(of_child(3), [(3, 3), (4, 4), (5, 5)]);
        assert_eq!(of_child(4), [(4, 4), (5, 5)], "at the same time, the end is earlier");
        assert_eq!(of_child(5), [(3, 7), (4, 4), (5, 5)]);
        assert_eq!(of_child(7), [(3, 7), (4, 8)]);
        descriptors.keep_closed(1);
        let child = descriptors.forked_at(3);
        assert_eq!(child.iter().map(|(number, _)| number).collect::<Vec<_>>(), [5], "the latest");
    }
}
