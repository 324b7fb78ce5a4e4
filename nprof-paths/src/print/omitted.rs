//! The lines below a table about omitted rows.

use nprof_report::legend;
use nprof_report::profile::{OmittedRows, ReportedEvent};
use nprof_report::report::RowLimits;

/// The rows of an event that a table omits, in its words.
pub(super) struct Omitted<'a> {
    pub(super) event: &'a ReportedEvent,
    /// A row.
    pub(super) noun: &'static str,
    /// The quantity that is summed, after the percentage.
    pub(super) of: &'static str,
    pub(super) dropped: &'a OmittedRows,
    pub(super) not_shown: &'a OmittedRows,
}

impl Omitted<'_> {
    /// Returns the lines, given the limits that dropped rows. Empty if there are none.
    pub(super) fn lines(&self, limits: &RowLimits) -> String {
        self.line(self.dropped, "dropped", &limits.spelled())
            + &self.line(self.not_shown, "not shown", "-n 0 prints all")
    }

    fn line(&self, omitted: &OmittedRows, verb: &str, reason: &str) -> String {
        let share = omitted.sum(self.event.event).percent_of(self.event.whole);
        legend::omitted(omitted, self.noun, verb, &format!(", {share:.2} %{}", self.of), reason)
    }
}
