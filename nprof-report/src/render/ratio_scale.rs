//! The unit in which the ratio of two events is printed. Pure.

use nprof_stream::escape::escaped;

use crate::profile::margin::Confidence;
use crate::profile::ratio::Ratio;
use crate::profile::summary::EventSummary;
use crate::render::layout::units;

/// The unit in which ratios of two events are printed.
#[derive(Clone, Debug)]
pub struct RatioScale {
    /// Its name: `µs/calls`, `ms/s`.
    pub unit: String,
    factor: f64,
}

impl RatioScale {
    /// Returns the largest unit of which the ratio of both events in total is at least one. Per time
    /// is per second.
    pub fn of(numerator: &EventSummary, denominator: &EventSummary) -> Self {
        let per_time = denominator.event.measure.is_time();
        let (per, of_per) =
            if per_time { ("s".to_owned(), 1e9) } else { (escaped(&denominator.event.name), 1.0) };
        let [of, divisor] = [numerator.sum, denominator.sum].map(|sum| sum.weight as f64);
        let whole = if divisor > 0.0 { of / divisor * of_per } else { 0.0 };
        let larger = units(&numerator.event).into_iter().find(|(divisor, _)| whole >= *divisor);
        let (divisor, unit) = larger.unwrap_or((1.0, escaped(&numerator.event.unit)));
        Self { unit: format!("{unit}/{per}"), factor: of_per / divisor }
    }

    /// Returns a ratio and its margin in this unit, with four significant digits of the ratio; `-` for
    /// an unknown one.
    pub fn print(&self, ratio: &Ratio, confidence: Confidence) -> [String; 2] {
        let value = ratio.value().map(|value| value * self.factor);
        let digits = value.map_or(2, decimals);
        let margin = ratio.margin(confidence).map(|margin| margin * self.factor);
        [value, margin].map(|number| match number {
            Some(number) => format!("{number:.digits$}"),
            None => "-".to_owned(),
        })
    }

    /// Returns a ratio, in the units of the weights, in this unit.
    pub fn print_value(&self, ratio: f64) -> String {
        let value = ratio * self.factor;
        format!("{value:.*}", decimals(value))
    }
}

/// Returns the decimals of a number with four significant digits.
fn decimals(value: f64) -> usize {
    if value <= 0.0 {
        return 2;
    }
    // The first digit of 0.05 is the second decimal.
    (3 - value.log10().floor() as i32).clamp(0, 9) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Sum;
    use crate::profile::ratio::DivisorError;
    use nprof_stream::{Event, Measure};

    fn event(measure: Measure, weight: u64) -> EventSummary {
        let unit = measure.unit().into();
        let event = Event { name: b"calls".to_vec(), unit, measure, ..Event::default() };
        EventSummary { event, sum: Sum::of(100, weight), ..EventSummary::default() }
    }

    fn ratio(numerator: Sum, denominator: Sum) -> Ratio {
        Ratio { numerator, overhead: 0, denominator, error: DivisorError::Sampled }
    }

    #[test]
    fn ratio_is_printed_in_a_readable_unit() {
        let cases = [
            (Measure::WaitTime, Measure::Count, 2_800_000, "ns/calls", "28.00"),
            (Measure::WaitTime, Measure::Count, 50_000, "ns/calls", "0.5000"),
            (Measure::WaitTime, Measure::CpuTime, 50_000, "ms/s", "500.0"),
            (Measure::Bytes, Measure::Count, 1_234_567_890, "KiB/calls", "12.06"),
            (Measure::Bytes, Measure::Count, 1_000_000, "bytes/calls", "10.00"),
        ];
        for (of, per, weight, unit, number) in cases {
            let (of, per) = (event(of, weight), event(per, 100_000));
            let scale = RatioScale::of(&of, &per);
            let [printed, margin] = scale.print(&ratio(of.sum, per.sum), Confidence::default());
            assert_eq!((&scale.unit[..], &printed[..]), (unit, number));
            assert_eq!(
                margin.split('.').nth(1).map(str::len),
                number.split('.').nth(1).map(str::len)
            );
        }
        let none = ratio(Sum::default(), Sum::default());
        let scale = RatioScale::of(&event(Measure::Count, 1), &event(Measure::Count, 1));
        assert_eq!(scale.print(&none, Confidence::default()), ["-", "-"]);
    }
}
