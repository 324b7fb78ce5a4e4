//! Counts samples that weigh the same. Pure.
//!
//! Nearly all samples of a recording belong to one event and have the weight of its period. A counter per
//! stack in a vector takes a third of the time of a sum in a hash table.

use nprof_stream::NodeId;

use crate::profile::group::Sum;

/// Nodes with higher ids are not counted: 4 MiB of counters.
const MAX_NODES: usize = 1 << 20;

/// The number of samples of other groups or weights after which one of them becomes the counted one.
const MAX_STRAYS: u32 = 16;

/// The samples of one group that weigh the same, by stack.
#[derive(Debug, Default)]
pub(super) struct EqualSamples {
    /// The number of the group, and the weight of each sample. None before the first.
    of: Option<(usize, u64)>,
    /// By node.
    counts: Vec<u32>,
    /// The nodes with samples.
    nodes: Vec<NodeId>,
    /// Samples that were not of this group and weight.
    strays: u32,
}

/// The result of adding a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The sample is the first of its stack.
    First,
    /// The sample is another one of its stack.
    Again,
    /// The sample was not added.
    Not,
}

impl EqualSamples {
    /// Adds a sample if it has the counted group and weight.
    #[inline]
    pub(super) fn add(&mut self, group: usize, weight: u64, node: NodeId) -> Added {
        if self.of != Some((group, weight)) {
            return Added::Not;
        }
        let Some(count) = self.counts.get_mut(node.0 as usize) else {
            return self.add_beyond(node);
        };
        match *count {
            u32::MAX => Added::Not,
            0 => {
                *count = 1;
                self.nodes.push(node);
                Added::First
            }
            _ => {
                *count += 1;
                Added::Again
            }
        }
    }

    /// Adds a sample with the group and weight of the one that was added last, unless it is the first of
    /// its stack. False if it was not added.
    #[inline]
    pub(super) fn add_again(&mut self, node: NodeId) -> bool {
        match self.counts.get_mut(node.0 as usize) {
            // The first one enters the list of nodes; one more than the highest number is not counted.
            None | Some(0 | &mut u32::MAX) => false,
            Some(count) => {
                *count += 1;
                true
            }
        }
    }

    /// Adds the first sample of a node that has no counter yet.
    #[cold]
    fn add_beyond(&mut self, node: NodeId) -> Added {
        let index = node.0 as usize;
        if index >= MAX_NODES {
            return Added::Not;
        }
        self.counts.resize((index + 1).next_power_of_two(), 0);
        self.counts[index] = 1;
        self.nodes.push(node);
        Added::First
    }

    /// True if the samples of another group or weight, of which the caller has one, should be counted.
    pub(super) fn should_move(&mut self, group: usize, weight: u64) -> bool {
        if self.of == Some((group, weight)) {
            return false;
        }
        self.strays += 1;
        self.of.is_none() || self.strays >= MAX_STRAYS
    }

    /// Forgets all samples, and counts those of another group or weight.
    pub(super) fn move_to(&mut self, group: usize, weight: u64) {
        self.clear();
        self.of = Some((group, weight));
    }

    /// Forgets all samples.
    pub(super) fn clear(&mut self) {
        for node in self.nodes.drain(..) {
            self.counts[node.0 as usize] = 0;
        }
        self.of = None;
        self.strays = 0;
    }

    /// Returns the number of the counted group. None before the first sample.
    pub(super) fn group(&self) -> Option<usize> {
        self.of.map(|(group, _)| group)
    }

    /// Returns the samples of a stack.
    pub(super) fn sum(&self, node: NodeId) -> Sum {
        let count = self.counts.get(node.0 as usize).copied().map_or(0, u64::from);
        let weight = self.of.map_or(0, |(_, weight)| weight);
        Sum::of(count, count.saturating_mul(weight))
    }

    /// Returns the stacks with samples, in the order of their first ones.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_group_and_weight_are_counted() {
        let mut equal = EqualSamples::default();
        assert_eq!(equal.add(3, 10, NodeId(5)), Added::Not);
        assert!(equal.should_move(3, 10));
        equal.move_to(3, 10);
        assert_eq!(equal.add(3, 10, NodeId(5)), Added::First);
        assert!(equal.add_again(NodeId(5)));
        assert!(!equal.add_again(NodeId(4)) && !equal.add_again(NodeId(100)));
        assert_eq!(equal.add(3, 11, NodeId(5)), Added::Not);
        assert_eq!(equal.add(2, 10, NodeId(5)), Added::Not);
        assert_eq!(equal.add(3, 10, NodeId(MAX_NODES as u32)), Added::Not);
        assert_eq!((equal.nodes(), equal.sum(NodeId(5))), (&[NodeId(5)][..], Sum::of(2, 20)));
        equal.move_to(2, 10);
        assert_eq!((equal.nodes(), equal.sum(NodeId(5))), (&[][..], Sum::default()));
    }

    #[test]
    fn counted_group_changes_after_some_samples_of_others() {
        let mut equal = EqualSamples::default();
        equal.move_to(0, 10);
        let strays = (0..100).take_while(|_| !equal.should_move(1, 10)).count();
        assert_eq!(strays, MAX_STRAYS as usize - 1);
        assert!(!equal.should_move(0, 10));
    }
}
