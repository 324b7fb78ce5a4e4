//! Runs the tool: from the command line to the printed report.

use std::process::ExitCode;

use nprof_report::args::StackFormat;
use nprof_report::profile::{Context, FoldedSums, GroupBy, GroupKey, ReportedEvent, Sum};
use nprof_report::ratio::Per;
use nprof_report::report::{self, Failure, Report};
use nprof_report::summary::Summary;

use crate::args::{Args, TOOL, View};
use crate::print::context::PrintContext;
use crate::print::dispatch;
use crate::select;
use crate::tree::aggregate::Aggregator;
use crate::tree::call_tree::Tree;
use crate::tree::path_filter::apply_filters;

/// The number of calls in a page, which has 5 bytes for each.
const MAX_PAGE_NODES: usize = 100_000;

/// Runs nprof-paths with the arguments of the process; returns its exit status.
pub fn run() -> ExitCode {
    let args = match Args::get(TOOL) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let is_page = args.format == StackFormat::Html;
    let aggregator = Aggregator::new(is_page || args.format.is_stacks(), args.filter());
    let aggregator = if is_page { aggregator.with_timeline(MAX_PAGE_NODES) } else { aggregator };
    let aggregator =
        if has_whole_paths(&args) { aggregator } else { aggregator.without_whole_paths() };
    let report = PathsReport { aggregator, args: &args };
    report::run(
        TOOL,
        &args.options,
        report,
        &|trees: &EventTrees, summary: &_, width, out: &mut _| {
            let EventTrees { tree, events, folded, per } = trees;
            let (per, args) = (*per, &args);
            dispatch::report(&PrintContext { tree, events, folded, per, summary, args, width }, out)
        },
    )
}

/// True if the report has each path from its beginning. A tree as a table indents its lines as much.
fn has_whole_paths(args: &Args) -> bool {
    match args.format {
        StackFormat::Table | StackFormat::Folded => true,
        StackFormat::Flamegraph | StackFormat::Icicle | StackFormat::Html => false,
        StackFormat::Tsv | StackFormat::Csv | StackFormat::Json => args.view == View::Paths,
    }
}

/// The samples by path, and the options that select paths.
#[derive(Clone)]
struct PathsReport<'a> {
    aggregator: Aggregator,
    args: &'a Args,
}

impl Report for PathsReport<'_> {
    type Rows = EventTrees;

    fn group_by(&self) -> GroupBy {
        self.aggregator.group_by()
    }

    fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        self.aggregator.add(context, group, sum);
    }

    fn rows(&self, summary: &Summary) -> Result<EventTrees, Failure> {
        let tree = apply_filters(self.aggregator.finish(), &self.args.path_filters);
        let per = select::per(summary, self.args)?;
        let events = select::events(summary, self.args)?;
        let events = select::reported_events(&tree, &events, summary, self.args);
        let folded = events.iter().map(|event| tree.folded(event.event)).collect();
        Ok(EventTrees { tree, events, folded, per })
    }

    fn notes(&self, summary: &Summary) -> Vec<String> {
        let note = select::note(summary, self.args);
        // A table has it in its heading.
        let is_table = self.args.format == StackFormat::Table;
        let mut events = select::events(summary, self.args).unwrap_or_default();
        events.retain(|_| !is_table);
        let folded = self.aggregator.folded(&events).into_iter().map(|(event, sums)| {
            let whole = summary.events[event].sum;
            self.args.folded_line(&summary.event_name(event), sums, whole)
        });
        let unmatched = self.aggregator.notes(&self.args.path_filters);
        note.into_iter().chain(folded).chain(unmatched).collect()
    }
}

/// The call tree, and the events to report. The view determines the rows of the tree.
struct EventTrees {
    tree: Tree,
    events: Vec<ReportedEvent>,
    /// By reported event, the samples in calls that were folded to bound memory.
    folded: Vec<Option<FoldedSums>>,
    /// The event that the others are divided by. It is not among `events`.
    per: Option<Per>,
}
