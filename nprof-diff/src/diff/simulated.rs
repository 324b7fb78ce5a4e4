//! Ten thousand comparisons of made-up programs with themselves, and some with what got slower:
//! what is called a change must be one, at least as often as the level says, however runs vary.

use fastrand::Rng;

use super::*;
use crate::key::{Key, Keys};

/// How the runs of one program differ.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// By sampling alone.
    Counting,
    /// Every function by itself, some more than others.
    Functions,
    /// In phases, that move all their functions together: so many of them.
    Phases(usize),
    /// Every fifth function is in one of two states.
    States,
    /// Less than by independent samples, as of a program in step with the clock.
    InStep,
}

const NOISES: [Noise; 7] = [
    Noise::Counting,
    Noise::Functions,
    Noise::Phases(1),
    Noise::Phases(3),
    Noise::Phases(8),
    Noise::States,
    Noise::InStep,
];

struct Program {
    /// Parts of all time; their sum is not 1.
    functions: Vec<f64>,
    /// How much each varies, where they do by themselves.
    variation: Vec<f64>,
    noise: Noise,
}

/// A normal variable (G. E. P. Box and M. E. Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Program {
    /// Functions take less and less time, as in real programs.
    fn new(functions: usize, noise: Noise, rng: &mut Rng) -> Self {
        Self {
            functions: (1..=functions).map(|rank| (rank as f64).powf(-1.1)).collect(),
            variation: (0..functions).map(|_| 0.05 * (0.6 * normal(rng)).exp()).collect(),
            noise,
        }
    }

    /// The samples of each function in a run.
    fn run(&self, samples: u64, rng: &mut Rng) -> Vec<u64> {
        let phases: Vec<f64> = (0..8).map(|_| (0.15 * normal(rng)).exp()).collect();
        let times = self.functions.iter().zip(&self.variation).enumerate();
        let times: Vec<f64> = times
            .map(|(i, (time, variation))| match self.noise {
                Noise::Counting | Noise::InStep => *time,
                Noise::Functions => time * (variation * normal(rng)).exp(),
                Noise::Phases(count) if count > 1 => time * phases[i % count],
                Noise::Phases(_) => time * if i % 2 == 0 { phases[0] } else { 1.0 },
                Noise::States if i % 5 == 0 && rng.bool() => time * 1.4,
                Noise::States => *time,
            })
            .collect();
        let whole: f64 = times.iter().sum();
        if let Noise::InStep = self.noise {
            let sampled = |time: &f64| samples as f64 * time / whole + 0.5 * normal(rng);
            return times.iter().map(sampled).map(|count| count.round().max(0.0) as u64).collect();
        }
        let mut ends: Vec<f64> = Vec::with_capacity(times.len());
        times.iter().for_each(|time| ends.push(ends.last().unwrap_or(&0.0) + time));
        let mut counts = vec![0; times.len()];
        for _ in 0..samples {
            let at = rng.f64() * whole;
            counts[ends.partition_point(|end| *end <= at).min(times.len() - 1)] += 1;
        }
        counts
    }

    fn runs(&self, runs: usize, samples: u64, keys: &[KeyId], rng: &mut Rng) -> Vec<Counts> {
        // The machine is faster in some runs than in others.
        let length = |rng: &mut Rng| (samples as f64 * (0.05 * normal(rng)).exp()) as u64;
        (0..runs).map(|_| counts(&self.run(length(rng), rng), keys)).collect()
    }
}

/// Functions are leaves; every ten of them are called by one of their own, all by the first.
fn counts(samples: &[u64], keys: &[KeyId]) -> Counts {
    let sum = |samples: u64| Sum { samples, weight: samples * 1_000_000 };
    let mut counts = Counts { sum: sum(samples.iter().sum()), ..Counts::default() };
    for (i, (&key, &own)) in keys.iter().zip(samples).enumerate() {
        let called = samples.iter().skip(i + 1).take(if i % 10 == 0 { 9 } else { 0 });
        let total = if i == 0 { counts.sum } else { sum(own + called.sum::<u64>()) };
        counts.keys.insert(key, Count { own: sum(own), total });
    }
    counts
}

fn keys(count: usize) -> Vec<KeyId> {
    let mut keys = Keys::default();
    (0..count).map(|i| keys.intern(Key::of_name(i.to_string().as_bytes()))).collect()
}

fn compared(base: &[Counts], new: &[Counts], keys: &[KeyId]) -> Diff {
    let question = Question { alpha: 0.05, clock: true, min_effect: None };
    let (base, new): (Vec<_>, Vec<_>) = (base.iter().collect(), new.iter().collect());
    compare(&base, &new, keys.iter().copied(), question)
}

/// How many of so many pairs are called changed, and in how many CPU time is.
fn alarms(noise: Noise, functions: usize, runs: (usize, usize), pairs: usize) -> [usize; 2] {
    let mut rng = Rng::with_seed(7);
    let keys = keys(functions);
    let mut alarms = [0, 0];
    for _ in 0..pairs {
        let program = Program::new(functions, noise, &mut rng);
        let base = program.runs(runs.0, 1500, &keys, &mut rng);
        let new = program.runs(runs.1, 1500, &keys, &mut rng);
        let rows = compared(&base, &new, &keys).rows;
        let sure = |metric: &Metric| metric.time.is_some_and(|time| time.sure);
        alarms[0] += usize::from(rows.iter().any(|row| row.verdict() != Verdict::Same));
        alarms[1] += usize::from(rows.iter().any(|row| sure(&row.own) || sure(&row.total)));
    }
    alarms
}

/// How many alarms there are at most, at a rate of 5 %, in 999 of 1000 cases.
fn most(pairs: usize) -> usize {
    let pairs = pairs as f64;
    (0.05 * pairs + 3.09 * (pairs * 0.05 * 0.95).sqrt()).ceil() as usize
}

/// Compares so many pairs of each kind, and prints what came out.
fn check(pairs: usize) {
    let (mut all, mut of_all) = ([0, 0], 0);
    for noise in NOISES {
        for (functions, runs) in [(60, (5, 5)), (60, (3, 3)), (12, (3, 5))] {
            let alarms = alarms(noise, functions, runs, pairs);
            println!(
                "{noise:?}, {functions} functions, {} and {} runs, {pairs} pairs: \
                 {} false alarms by share, {} by CPU time",
                runs.0, runs.1, alarms[0], alarms[1]
            );
            assert!(alarms.into_iter().all(|count| count <= most(pairs)), "{alarms:?}");
            all = [all[0] + alarms[0], all[1] + alarms[1]];
            of_all += pairs;
        }
    }
    println!("{of_all} pairs: {} false alarms by share, {} by CPU time", all[0], all[1]);
    assert!(all.into_iter().all(|count| count * 20 <= of_all), "{all:?} of {of_all}");
}

#[test]
fn programs_do_not_differ_from_themselves() {
    check(40);
}

/// 10,500 pairs; `make calibrate` runs it.
#[test]
#[ignore = "takes minutes"]
fn ten_thousand_programs_do_not_differ_from_themselves() {
    check(500);
}

/// How often a function that takes two fifths more is found, of 50 pairs of five runs a side, and
/// how often its interval covers the truth.
#[test]
fn what_got_slower_is_found_among_many() {
    let mut rng = Rng::with_seed(3);
    let keys = keys(60);
    let (mut found, mut covered, mut blamed) = (0, 0, 0);
    for _ in 0..50 {
        let program = Program::new(60, Noise::Functions, &mut rng);
        let base = program.runs(5, 3000, &keys, &mut rng);
        let mut slower = Program { functions: program.functions.clone(), ..program };
        slower.functions[3] *= 1.4;
        let new = slower.runs(5, 3000, &keys, &mut rng);
        let rows = compared(&base, &new, &keys).rows;
        let share = &rows[3].own.share.estimate;
        let whole: f64 = slower.functions.iter().sum();
        let was = slower.functions[3] / 1.4;
        let truth = slower.functions[3] / whole - was / (whole - slower.functions[3] + was);
        found += usize::from(rows[3].verdict() == Verdict::Grown);
        covered += usize::from(share.low <= truth && truth <= share.high);
        blamed += rows[4..].iter().filter(|row| row.verdict().is_change()).count();
    }
    println!("found {found} of 50, covered {covered}, others blamed {blamed}");
    assert!(found >= 20 && covered >= 42 && blamed <= 5, "{found} {covered} {blamed}");
}
