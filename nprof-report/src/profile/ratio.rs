//! The ratio of two events, such as waiting per call: `--per EVENT`. Pure.
//!
//! Both sums are estimates from samples that were drawn independently of each other. The variance of
//! the logarithm of their ratio is, by the delta method, the sum of their relative variances; the
//! relative variance of a sum of weights is the inverse of its effective sample size. The covariance
//! of two events of one thread, whose time can go to one of them only, is neglected: it is negative
//! for parts of one whole, and the margin is then too small by at most a factor of 1.4.
//!
//! Counting calls takes CPU time, which is part of the time of the callers. The recorder measures it
//! for a call; with the number of calls it is taken off.

use nprof_stream::{Event, Measure};

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
    /// The error of its sums.
    pub error: DivisorError,
    /// The CPU time that recording adds to each unit of its weight, in ns; 0 if it is unknown.
    pub overhead_ns: u64,
}

/// The error of the sum that another one is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivisorError {
    /// It is an estimate from samples.
    Sampled,
    /// All was counted, and some of it has a stack: the sum is an estimate from those.
    StacksSampled,
    /// None: it was counted.
    None,
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
                let divisor = &summary.events[event];
                let Event { measure, exact_ns, .. } = &divisor.event;
                let counts_calls = measure.word() == CALLS;
                let error = match exact_ns {
                    Some(_) => DivisorError::StacksSampled,
                    None => DivisorError::Sampled,
                };
                let overhead_ns = divisor.overhead.mean_ns();
                Ok(Some(Self { event, counts_calls, error, overhead_ns }))
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

    /// Returns the part of an event's weight that recording one unit of this event adds, in ns. 0 if its
    /// samples do not represent that time: the kernel takes it.
    pub fn overhead_in(&self, event: &EventSummary) -> u64 {
        // Waiting has none of it, and neither has the time of user code.
        let has_it = |event: &Event| event.measure == Measure::CpuTime && event.scope != b"user";
        let recorded = match &event.parts[..] {
            [] => std::slice::from_ref(&event.event),
            parts => parts,
        };
        if recorded.iter().any(has_it) { self.overhead_ns } else { 0 }
    }

    /// Returns the end of the line on the meaning of ratios: the overhead that is taken off these events.
    pub fn legend(&self, summary: &Summary, mut events: impl Iterator<Item = usize>) -> String {
        if !events.any(|event| self.overhead_in(&summary.events[event]) > 0) {
            return String::new();
        }
        format!(", without the {} ns of CPU time that counting takes", self.overhead_ns)
    }
}

/// A sum divided by another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The numerator.
    pub numerator: Sum,
    /// The part of its weight that is due to recording the denominator.
    pub overhead: u64,
    /// The denominator.
    pub denominator: Sum,
    /// The error of the denominator.
    pub error: DivisorError,
}

impl Ratio {
    /// Returns the ratio of the weights without the overhead; 0 if the overhead is larger. None if the
    /// denominator is 0.
    pub fn value(&self) -> Option<f64> {
        // Samples vary: they may represent less than the overhead.
        self.of(self.numerator.weight.saturating_sub(self.overhead))
    }

    /// Returns a weight divided by the denominator. None if that is 0.
    fn of(&self, weight: u64) -> Option<f64> {
        let denominator = self.denominator.weight;
        (denominator > 0).then(|| weight as f64 / denominator as f64)
    }

    /// Returns the standard error of the ratio's logarithm. None if one of the sums is 0.
    ///
    /// Of n samples of N counted calls, the variance has the factor 1 - n / N: all calls have no error
    /// (Cochran, Sampling Techniques, 2.5).
    pub fn log_error(&self) -> Option<f64> {
        let [numerator, denominator] =
            [self.numerator, self.denominator].map(Sum::samples_of_equal_weight);
        let calls = self.denominator.weight as f64;
        let missing = match self.error {
            DivisorError::Sampled => 1.0,
            DivisorError::StacksSampled => 1.0 - (denominator / calls).min(1.0),
            DivisorError::None => 0.0,
        };
        let has_both = numerator > 0.0 && denominator > 0.0;
        has_both.then(|| (numerator.recip() + missing * denominator.recip()).sqrt())
    }

    /// Returns the margin of error: the distance from the ratio to the farther end of its interval,
    /// which is symmetric in the logarithm. None if one of the sums is 0: a ratio without samples has
    /// an unknown error. The overhead does not change it: it is the same for each unit.
    pub fn margin(&self, confidence: Confidence) -> Option<f64> {
        Some(self.of(self.numerator.weight)? * (confidence.z() * self.log_error()?).exp_m1())
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

    fn sampled(numerator: Sum, denominator: Sum) -> Ratio {
        Ratio { numerator, overhead: 0, denominator, error: DivisorError::Sampled }
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
        let confidence = Confidence::default();
        assert_eq!(sampled(sum, Sum::default()).value(), None);
        assert_eq!(sampled(Sum::default(), sum).value(), Some(0.0));
        assert_eq!(sampled(Sum::default(), sum).margin(confidence), None);
        // Four samples each: a standard error of sqrt(1/4 + 1/4) of the logarithm.
        let margin = sampled(sum, sum).margin(confidence).unwrap();
        assert!((margin - ((1.959_964f64 * 0.5f64.sqrt()).exp() - 1.0)).abs() < 1e-5, "{margin}");
    }

    #[test]
    fn sampled_calls_have_the_error_of_those_without_a_sample() {
        let error = |samples, calls| {
            let ratio = sampled(Sum::of(4, 8), Sum::of(samples, calls));
            Ratio { error: DivisorError::StacksSampled, ..ratio }.log_error().unwrap()
        };
        assert_eq!(error(9, 9), 0.5, "every call was sampled");
        assert!((error(9, 18) - (0.25 + 0.5 / 9.0f64).sqrt()).abs() < 1e-12);
        let counted = Ratio { error: DivisorError::None, ..sampled(Sum::of(4, 8), Sum::of(9, 18)) };
        assert_eq!(counted.log_error(), Some(0.5));
    }

    #[test]
    fn overhead_is_taken_off_the_ratio_and_not_off_its_margin() {
        let with = sampled(Sum::of(100, 3000), Sum::of(10, 10));
        let without = Ratio { overhead: 1000, ..with };
        let confidence = Confidence::default();
        assert_eq!([with.value(), without.value()], [Some(300.0), Some(200.0)]);
        assert_eq!(with.margin(confidence), without.margin(confidence));
        assert_eq!(Ratio { overhead: 3001, ..with }.value(), Some(0.0));
    }

    #[test]
    fn overhead_is_that_of_time_in_the_kernel() {
        let mut summary = summary(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cpu\tunit=ns\tmeasure=cpu-time\tscope=user+kernel\n\
             @event\tid=2\tname=user\tunit=ns\tmeasure=cpu-time\tscope=user\n\
             @event\tid=3\tname=blocked\tunit=ns\tmeasure=wait-time\tscope=user+kernel\n\
             @event\tid=4\tname=calls\tmeasure=calls\toverhead_ns=900\n\
             @end\tsamples=0\trecords=4\tlost=0\n\
             @nprof\t1.1\trun=0x2\n@event\tid=1\tname=calls\tmeasure=calls\toverhead_ns=800\n",
        );
        let per = Per::named(&summary, "calls").unwrap().unwrap();
        assert_eq!(per.overhead_ns, 850, "the mean of both runs");
        let of = |summary: &Summary, event: usize| per.overhead_in(&summary.events[event]);
        assert_eq!([0, 1, 2].map(|event| of(&summary, event)), [850, 0, 0]);
        summary.events[2].parts = vec![summary.events[0].event.clone()];
        assert_eq!(of(&summary, 2), 850, "a sum that contains the time");
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
                sampled(numerator, denominator).margin(confidence).unwrap()
            };
            let expected = factor as f64 * margin(1);
            prop_assert!((margin(factor) - expected).abs() < 1e-9 * expected);
        }
    }
}
