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
        let has_margins = self.summary.events[event.event].has_margins();
        has_margins.then(|| 100.0 * self.args.options.confidence().margin(sum, event.whole))
    }
}
