//! The input of every printer.

use nprof_report::profile::{ReportedEvent, Sum};
use nprof_report::summary::Summary;

use crate::args::Args;
use crate::rows::select::Selected;

/// The input of a printer.
#[derive(Clone, Copy)]
pub(crate) struct PrintContext<'a> {
    pub(crate) selected: &'a Selected,
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
}
