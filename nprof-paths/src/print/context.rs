//! What a report is made of, and what stands above a table of it.

use nprof_report::report::heading;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::args::Args;
use crate::select::Shown;
use crate::tree::call_tree::Tree;

/// What a report is made of.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) shown: &'a [Shown],
    pub(crate) summary: &'a Summary,
    pub(crate) args: &'a Args,
    /// The terminal's, if it goes to one.
    pub(crate) width: Option<usize>,
}

impl Input<'_> {
    /// The name of an event, safe for print.
    pub(crate) fn event_name(&self, shown: &Shown) -> String {
        escaped(&self.summary.events[shown.event].event.name)
    }

    /// What stands above the table of an event.
    pub(crate) fn title(&self, shown: &Shown) -> String {
        match self.shown {
            [_] => "\n".to_owned(),
            _ => format!("\n{}:\n", self.event_name(shown)),
        }
    }

    /// How many samples count, if not all.
    pub(crate) fn counted(&self) -> Vec<String> {
        let rules = self.args.rules().join(" ");
        let line = |shown: &Shown| {
            let name = match self.shown {
                [_] => String::new(),
                _ => format!(" of {}", self.event_name(shown)),
            };
            let all = self.summary.events[shown.event].sum;
            let (some, share) = (shown.counted.samples, shown.counted.percent_of(all));
            let all = all.samples;
            format!("counted: {some} of {all} samples{name}, {share:.2} % ({rules})")
        };
        if rules.is_empty() { Vec::new() } else { self.shown.iter().map(line).collect() }
    }

    /// The lines above a table: the facts, what is counted, and what 100 % and all else is.
    pub(crate) fn heading(&self, legend: &str) -> String {
        let mut lines = self.counted();
        if !self.shown.is_empty() {
            let (whole, end) = match self.args.options.rebase {
                false => ("100 % is all samples of the event", " "),
                true => ("100 % is the samples of the event that are counted (--rebase)", "\n"),
            };
            let legend = if legend.is_empty() { "" } else { &format!(";{end}{legend}") };
            lines.extend(format!("{whole}{legend}").lines().map(|line| line.trim_end().to_owned()));
        }
        heading(self.summary, &lines, self.width)
    }
}
