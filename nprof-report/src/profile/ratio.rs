//! The ratio of two events, such as waiting per call: `--per EVENT`. Pure.
//!
//! Both sums are estimates from samples that were drawn independently of each other. The variance of
//! the logarithm of their ratio is, by the delta method, the sum of their relative variances; the
//! relative variance of a sum of weights is the inverse of its effective sample size. The covariance
//! of two events of one thread, whose time can go to one of them only, is neglected: it is negative
//! for parts of one whole, and the margin is then too small by at most a factor of 1.4.

use nprof_stream::Event;

use crate::profile::group::Sum;
use crate::profile::margin::Confidence;
use crate::profile::summary::{EventSummary, Summary};

/// The measure of an event whose samples are calls of the function at their leaf.
const CALLS: &[u8] = b"calls";

/// The event that others are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Per {
    /// Its index in [`Summary::events`].
    pub event: usize,
    /// True if its samples are calls of their leaf: those of a callee are no calls of the caller.
    pub counts_calls: bool,
    /// True if its weights are counts, and only its stacks were sampled.
    pub is_counted: bool,
}

impl Per {
    /// Returns the event of this name. None if there is none yet.
    ///
    /// # Errors
    ///
    /// A message if no event has the name, and none may come.
    pub fn named(summary: &Summary, name: &str) -> Result<Option<Self>, String> {
        let is_named = |event: &Event| event.name == name.as_bytes();
        match summary.events.iter().position(|event| is_named(&event.event)) {
            Some(_) if !summary.events.iter().all(EventSummary::has_margins) => {
                Err("--per: samples are estimates of another program: ratios have no known error"
                    .to_owned())
            }
            Some(event) => {
                let Event { measure, exact_ns, .. } = &summary.events[event].event;
                let (counts_calls, is_counted) = (measure.word() == CALLS, exact_ns.is_some());
                Ok(Some(Self { event, counts_calls, is_counted }))
            }
            None if summary.live || summary.events.is_empty() => Ok(None),
            None => {
                let names: Vec<String> =
                    (0..summary.events.len()).map(|event| summary.event_name(event)).collect();
                Err(format!("--per: no event {name:?} in the input; it has {}", names.join(", ")))
            }
        }
    }

    /// Returns the samples that a sum of self or total is divided by, given both sums of this event.
    pub fn of(&self, self_: Sum, total: Sum, is_total: bool) -> Sum {
        if is_total && !self.counts_calls { total } else { self_ }
    }
}

/// A sum divided by another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The numerator.
    pub numerator: Sum,
    /// The denominator.
    pub denominator: Sum,
    /// True if the weight of the denominator is a count, of which each sample is one.
    pub is_counted: bool,
}

impl Ratio {
    /// Returns the ratio of the weights. None if the denominator is 0.
    pub fn value(&self) -> Option<f64> {
        let denominator = self.denominator.weight;
        (denominator > 0).then(|| self.numerator.weight as f64 / denominator as f64)
    }

    /// Returns the standard error of the ratio's logarithm. None if one of the sums is 0.
    ///
    /// Of n samples of N counted calls, the variance has the factor 1 - n / N: all calls have no error
    /// (Cochran, Sampling Techniques, 2.5).
    pub fn log_error(&self) -> Option<f64> {
        let [numerator, denominator] =
            [self.numerator, self.denominator].map(Sum::samples_of_equal_weight);
        let calls = self.denominator.weight as f64;
        let missing = if self.is_counted { 1.0 - (denominator / calls).min(1.0) } else { 1.0 };
        let has_both = numerator > 0.0 && denominator > 0.0;
        has_both.then(|| (numerator.recip() + missing * denominator.recip()).sqrt())
    }

    /// Returns the margin of error: the distance from the ratio to the farther end of its interval,
    /// which is symmetric in the logarithm. None if one of the sums is 0: a ratio without samples has
    /// an unknown error.
    pub fn margin(&self, confidence: Confidence) -> Option<f64> {
        Some(self.value()? * (confidence.z() * self.log_error()?).exp_m1())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(stream: &str) -> Summary {
        let mut profile = crate::profile::Profile::new(crate::profile::GroupBy::default());
        profile.read("in", stream.as_bytes(), |_, _, _| {}).unwrap();
        profile.summary
    }

    #[test]
    fn calls_of_a_callee_are_no_calls_of_its_caller() {
        let summary = summary(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cpu\tmeasure=cpu-time\n\
             @event\tid=2\tname=f\tmeasure=calls\n",
        );
        let [self_, total] = [Sum::of(2, 20), Sum::of(5, 50)];
        let of = |name: &str, is_total| {
            let per = Per::named(&summary, name).unwrap().unwrap();
            per.of(self_, total, is_total)
        };
        assert_eq!([of("f", false), of("f", true)], [self_, self_]);
        assert_eq!([of("cpu", false), of("cpu", true)], [self_, total]);
        assert!(Per::named(&summary, "g").unwrap_err().contains("it has cpu, f"));
        assert_eq!(Per::named(&Summary { live: true, ..summary }, "g"), Ok(None));
    }

    #[test]
    fn ratio_of_nothing_has_no_margin() {
        let sum = Sum::of(4, 8);
        let is_counted = false;
        let ratio = |numerator, denominator| Ratio { numerator, denominator, is_counted };
        let confidence = Confidence::default();
        assert_eq!(ratio(sum, Sum::default()).value(), None);
        assert_eq!(ratio(Sum::default(), sum).value(), Some(0.0));
        assert_eq!(ratio(Sum::default(), sum).margin(confidence), None);
        // Four samples each: a standard error of sqrt(1/4 + 1/4) of the logarithm.
        let margin = ratio(sum, sum).margin(confidence).unwrap();
        assert!((margin - ((1.959_964f64 * 0.5f64.sqrt()).exp() - 1.0)).abs() < 1e-5, "{margin}");
    }

    #[test]
    fn sampled_calls_have_the_error_of_those_without_a_sample() {
        let error = |samples, calls| {
            let denominator = Sum::of(samples, calls);
            Ratio { numerator: Sum::of(4, 8), denominator, is_counted: true }.log_error().unwrap()
        };
        assert_eq!(error(9, 9), 0.5, "every call was sampled");
        assert!((error(9, 18) - (0.25 + 0.5 / 9.0f64).sqrt()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn margin_scales_with_the_weights(
            samples in 1..1000u64, other in 1..1000u64, weight in 1..1000u64, factor in 1..1000u64,
        ) {
            let confidence = Confidence::default();
            let margin = |factor| {
                let numerator = Sum::of(samples, samples * weight * factor);
                let denominator = Sum::of(other, other);
                let ratio = Ratio { numerator, denominator, is_counted: false };
                ratio.margin(confidence).unwrap()
            };
            let expected = factor as f64 * margin(1);
            prop_assert!((margin(factor) - expected).abs() < 1e-9 * expected);
        }
    }
}
