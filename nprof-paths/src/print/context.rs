//! The input of every printer, and the lines above a table.

use nprof_report::legend::{self, Counted};
use nprof_report::profile::ReportedEvent;
use nprof_report::report::heading;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::args::Args;
use crate::tree::call_tree::Tree;

/// The input of a printer.
#[derive(Clone, Copy)]
pub(crate) struct PrintContext<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) events: &'a [ReportedEvent],
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The terminal's width; None if the report goes to a file or pipe.
    pub(crate) width: Option<usize>,
}

impl PrintContext<'_> {
    /// Returns the name of an event, escaped.
    pub(crate) fn event_name(&self, event: &ReportedEvent) -> String {
        escaped(&self.summary.events[event.event].event.name)
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
        let counted = |event: &ReportedEvent| Counted {
            event: self.event_name(event),
            counted: event.counted,
            all: self.summary.events[event.event].sum,
        };
        let events: Vec<Counted> = self.events.iter().map(counted).collect();
        legend::counted(&events, &self.args.rules())
    }

    /// Returns the lines above a table: run, event, counted samples, the meaning of 100 %, and the
    /// view's legend.
    pub(crate) fn heading(&self, legend: &str) -> String {
        let mut lines = self.counted();
        if !self.events.is_empty() {
            let rebase = self.args.options.rebase;
            let whole = legend::whole(rebase);
            // With --rebase the first line is too long to be continued.
            let separator = if rebase { "\n" } else { " " };
            let legend = if legend.is_empty() { "" } else { &format!(";{separator}{legend}") };
            lines.extend(format!("{whole}{legend}").lines().map(|line| line.trim_end().to_owned()));
        }
        heading(self.summary, &lines, self.width)
    }
}
