//! Margins of error contain the true share as often as their confidence says, whatever the samples weigh.

use fastrand::Rng;
use nprof_report::margin::Confidence;
use nprof_report::profile::{GroupBy, Profile, ReportedEvent, Sum};
use nprof_report::ratio::{DivisorError, Ratio};
use nprof_report::summary::Summary;

/// Simulated recordings for each distribution, share and number of samples.
const RECORDINGS: usize = 2000;

/// The smallest accepted coverage of intervals of 95 %. Their coverage is a mean over shares and
/// numbers of samples; that of 2000 recordings varies by 0.5 points (one standard deviation).
const ACCEPTED: f64 = 0.93;

/// One recording: the sum of the row, and of all samples.
type Recording = (Sum, Sum);

/// Returns the part of simulated recordings with a sample of the row in which the stated interval
/// contains the true share, and the mean margin.
fn coverage(share: f64, mut record: impl FnMut() -> Recording) -> (f64, f64) {
    let (mut seen, mut hits, mut margins) = (0, 0, 0.0);
    for _ in 0..RECORDINGS {
        let (row, whole) = record();
        // A row without samples is not printed.
        if row.samples == 0 {
            continue;
        }
        seen += 1;
        let margin = Confidence::default().margin(row, whole);
        margins += margin;
        hits += usize::from((row.share_of(whole) - share).abs() <= margin);
    }
    (hits as f64 / f64::from(seen), margins / f64::from(seen))
}

/// Returns a recording of independent samples, which are of the row with this probability. `weigh`
/// returns the weight of a sample of the row, or of another one.
fn independent(
    rng: &mut Rng,
    samples: usize,
    probability: f64,
    weigh: &impl Fn(&mut Rng, bool) -> f64,
) -> Recording {
    let (mut row, mut whole) = (Sum::default(), Sum::default());
    for _ in 0..samples {
        let is_row = rng.f64() < probability;
        let sum = Sum::of(1, (1e6 * weigh(rng, is_row)) as u64);
        whole.add(sum);
        if is_row {
            row.add(sum);
        }
    }
    (row, whole)
}

/// Checks rows of several probabilities; samples of the row weigh `ratio` times those of others in
/// the mean.
#[track_caller]
fn check(ratio: f64, weigh: impl Fn(&mut Rng, bool) -> f64) {
    // A fixed seed: the test has the same result every time.
    let mut rng = Rng::with_seed(11);
    for samples in [200, 1000] {
        for probability in [0.01, 0.05, 0.3, 0.5] {
            let share = probability * ratio / (probability * ratio + 1.0 - probability);
            let (covered, margin) =
                coverage(share, || independent(&mut rng, samples, probability, &weigh));
            assert!(
                covered >= ACCEPTED,
                "{covered} of intervals of ± {margin} contain {share} of {samples} samples"
            );
        }
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// Returns a weight of a Pareto distribution: of 1000 samples, the heaviest has 2 % of the weight.
fn heavy_tailed(rng: &mut Rng) -> f64 {
    (1.0 - rng.f64()).powf(-1.0 / 2.5)
}

#[test]
fn interval_covers_shares_of_samples_of_equal_weight() {
    check(1.0, |_, _| 1.0);
}

#[test]
fn interval_covers_shares_of_uniformly_distributed_weights() {
    check(1.0, |rng, _| rng.f64());
}

#[test]
fn interval_covers_shares_of_exponentially_distributed_weights() {
    check(1.0, |rng, _| exponential(rng));
}

#[test]
fn interval_covers_shares_of_heavy_tailed_weights() {
    check(1.0, |rng, _| heavy_tailed(rng));
}

#[test]
fn interval_covers_shares_of_heavy_rows() {
    // The number of samples alone would give intervals that contain 72 % of the shares of 5 %.
    check(10.0, |rng, is_row| if is_row { 10.0 } else { 1.0 } * (0.5 + rng.f64()));
}

#[test]
fn interval_covers_shares_of_light_rows_and_is_narrower_than_that_of_average_rows() {
    let weigh = |rng: &mut Rng, is_row| if is_row { 0.1 } else { 1.0 } * (0.5 + rng.f64());
    check(0.1, weigh);
    let mut rng = Rng::with_seed(12);
    let (light, whole) = independent(&mut rng, 1000, 0.5, &weigh);
    // With the effective sample size of all samples, light and heavy.
    let share = light.share_of(whole);
    let samples = whole.samples_of_equal_weight();
    let average = Sum::of((share * samples) as u64, (share * samples * 1e6) as u64);
    let all = Sum::of(samples as u64, (samples * 1e6) as u64);
    let margin = Confidence::default().margin(light, whole);
    let margin_of_average = Confidence::default().margin(average, all);
    assert!(margin < 0.75 * margin_of_average, "{margin}, {margin_of_average}");
}

/// Quantities in periods, and whether they belong to the row. What is at least a period is recorded
/// exactly, with a count of about its size; what is smaller becomes one period, with the probability
/// of its size.
fn by_size(rng: &mut Rng, quantities: &[(f64, bool)]) -> Recording {
    const PERIOD: f64 = 1e6;
    let (mut row, mut whole) = (Sum::default(), Sum::default());
    for &(size, is_row) in quantities {
        let count = (size + rng.f64()) as u64;
        if count == 0 {
            continue;
        }
        let sum = Sum::of(count, (PERIOD * size.max(1.0)) as u64);
        whole.add(sum);
        if is_row {
            row.add(sum);
        }
    }
    (row, whole)
}

#[test]
fn interval_covers_shares_of_quantities_of_which_large_ones_are_recorded_exactly() {
    let mut rng = Rng::with_seed(13);
    // With 0.02, large quantities have a fifth of the weight, with 0.2 more than half of it.
    for smallest in [0.02, 0.2] {
        for probability in [0.02, 0.3] {
            let quantity = |rng: &mut Rng| {
                (smallest * (1.0 - rng.f64()).powf(-1.0 / 1.3), rng.f64() < probability)
            };
            let quantities: Vec<(f64, bool)> = (0..2000).map(|_| quantity(&mut rng)).collect();
            let all: f64 = quantities.iter().map(|(size, _)| size).sum();
            let row = quantities.iter().filter(|(_, is_row)| *is_row);
            let share = row.map(|(size, _)| size).sum::<f64>() / all;
            let (covered, margin) = coverage(share, || by_size(&mut rng, &quantities));
            // Exact records have no error, so the interval covers more than its level.
            assert!(covered >= 0.95, "{covered} of intervals of ± {margin} contain {share}");
            let (_, whole) = by_size(&mut rng, &quantities);
            let margin_of_counts = Confidence::default().margin(
                Sum::of((share * whole.samples as f64) as u64, (share * 1e9) as u64),
                Sum::of(whole.samples, 1_000_000_000),
            );
            assert!(margin < 1.3 * margin_of_counts, "{margin}, {margin_of_counts}");
        }
    }
}

#[test]
fn record_of_several_observations_is_like_several_records() {
    let mut rng = Rng::with_seed(14);
    let record = |rng: &mut Rng, probability: f64| {
        let is_row = |rng: &mut Rng| rng.f64() < probability;
        let row = (0..500).filter(|_| is_row(rng)).count() as u64;
        (Sum::of(row, 10 * row), Sum::of(500, 5000))
    };
    for probability in [0.01, 0.05, 0.3] {
        let (covered, _) = coverage(probability, || record(&mut rng, probability));
        assert!(covered >= ACCEPTED, "{covered} of {probability}");
    }
}

/// Returns the summary of a stream with one sample for each weight and count.
fn summary(samples: &[(u64, u64)]) -> Summary {
    let mut stream = "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cycles\tunit=cycles\n".to_owned();
    for (weight, count) in samples {
        stream.push_str(&format!("S\t1\t1\t0\t0\t0\t{weight}\t{count}\n"));
    }
    let mut profile = Profile::new(GroupBy::default());
    profile.read("x", stream.as_bytes(), |_, _, _| {}).expect("the stream is valid");
    profile.summary
}

#[test]
fn stacks_have_samples_if_all_weigh_the_same_and_weights_otherwise() {
    let stack = |samples: &[(u64, u64)]| {
        let summary = summary(samples);
        let whole = summary.events[0].sum;
        let event = ReportedEvent { event: 0, whole, counted: whole };
        (event.stack_unit(&summary), event.stack_number(whole))
    };
    assert_eq!(stack(&[(10, 1), (30, 3)]), ("samples".to_owned(), 4));
    assert_eq!(stack(&[(10, 1), (11, 1)]), ("cycles".to_owned(), 21));
}

#[test]
fn heading_states_the_effective_number_of_samples_of_unequal_weight() {
    let equal = summary(&[(10, 1); 4]).heading().join("\n");
    assert!(equal.contains("a share is at most 49.00 points off"), "{equal}");
    // 25^2 / (15^2 + 10 * 1) = 2.66.
    let weights: Vec<(u64, u64)> = [(15, 1)].into_iter().chain([(1, 1); 10]).collect();
    let unequal = summary(&weights).heading().join("\n");
    assert!(unequal.contains("a share of 50 % is at most 60.09 points off"), "{unequal}");
    assert!(unequal.contains("as much as 3 of equal weight"), "{unequal}");
}

/// Returns the number of events of a Poisson process with this mean, by its exponential distances.
fn poisson(rng: &mut Rng, mean: f64) -> u64 {
    let (mut time, mut count) = (exponential(rng), 0);
    while time < mean {
        time += exponential(rng);
        count += 1;
    }
    count
}

#[test]
fn interval_covers_ratios_of_independent_events() {
    let mut rng = Rng::with_seed(13);
    for (above, below) in [(5.0, 5.0), (10.0, 400.0), (400.0, 10.0), (100.0, 100.0)] {
        let (mut seen, mut hits) = (0u32, 0u32);
        for _ in 0..RECORDINGS {
            let [numerator, denominator] = [above, below].map(|mean| {
                let samples = poisson(&mut rng, mean);
                Sum::of(samples, 1000 * samples)
            });
            let ratio = Ratio { numerator, overhead: 0, denominator, error: DivisorError::Sampled };
            // A ratio without samples on one side has no margin.
            let Some(margin) = ratio.margin(Confidence::default()) else { continue };
            seen += 1;
            hits += u32::from((ratio.value().unwrap() - above / below).abs() <= margin);
        }
        let covered = f64::from(hits) / f64::from(seen);
        assert!(covered >= ACCEPTED, "{covered} of intervals contain {above} / {below}");
    }
}
