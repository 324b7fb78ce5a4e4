//! Thousands of comparisons of simulated programs, with themselves and with slower versions.
//!
//! The rate of false alarms must not exceed 1 - confidence, however the runs vary.

use fastrand::Rng;
use nprof_report::profile::Sum;

use crate::compare::comparison::Criteria;
use crate::compare::diff::{Diff, compare};
use crate::compare::row::{Row, RowChange};
use crate::input::event::AmountUnit;
use crate::input::key::{KeyId, KeyTable, RowKey};
use crate::input::run_counts::{KeyCount, RunCounts};

/// The way in which runs of one program differ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RunNoise {
    /// Like independent samples.
    Counting,
    /// Each function varies independently, some more than others.
    Functions,
    /// This number of phases varies, each with all its functions.
    Phases(usize),
    /// Every fifth function is in one of two states.
    States,
    /// Less than independent samples: this number of calls, in the same order in every run, sampled
    /// at regular times.
    Regular(usize),
    /// Hardly at all, like a program in step with the sampling clock.
    InStep,
    /// The machine drifts and slows every other function down from run to run; both sides are
    /// recorded in turn.
    Drift,
}

const NOISES: [RunNoise; 10] = [
    RunNoise::Counting,
    RunNoise::Functions,
    RunNoise::Phases(1),
    RunNoise::Phases(3),
    RunNoise::Phases(8),
    RunNoise::States,
    RunNoise::Regular(4000),
    RunNoise::Regular(500),
    RunNoise::InStep,
    RunNoise::Drift,
];

/// The slowdown of drifting functions from run to run.
const DRIFT: f64 = 0.02;

#[derive(Clone)]
struct Program {
    /// The time of each function, in arbitrary units.
    functions: Vec<f64>,
    /// The standard deviation of each function's time, for [`RunNoise::Functions`].
    variation: Vec<f64>,
    /// The functions called, in order; every call of a function takes the same time.
    calls: Vec<usize>,
    noise: RunNoise,
    /// The standard deviation of the speed of the machine, from run to run.
    speed_variation: f64,
}

/// Returns a standard normal variable (G. E. P. Box and M. E. Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Program {
    /// Creates a program. The times of its functions have a long tail, as in real programs.
    fn new(functions: usize, noise: RunNoise, rng: &mut Rng) -> Self {
        Self::of((1..=functions).map(|rank| (rank as f64).powf(-1.1)).collect(), noise, rng)
    }

    fn of(functions: Vec<f64>, noise: RunNoise, rng: &mut Rng) -> Self {
        let variation = functions.iter().map(|_| 0.05 * (0.6 * normal(rng)).exp()).collect();
        let calls = if let RunNoise::Regular(calls) = noise { calls } else { 0 };
        let calls = (0..calls).map(|_| rng.usize(..functions.len())).collect();
        Self { functions, variation, calls, noise, speed_variation: 0.05 }
    }

    /// Returns the samples of each function in a run, the `nth` of both sides.
    fn run(&self, samples: u64, nth: usize, rng: &mut Rng) -> Vec<u64> {
        let phases: Vec<f64> = (0..8).map(|_| (0.15 * normal(rng)).exp()).collect();
        let times = self.functions.iter().zip(&self.variation).enumerate();
        let times: Vec<f64> = times
            .map(|(i, (time, variation))| match self.noise {
                RunNoise::Counting | RunNoise::Regular(_) | RunNoise::InStep => *time,
                RunNoise::Functions => time * (variation * normal(rng)).exp(),
                RunNoise::Phases(count) if count > 1 => time * phases[i % count],
                // A single phase has every other function, or it would scale all of them.
                RunNoise::Phases(_) => time * if i % 2 == 0 { phases[0] } else { 1.0 },
                RunNoise::States if i % 5 == 0 && rng.bool() => time * 1.4,
                RunNoise::States => *time,
                RunNoise::Drift => time * if i % 2 == 0 { 1.0 + DRIFT * nth as f64 } else { 1.0 },
            })
            .collect();
        match self.noise {
            RunNoise::Regular(_) => self.regularly(&times, samples, rng),
            RunNoise::InStep => in_step(&times, samples, rng),
            _ => independently(&times, samples, rng),
        }
    }

    /// Takes samples at regular times; the duration of each call varies by 2 % from run to run.
    fn regularly(&self, times: &[f64], samples: u64, rng: &mut Rng) -> Vec<u64> {
        // Calls vary independently of each other, so functions with many calls vary less.
        let lengths: Vec<f64> =
            self.calls.iter().map(|&call| times[call] * (0.02 * normal(rng)).exp()).collect();
        let step = lengths.iter().sum::<f64>() / samples as f64;
        // The first sample falls at a random time within the first interval.
        let (mut next, mut now) = (rng.f64() * step, 0.0);
        let mut counts = vec![0; times.len()];
        for (&call, length) in self.calls.iter().zip(lengths) {
            now += length;
            while next < now {
                counts[call] += 1;
                next += step;
            }
        }
        counts
    }

    /// Returns this number of runs of both sides, recorded in turn.
    fn sides(
        &self,
        new: &Self,
        runs: [usize; 2],
        samples: u64,
        rng: &mut Rng,
    ) -> [Vec<RunCounts>; 2] {
        let keys = keys(self.functions.len());
        let mut run = |of: &Self, nth| {
            let speed = (self.speed_variation * normal(rng)).exp();
            let samples = (samples as f64 * of.time() / self.time() * speed) as u64;
            counts(&of.run(samples, nth, rng), &keys)
        };
        let mut sides = [Vec::new(), Vec::new()];
        for nth in 0..runs[0].max(runs[1]) {
            sides[0].extend((nth < runs[0]).then(|| run(self, 2 * nth)));
            sides[1].extend((nth < runs[1]).then(|| run(new, 2 * nth + 1)));
        }
        sides
    }

    /// Returns the program with one function's time multiplied by `times`.
    fn with_slower(&self, function: usize, times: f64) -> Self {
        let mut slower = self.clone();
        slower.functions[function] *= times;
        slower
    }

    /// Returns the time of a run, in the units of the functions.
    fn time(&self) -> f64 {
        match self.noise {
            RunNoise::Regular(_) => self.calls.iter().map(|&call| self.functions[call]).sum(),
            _ => self.functions.iter().sum(),
        }
    }

    /// Returns the true share of a function.
    fn share(&self, function: usize) -> f64 {
        match self.noise {
            RunNoise::Regular(_) => {
                let calls = self.calls.iter().filter(|&&call| call == function).count();
                calls as f64 * self.functions[function] / self.time()
            }
            _ => self.functions[function] / self.time(),
        }
    }
}

fn independently(times: &[f64], samples: u64, rng: &mut Rng) -> Vec<u64> {
    let whole: f64 = times.iter().sum();
    let mut ends: Vec<f64> = Vec::with_capacity(times.len());
    times.iter().for_each(|time| ends.push(ends.last().unwrap_or(&0.0) + time));
    let mut counts = vec![0; times.len()];
    for _ in 0..samples {
        let at = rng.f64() * whole;
        // Rounding can put `at` beyond the last end.
        counts[ends.partition_point(|end| *end <= at).min(times.len() - 1)] += 1;
    }
    counts
}

/// Returns counts as even as whole numbers allow, with a deviation of half a sample.
fn in_step(times: &[f64], samples: u64, rng: &mut Rng) -> Vec<u64> {
    let whole: f64 = times.iter().sum();
    let sampled = |time: &f64| samples as f64 * time / whole + 0.5 * normal(rng);
    times.iter().map(sampled).map(|count| count.round().max(0.0) as u64).collect()
}

/// Returns the counts of a run: every tenth function calls the nine after it, the first calls all.
fn counts(samples: &[u64], keys: &[KeyId]) -> RunCounts {
    let sum = |samples: u64| Sum::of(samples, samples * 1_000_000);
    let mut counts = RunCounts { sum: sum(samples.iter().sum()), ..RunCounts::default() };
    for (i, (&key, &self_)) in keys.iter().zip(samples).enumerate() {
        let called = samples.iter().skip(i + 1).take(if i % 10 == 0 { 9 } else { 0 });
        let total = if i == 0 { counts.sum } else { sum(self_ + called.sum::<u64>()) };
        counts.keys.insert(key, KeyCount { self_: sum(self_), total, ..KeyCount::default() });
    }
    counts
}

fn keys(count: usize) -> Vec<KeyId> {
    let mut keys = KeyTable::default();
    (0..count).map(|i| keys.intern(RowKey::of_name(i.to_string().as_bytes()))).collect()
}

fn compared(base: &[RunCounts], new: &[RunCounts], keys: &[KeyId]) -> Diff {
    let amount = Some(AmountUnit::Ns);
    let criteria = Criteria { alpha: 0.05, amount, is_in_turn: true, min_effect: None };
    let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
    compare(&base, &new, None, keys.iter().copied(), criteria)
}

/// Returns the number of pairs reported as changed by share, and by CPU time.
fn false_alarms(noise: RunNoise, functions: usize, runs: [usize; 2], pairs: usize) -> [usize; 2] {
    // A fixed seed: the test has the same result every time.
    let mut rng = Rng::with_seed(7);
    let keys = keys(functions);
    let mut false_alarms = [0, 0];
    for _ in 0..pairs {
        let program = Program::new(functions, noise, &mut rng);
        // Both sides are the same program: every change is a false alarm.
        let [base, new] = program.sides(&program, runs, 1500, &mut rng);
        let rows = compared(&base, &new, &keys).rows;
        false_alarms[0] += usize::from(rows.iter().any(|row| row.change() != RowChange::Same));
        false_alarms[1] += usize::from(rows.iter().any(has_significant_time));
    }
    false_alarms
}

fn has_significant_time(row: &Row) -> bool {
    [row.self_, row.total].iter().any(|metric| metric.amount.is_some_and(|time| time.significant))
}

/// Returns the number of alarms that a rate of 5 % exceeds in one of 1000 cases.
fn max_alarms(pairs: usize) -> usize {
    let pairs = pairs as f64;
    // 3.09 is the normal quantile of 0.999.
    (0.05 * pairs + 3.09 * (pairs * 0.05 * 0.95).sqrt()).ceil() as usize
}

/// Compares this number of pairs of each kind, prints the results, and fails on too many alarms.
fn check(pairs: usize) {
    let (mut alarms, mut all_pairs, mut too_many) = ([0, 0], 0, false);
    for noise in NOISES {
        for (functions, runs) in [(60, [5, 5]), (60, [3, 3]), (12, [3, 5]), (12, [2, 2])] {
            // A run without a partner cannot be recorded in turn.
            if noise == RunNoise::Drift && runs[0] != runs[1] {
                continue;
            }
            let false_alarms = false_alarms(noise, functions, runs, pairs);
            println!(
                "{noise:?}, {functions} functions, {} and {} runs, {pairs} pairs: \
                 {} false alarms by share, {} by CPU time",
                runs[0], runs[1], false_alarms[0], false_alarms[1]
            );
            too_many |= false_alarms.into_iter().any(|count| count > max_alarms(pairs));
            alarms = [alarms[0] + false_alarms[0], alarms[1] + false_alarms[1]];
            all_pairs += pairs;
        }
    }
    println!("{all_pairs} pairs: {} false alarms by share, {} by CPU time", alarms[0], alarms[1]);
    // 5 % over all kinds together.
    let is_below_level = alarms.into_iter().all(|count| count * 20 <= all_pairs);
    assert!(!too_many && is_below_level, "{alarms:?} of {all_pairs}");
}

#[test]
fn false_alarms_stay_below_level() {
    check(40);
}

/// 15,600 pairs; `make calibrate` runs it.
#[test]
#[ignore = "takes minutes"]
fn false_alarms_stay_below_level_in_15600_pairs() {
    check(400);
}

/// A calm machine compares times, to which the speed of a run is common: chance must not pass as a change of the
/// largest functions.
#[test]
fn false_alarms_stay_below_level_on_calm_machine() {
    const PAIRS: usize = 100;
    let mut rng = Rng::with_seed(7);
    // The shares of the functions of zlib, in per cent.
    let functions = [43.0, 19.0, 11.0, 10.0, 6.0, 5.0, 3.0, 1.0, 1.0, 1.0];
    let keys = keys(functions.len());
    let (mut pairs, mut alarms, mut with_times) = (0, 0, 0);
    for speed_variation in [0.005, 0.01, 0.02] {
        for variation in [0.003, 0.01, 0.02] {
            let program = Program::of(functions.to_vec(), RunNoise::Functions, &mut rng);
            let variation = vec![variation; functions.len()];
            let program = Program { variation, speed_variation, ..program };
            for _ in 0..PAIRS {
                let [base, new] = program.sides(&program, [5, 5], 4000, &mut rng);
                let diff = compared(&base, &new, &keys);
                alarms += usize::from(diff.rows.iter().any(|row| row.change().is_change()));
                with_times += usize::from(diff.common_part < 1.0);
                pairs += 1;
            }
        }
    }
    println!("{pairs} pairs, {with_times} by time: {alarms} false alarms");
    assert!(alarms <= max_alarms(pairs) && with_times * 10 >= pairs * 9, "{alarms}, {with_times}");
}

/// The results of comparing a program with a version in which one function is slower.
#[derive(Clone, Copy, Debug, Default)]
struct Power {
    /// The number of pairs in which it was reported as grown.
    found: usize,
    /// The number of pairs in which its interval contained the true difference.
    covered: usize,
    /// The number of pairs in which another function was reported as changed.
    others: usize,
}

impl Power {
    /// Compares pairs in which one function takes `times` as long.
    fn of(program: &Program, times: f64, runs: usize, samples: u64, pairs: usize) -> Self {
        let mut rng = Rng::with_seed(3);
        let keys = keys(program.functions.len());
        let slower = program.with_slower(SLOWER, times);
        let truth = slower.share(SLOWER) - program.share(SLOWER);
        let mut power = Self::default();
        for _ in 0..pairs {
            let [base, new] = program.sides(&slower, [runs, runs], samples, &mut rng);
            let rows = compared(&base, &new, &keys).rows;
            let share = &rows[SLOWER].self_.share.estimate;
            power.found += usize::from(rows[SLOWER].change() == RowChange::Grown);
            power.covered += usize::from(share.low <= truth && truth <= share.high);
            // The first function calls it, so its total grew too.
            let others = rows[1..].iter().enumerate().filter(|(i, _)| i + 1 != SLOWER);
            power.others +=
                usize::from(others.into_iter().any(|(_, row)| row.change().is_change()));
        }
        power
    }
}

/// The index of the slower function.
const SLOWER: usize = 3;

/// A function that takes 40 % longer, among 60 that vary independently.
#[test]
fn finds_slower_function_among_many() {
    let program = Program::new(60, RunNoise::Functions, &mut Rng::with_seed(3));
    let power = Power::of(&program, 1.4, 5, 3000, 50);
    println!("{power:?}");
    assert!(power.found >= 20 && power.covered >= 42 && power.others <= 5, "{power:?}");
}

/// Returns a program of ten functions, the slower one with this share of the time.
fn ten(share: f64, noise: RunNoise) -> Program {
    let mut functions = vec![(1.0 - share) / 9.0; 10];
    functions[SLOWER] = share;
    Program::of(functions, noise, &mut Rng::with_seed(11))
}

/// Samples at regular times are even enough to find 10 % more of a share of 7 %.
#[test]
fn finds_ten_per_cent_of_small_function_in_five_runs() {
    let power = Power::of(&ten(0.07, RunNoise::Regular(500)), 1.1, 5, 2000, 60);
    println!("{power:?}");
    assert!(power.found >= 54 && power.covered >= 51 && power.others <= 12, "{power:?}");
}

/// Its change must not pass as one of the speed of the machine.
#[test]
fn finds_ten_per_cent_of_function_with_almost_half_of_the_time() {
    let program = ten(0.45, RunNoise::Functions);
    let program = Program { variation: vec![0.05; 10], speed_variation: 0.01, ..program };
    let power = Power::of(&program, 1.1, 5, 20_000, 60);
    println!("{power:?}");
    assert!(power.found >= 54 && power.others <= 6, "{power:?}");
}

/// Prints the power for several shares, slowdowns and numbers of runs; `make calibrate` runs it.
#[test]
#[ignore = "takes a minute"]
fn power_by_share_slowdown_and_runs() {
    let pairs = 200;
    println!("one of ten functions slower, 2000 samples a run, {pairs} pairs each");
    for noise in [RunNoise::Regular(500), RunNoise::Regular(4000), RunNoise::Counting] {
        for share in [0.03, 0.07, 0.10, 0.30] {
            for times in [1.1, 1.2] {
                for runs in [3, 5, 10] {
                    let power = Power::of(&ten(share, noise), times, runs, 2000, pairs);
                    let percent = |count: usize| 100.0 * count as f64 / pairs as f64;
                    println!(
                        "{noise:?}, {:.0} % slower by {:.0} %, {runs} runs per side: \
                         found {:.0} %, interval contains the truth {:.0} %, another reported {:.0} %",
                        100.0 * share,
                        100.0 * (times - 1.0),
                        percent(power.found),
                        percent(power.covered),
                        percent(power.others),
                    );
                }
            }
        }
    }
}
