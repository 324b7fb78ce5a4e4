//! The columns of ratios (`--per`) in the table of a tree: the divisor, the ratio, its margin of error.

use nprof_report::layout::Scale;
use nprof_report::profile::ReportedEvent;
use nprof_report::ratio::{Per, Ratio};
use nprof_report::ratio_scale::RatioScale;

use crate::print::context::PrintContext;

/// The cells of all lines, below those of the head.
pub(crate) struct RatioColumns {
    cells: Vec<[String; 3]>,
    widths: [usize; 3],
}

impl RatioColumns {
    /// Lays out the ratios of the lines of an event; None for a line without one.
    pub(crate) fn new(
        context: &PrintContext<'_>,
        event: &ReportedEvent,
        per: Per,
        ratios: impl Iterator<Item = Option<Ratio>>,
    ) -> Self {
        let [dividend, divisor] =
            [event.event, per.event].map(|event| &context.summary.events[event]);
        let (scale, of_ratio) = (Scale::of(divisor), RatioScale::of(dividend, divisor));
        let name = context.summary.event_name(per.event);
        // Calls have no unit, and their event is named after them.
        let unit = if per.counts_calls { name } else { format!("{name} {}", scale.unit) };
        let mut cells = vec![[unit, of_ratio.unit.clone(), "±".to_owned()]];
        let confidence = context.args.options.confidence();
        cells.extend(ratios.map(|ratio| match ratio {
            Some(ratio) => {
                let [value, margin] = of_ratio.print(&ratio, confidence);
                [scale.print(ratio.denominator.weight), value, margin]
            }
            None => Default::default(),
        }));
        let widest = |column: usize| {
            cells.iter().map(|line: &[String; 3]| line[column].chars().count()).max()
        };
        let widths = [0, 1, 2].map(|column| widest(column).unwrap_or(0));
        Self { cells, widths }
    }

    /// Returns the cells of the head.
    pub(crate) fn head(&self) -> String {
        self.text(0)
    }

    /// Returns the cells of a line.
    pub(crate) fn line(&self, index: usize) -> String {
        self.text(index + 1)
    }

    fn text(&self, index: usize) -> String {
        let [divisor, ratio, margin] = &self.cells[index];
        let [first, second, third] = self.widths;
        format!("{divisor:>first$}  {ratio:>second$} {margin:>third$}  ")
    }
}
