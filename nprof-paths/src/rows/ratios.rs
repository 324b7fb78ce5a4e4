//! An event divided by another one on the same paths: `--per EVENT`.

use nprof_report::profile::{OmittedRows, ReportedEvent, Sum};
use nprof_report::ratio::{Per, Ratio};
use nprof_report::report::RowLimits;
use nprof_report::summary::Summary;
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{NodeIndex, Tree, largest_first};
use crate::tree::same_paths::same_paths;

/// The ratios of the calls of an event.
#[derive(Debug)]
pub struct CallRatios<'a> {
    tree: &'a Tree,
    per: Per,
    /// The part of the event's weight that recording a unit of the divisor adds, in ns.
    overhead_ns: u64,
    /// By node of the event, that of the divisor on the same path.
    divisors: FxHashMap<NodeIndex, NodeIndex>,
}

impl<'a> CallRatios<'a> {
    /// Finds the divisor of each call of an event. Recording a unit of it adds `overhead_ns` to the event.
    pub fn new(tree: &'a Tree, event: usize, per: Per, overhead_ns: u64) -> Self {
        Self { tree, per, overhead_ns, divisors: same_paths(tree, event, per.event) }
    }

    /// Returns the ratio of a call with its callees. A function that calls itself has several nodes, the
    /// outermost first: its time is in the total of the first, its calls are those of all.
    pub fn of(&self, mut nodes: impl Iterator<Item = NodeIndex>) -> Ratio {
        let (numerator, denominator) = Default::default();
        let mut ratio = Ratio { numerator, overhead: 0, denominator, error: self.per.error };
        let Some(first) = nodes.next() else { return ratio };
        ratio.numerator = self.tree.nodes[first].total;
        ratio.denominator = self.divisor(first);
        // All calls of the total, also those of callees.
        let below = self.divisors.get(&first).map_or(0, |&it| self.tree.nodes[it].total.weight);
        ratio.overhead = below.saturating_mul(self.overhead_ns);
        // A total of an inner call is part of that of the outermost one, a call is not.
        if self.per.counts_calls {
            nodes.for_each(|node| ratio.denominator.add(self.divisor(node)));
        }
        ratio
    }

    fn divisor(&self, node: NodeIndex) -> Sum {
        // A call without samples of the divisor is divided by 0, and has no ratio.
        let node = self.divisors.get(&node).map(|&divisor| &self.tree.nodes[divisor]);
        node.map_or(Sum::default(), |node| self.per.of(node.self_, node.total, true))
    }
}

/// A path on which samples of the divisor end.
#[derive(Clone, Copy, Debug)]
pub struct RatioPath {
    /// The leaf of the path among the calls of the divisor.
    pub leaf: NodeIndex,
    /// The same call among those of the event. None if the event has no samples on the path.
    pub node: Option<NodeIndex>,
    /// The samples of the event on the path and below it, divided by those of the divisor.
    pub ratio: Ratio,
}

/// The paths of the divisor of one event.
#[derive(Debug)]
pub struct RatioPaths {
    /// The event that is divided.
    pub event: ReportedEvent,
    /// The reported paths, those with the largest total of the event first, equal ones by name.
    pub paths: Vec<RatioPath>,
    /// Paths below the minimum share, with the samples of the event that end on them: totals overlap.
    pub dropped: OmittedRows,
    /// Paths beyond the maximum number of rows.
    pub not_shown: OmittedRows,
}

/// Returns the paths of each event within the limits.
pub fn ratio_paths(
    tree: &Tree,
    summary: &Summary,
    events: &[ReportedEvent],
    per: Per,
    limits: &RowLimits,
) -> Vec<RatioPaths> {
    let paths = |&event: &ReportedEvent| {
        let overhead_ns = per.overhead_in(&summary.events[event.event]);
        paths_of_event(tree, event, per, overhead_ns, limits)
    };
    events.iter().map(paths).collect()
}

fn paths_of_event(
    tree: &Tree,
    event: ReportedEvent,
    per: Per,
    overhead_ns: u64,
    limits: &RowLimits,
) -> RatioPaths {
    // From the divisor: a path without samples of the event has a ratio of 0.
    let dividends = same_paths(tree, per.event, event.event);
    let path = |leaf: NodeIndex| {
        let node = dividends.get(&leaf).copied();
        let numerator = node.map_or(Sum::default(), |node| tree.nodes[node].total);
        let divisor = &tree.nodes[leaf];
        let denominator = per.of(divisor.self_, divisor.total, true);
        let overhead = divisor.total.weight.saturating_mul(overhead_ns);
        let ratio = Ratio { numerator, overhead, denominator, error: per.error };
        RatioPath { leaf, node, ratio }
    };
    let mut paths: Vec<RatioPath> = tree.leaves(per.event).into_iter().map(path).collect();
    let (mut dropped, mut not_shown) = (OmittedRows::default(), OmittedRows::default());
    let self_ = |path: &RatioPath| path.node.map_or(Sum::default(), |node| tree.nodes[node].self_);
    paths.retain(|path| {
        let is_small = limits.is_small(path.ratio.numerator, event.whole);
        if is_small {
            dropped.add_row(event.event, self_(path));
        }
        !is_small
    });
    // The sort is stable and leaves come in the order of names.
    paths.sort_by(|a, b| {
        largest_first(a.ratio.numerator, b.ratio.numerator)
            .then_with(|| largest_first(a.ratio.denominator, b.ratio.denominator))
    });
    if let Some(count) = limits.rows.filter(|&count| count < paths.len()) {
        for path in paths.drain(count..) {
            not_shown.add_row(event.event, self_(&path));
        }
    }
    RatioPaths { event, paths, dropped, not_shown }
}
