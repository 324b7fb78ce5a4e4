//! The input of every printer, and the lines above a table.

use nprof_report::heading::heading;
use nprof_report::legend;
use nprof_report::profile::{FoldedSums, ReportedEvent, Sum};
use nprof_report::ratio::Per;
use nprof_report::summary::Summary;

use crate::args::Args;
use crate::rows::ratios::CallRatios;
use crate::tree::call_tree::Tree;

/// The input of a printer.
#[derive(Clone, Copy)]
pub(crate) struct PrintContext<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) events: &'a [ReportedEvent],
    /// By event, the samples in calls that were folded to bound memory.
    pub(crate) folded: &'a [Option<FoldedSums>],
    /// The event that the others are divided by.
    pub(crate) per: Option<Per>,
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The terminal's width; None if the report goes to a file or pipe.
    pub(crate) width: Option<usize>,
}

impl PrintContext<'_> {
    /// Returns the name of an event, escaped.
    pub(crate) fn event_name(&self, event: &ReportedEvent) -> String {
        self.summary.event_name(event.event)
    }

    /// Returns the margin of error of a share, in percentage points. None if shares of the event have none.
    pub(crate) fn margin(&self, sum: Sum, event: &ReportedEvent) -> Option<f64> {
        let summary = &self.summary.events[event.event];
        let margin = summary.margin(self.args.options.confidence(), sum, event.whole);
        margin.map(|margin| 100.0 * margin)
    }

    /// Returns the ratios of the calls of an event. None without `--per`.
    pub(crate) fn ratios(&self, event: &ReportedEvent) -> Option<CallRatios<'_>> {
        let per = self.per?;
        let overhead_ns = per.overhead_in(&self.summary.events[event.event]);
        Some(CallRatios::new(self.tree, event.event, per, overhead_ns))
    }

    /// Returns the line above a table on the meaning of the ratios.
    fn per_legend(&self, per: Per) -> String {
        let name = self.summary.event_name(per.event);
        let of = if per.counts_calls {
            "the calls of its leaf".to_owned()
        } else {
            format!("its {name}")
        };
        let overhead = per.legend(self.summary, self.events.iter().map(|event| event.event));
        format!("a path and what is below it is divided by {of} (--per {name}){overhead}")
    }

    /// Returns the line above the table of an event: its name, if there are several.
    pub(crate) fn title(&self, event: &ReportedEvent) -> String {
        // A single event is named in the heading.
        match self.events {
            [_] => "\n".to_owned(),
            _ => format!("\n{}:\n", self.event_name(event)),
        }
    }

    /// Returns a line per event with the samples that count. Empty if all do.
    pub(crate) fn counted(&self) -> Vec<String> {
        legend::counted(self.events, self.summary, &self.args.rules())
    }

    /// Returns the lines above a table: run, event, counted samples, the meaning of 100 %, and the
    /// view's legend.
    pub(crate) fn heading(&self, legend: &str) -> String {
        let mut lines = self.counted();
        lines.extend(self.per.map(|per| self.per_legend(per)));
        if !self.events.is_empty() {
            lines.extend(legend::whole(
                self.args.options.rebase,
                self.args.options.verbose,
                legend,
            ));
        }
        for (event, sums) in self.events.iter().zip(self.folded) {
            // A single event is named in the heading.
            let name = if self.events.len() > 1 { self.event_name(event) } else { String::new() };
            lines.extend(sums.map(|sums| self.args.folded_line(&name, sums, event.whole)));
        }
        heading(self.summary, self.args.options.verbose, &lines, self.width)
    }
}
