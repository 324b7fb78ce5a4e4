//! Rows of the view `paths`: one per distinct call path.

use nprof_report::report::RowLimits;

use crate::tree::call_tree::{NodeIndex, Tree, largest_first};
use nprof_report::profile::{OmittedRows, ReportedEvent};

/// The paths of one event.
#[derive(Debug)]
pub struct PathRows {
    /// The event.
    pub event: ReportedEvent,
    /// The leaves of the reported paths, the largest first, equal ones by name.
    pub paths: Vec<NodeIndex>,
    /// Paths below the minimum share.
    pub dropped: OmittedRows,
    /// Paths beyond the maximum number of rows.
    pub not_shown: OmittedRows,
}

/// Returns the paths of each event within the limits.
pub fn path_rows(tree: &Tree, events: &[ReportedEvent], limits: &RowLimits) -> Vec<PathRows> {
    events.iter().map(|&event| rows_of_event(tree, event, limits)).collect()
}

fn rows_of_event(tree: &Tree, event: ReportedEvent, limits: &RowLimits) -> PathRows {
    let mut dropped = OmittedRows::default();
    let mut paths = tree.leaves(event.event);
    paths.retain(|&leaf| {
        let self_ = tree.nodes[leaf].self_;
        let is_small = limits.is_small(self_, event.whole);
        if is_small {
            dropped.add_row(event.event, self_);
        }
        !is_small
    });
    // The sort is stable and leaves come in the order of names.
    paths.sort_by(|&a, &b| largest_first(tree.nodes[a].self_, tree.nodes[b].self_));
    let mut not_shown = OmittedRows::default();
    if let Some(count) = limits.rows.filter(|&count| count < paths.len()) {
        for leaf in paths.drain(count..) {
            not_shown.add_row(event.event, tree.nodes[leaf].self_);
        }
    }
    PathRows { event, paths, dropped, not_shown }
}
