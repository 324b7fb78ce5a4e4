//! Rows of the view `graph`: one per function or cycle.

use nprof_report::report::RowLimits;

use crate::tree::call_tree::Tree;
use crate::tree::graph::{Entry, Graph};
use nprof_report::profile::{OmittedRows, ReportedEvent};

/// The functions of one event.
#[derive(Debug)]
pub struct GraphRows {
    /// The event.
    pub event: ReportedEvent,
    /// All functions: entries that are not reported can be callers and callees of others.
    pub graph: Graph,
    /// The number of reported entries: these come first.
    pub reported: usize,
    /// Entries below the minimum share, with their own samples.
    pub dropped: OmittedRows,
    /// Entries beyond the maximum number of rows, with their own samples.
    pub not_shown: OmittedRows,
}

impl GraphRows {
    /// Returns the reported entries.
    pub fn entries(&self) -> &[Entry] {
        &self.graph.entries[..self.reported]
    }
}

/// Returns the functions of each event, those within the limits first.
pub fn graph_rows(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Vec<GraphRows> {
    let rows =
        |&event: &ReportedEvent| rows_of_event(Graph::from_tree(tree, event.event), event, limits);
    events.iter().map(rows).collect()
}

fn rows_of_event(graph: Graph, event: ReportedEvent, limits: &RowLimits) -> GraphRows {
    let is_large = |entry: &Entry| !limits.is_small(entry.sums.total, event.whole);
    // Shares are of the weight, by which the entries are sorted.
    let large = graph.entries.partition_point(is_large);
    let reported = limits.rows.map_or(large, |rows| rows.min(large));
    let (mut dropped, mut not_shown) = (OmittedRows::default(), OmittedRows::default());
    for entry in &graph.entries[large..] {
        dropped.add_row(event.event, entry.sums.self_);
    }
    for entry in &graph.entries[reported..large] {
        not_shown.add_row(event.event, entry.sums.self_);
    }
    GraphRows { event, graph, reported, dropped, not_shown }
}
