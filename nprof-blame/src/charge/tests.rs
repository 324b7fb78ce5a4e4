//! Schedules with a known truth, and laws that hold for any input.

use nprof_report::profile::Sum;
use nprof_stream::{EventId, NodeId, TaskId};
use proptest::collection::vec;
use proptest::prelude::*;

use super::activity::{Charge, Pair, Reason, Target, Wait, Waker};
use super::charger::{Charger, Limits};

const MS: u64 = 1_000_000;

/// The sampling interval of the schedules.
const PERIOD: u64 = MS;

const LIMITS: Limits = Limits { depth: 256, window_ns: 60_000 * MS, activities: 1 << 20 };

/// A charger that numbers pairs.
struct Schedule {
    charger: Charger,
    pairs: u64,
    charges: Vec<Charge>,
}

impl Schedule {
    fn new(limits: Limits) -> Self {
        Self { charger: Charger::new(limits), pairs: 0, charges: Vec::new() }
    }

    /// Adds CPU samples of a thread at each period of an interval.
    fn runs(&mut self, task: u32, node: u32, start: u64, end: u64) {
        for time in (start + PERIOD / 2..end).step_by(PERIOD as usize) {
            self.charger.running(TaskId(task), time, NodeId(node), PERIOD);
        }
    }

    /// Adds a wait with the stack 1, woken by a thread with the stack 2.
    fn waits(&mut self, task: u32, start: u64, end: u64, waker: Option<u32>) {
        self.pairs += 1;
        let pair = Pair { run: 0, number: self.pairs };
        self.part(task, start, end, Some(pair));
        let waker = waker.map(|task| Waker { task: TaskId(task), node: NodeId(2) });
        self.charger.wake(pair, waker, end);
    }

    /// Adds a part of a wait.
    fn part(&mut self, task: u32, start: u64, end: u64, pair: Option<Pair>) {
        let lasted = end - start;
        self.charger.wait(Wait {
            event: EventId(1),
            task: TaskId(task),
            node: NodeId(1),
            start,
            end,
            weight: lasted.max(PERIOD),
            count: (lasted / PERIOD).max(1),
            pair,
        });
    }

    fn take(&mut self) -> &[Charge] {
        self.charges.extend(self.charger.take_charges());
        &self.charges
    }

    fn finish(mut self) -> Vec<Charge> {
        self.charger.finish();
        self.take();
        self.charges
    }
}

fn target(task: u32, node: u32, reason: Option<Reason>) -> Target {
    Target { task: TaskId(task), node: NodeId(node), reason }
}

/// Returns the share of the weight that is charged to a place.
fn share(charges: &[Charge], place: Target) -> f64 {
    let weight =
        |charges: &mut dyn Iterator<Item = &Charge>| -> u64 { charges.map(|c| c.weight).sum() };
    let here = weight(&mut charges.iter().filter(|charge| charge.target == place));
    here as f64 / weight(&mut charges.iter()) as f64
}

/// Returns the only place that is charged.
#[track_caller]
fn only_target(charges: &[Charge]) -> Target {
    let [Charge { target, .. }] = charges else { panic!("{charges:?}") };
    *target
}

#[test]
fn wait_is_charged_to_the_cpu_samples_of_its_waker() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 3 * MS);
    schedule.runs(2, 11, 3 * MS, 4 * MS);
    // Samples outside of the wait explain nothing of it.
    schedule.runs(2, 12, 4 * MS, 40 * MS);
    schedule.waits(1, 0, 4 * MS, Some(2));
    let charges = schedule.finish();
    assert_eq!(share(&charges, target(2, 10, None)), 0.75, "{charges:?}");
    assert_eq!(share(&charges, target(2, 11, None)), 0.25, "{charges:?}");
}

#[test]
fn wait_for_a_waiting_thread_is_charged_to_its_waker() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(3, 10, 0, 9 * MS);
    schedule.waits(2, 0, 9 * MS, Some(3));
    schedule.runs(2, 11, 9 * MS, 10 * MS);
    schedule.waits(1, 0, 10 * MS, Some(2));
    let charges = schedule.finish();
    let (own, of_2) = charges.split_at(1);
    assert_eq!(only_target(own), target(3, 10, None));
    assert_eq!(share(of_2, target(3, 10, None)), 0.9, "{of_2:?}");
    assert_eq!(share(of_2, target(2, 11, None)), 0.1, "{of_2:?}");
}

#[test]
fn unexplained_waiting_has_a_reason() {
    let charged = |build: &dyn Fn(&mut Schedule)| {
        let mut schedule = Schedule::new(LIMITS);
        build(&mut schedule);
        only_target(&schedule.finish())
    };
    // A timer, a disk.
    let interrupt = charged(&|s| s.waits(1, 0, 5 * MS, None));
    assert_eq!(interrupt, target(1, 1, Some(Reason::Interrupt)));
    // A thread that is not recorded: its stack at the wake-up is known.
    let not_recorded = charged(&|s| s.waits(1, 0, 5 * MS, Some(7)));
    assert_eq!(not_recorded, target(7, 2, Some(Reason::NotSampled)));
    let lost_wake = charged(&|s| s.part(1, 0, 5 * MS, Some(Pair { run: 0, number: 9 })));
    assert_eq!(lost_wake, target(1, 1, Some(Reason::UnknownWaker)));
    let in_progress = charged(&|s| s.part(1, 0, 5 * MS, None));
    assert_eq!(in_progress, target(1, 1, Some(Reason::StillWaiting)));
    // It runs again, but its wake-up has no record.
    let ended = charged(&|s| {
        s.part(1, 0, 5 * MS, None);
        s.runs(1, 10, 5 * MS, 6 * MS);
    });
    assert_eq!(ended, target(1, 1, Some(Reason::UnknownWaker)));
    let runnable = charged(&|s| {
        s.charger.runnable(TaskId(2), 0, 5 * MS, NodeId(11), 5 * MS);
        s.waits(1, 0, 5 * MS, Some(2));
    });
    assert_eq!(runnable, target(2, 11, Some(Reason::Runnable)));
}

#[test]
fn sample_between_wake_up_and_last_part_does_not_end_the_wait() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 5 * MS);
    schedule.part(1, 0, 4 * MS, None);
    let pair = Pair { run: 0, number: 1 };
    let waker = Some(Waker { task: TaskId(2), node: NodeId(2) });
    schedule.charger.wake(pair, waker, 5 * MS);
    schedule.charger.running(TaskId(1), 5 * MS + 6, NodeId(11), PERIOD);
    schedule.charger.wait(Wait {
        event: EventId(1),
        task: TaskId(1),
        node: NodeId(1),
        start: 4 * MS + 10,
        end: 5 * MS + 10,
        weight: MS,
        count: 1,
        pair: Some(pair),
    });
    assert_eq!(share(&schedule.finish(), target(2, 10, None)), 1.0);
    // The wake-up may come after the last part, which then begins later.
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 5 * MS);
    schedule.part(1, 0, 4 * MS, None);
    schedule.part(1, 4 * MS + MS / 10, 5 * MS + MS / 10, Some(pair));
    schedule.charger.wake(pair, waker, 5 * MS);
    assert_eq!(share(&schedule.finish(), target(2, 10, None)), 1.0);
    // A thread that runs between them waits again.
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 9 * MS);
    schedule.part(1, 0, 4 * MS, None);
    schedule.charger.running(TaskId(1), 5 * MS, NodeId(11), PERIOD);
    schedule.part(1, 8 * MS, 9 * MS, Some(pair));
    schedule.charger.wake(pair, waker, 9 * MS);
    let charges = schedule.finish();
    assert_eq!(share(&charges, target(2, 10, None)), 0.2, "{charges:?}");
    assert_eq!(share(&charges, target(1, 1, Some(Reason::UnknownWaker))), 0.8, "{charges:?}");
    // Without a last part it had ended, at the latest when the thread goes on again.
    let mut schedule = Schedule::new(LIMITS);
    schedule.part(1, 0, 5 * MS, None);
    schedule.runs(1, 10, 5 * MS, 17 * MS);
    assert_eq!(only_target(schedule.take()), target(1, 1, Some(Reason::UnknownWaker)));
}

#[test]
fn wake_up_may_come_before_its_wait_and_belongs_to_its_run() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 5 * MS);
    let waker = Some(Waker { task: TaskId(2), node: NodeId(2) });
    schedule.charger.wake(Pair { run: 1, number: 4 }, waker, 5 * MS);
    schedule.part(1, 0, 5 * MS, Some(Pair { run: 1, number: 4 }));
    schedule.part(3, 0, 5 * MS, Some(Pair { run: 2, number: 4 }));
    let charges = schedule.finish();
    let places: Vec<_> = charges.iter().map(|charge| charge.target).collect();
    let expected = [target(2, 10, None), target(3, 1, Some(Reason::UnknownWaker))];
    assert_eq!(places, expected);
}

#[test]
fn parts_of_a_wait_are_charged_to_the_waker_of_its_end() {
    let mut schedule = Schedule::new(LIMITS);
    for second in 0..4 {
        schedule.runs(
            2,
            10 + second,
            u64::from(second) * 1000 * MS,
            u64::from(second + 1) * 1000 * MS,
        );
        let (start, end) = (u64::from(second) * 1000 * MS, u64::from(second + 1) * 1000 * MS);
        if second < 3 {
            schedule.part(1, start, end, None);
            assert_eq!(schedule.take(), [], "the waker is not known yet");
        } else {
            schedule.waits(1, start, end, Some(2));
        }
    }
    let charges = schedule.finish();
    for node in 10..14 {
        assert_eq!(share(&charges, target(2, node, None)), 0.25, "{charges:?}");
    }
}

#[test]
fn wait_ends_at_its_wake_up_and_continues_its_parts() {
    let mut schedule = Schedule::new(LIMITS);
    schedule.runs(2, 10, 0, 1500 * MS);
    schedule.runs(2, 11, 1500 * MS, 2000 * MS);
    schedule.part(1, 0, 1000 * MS, None);
    let pair = Pair { run: 0, number: 9 };
    let waker = Some(Waker { task: TaskId(2), node: NodeId(2) });
    schedule.charger.wake(pair, waker, 1500 * MS);
    // Its CPU was busy for another 300 ms: the recorder wrote it then.
    schedule.part(1, 1300 * MS, 1800 * MS, Some(pair));
    let charges = schedule.finish();
    assert_eq!(share(&charges, target(2, 10, None)), 1.0, "{charges:?}");
}

#[test]
fn part_that_leaves_the_window_is_still_waiting() {
    let mut schedule = Schedule::new(Limits { window_ns: 2000 * MS, ..LIMITS });
    for second in 0..10 {
        schedule.part(1, second * 1000 * MS, (second + 1) * 1000 * MS, None);
    }
    let early = schedule.take().len();
    assert!((6..=8).contains(&early), "{early} parts are charged before the end");
    schedule.runs(2, 10, 10_000 * MS, 11_000 * MS);
    schedule.waits(1, 10_000 * MS, 11_000 * MS, Some(2));
    let charges = schedule.finish();
    let still = charges.iter().filter(|c| c.target.reason == Some(Reason::StillWaiting)).count();
    // The last part came while the window moved on.
    assert!((early..=early + 1).contains(&still), "{still} {early}");
    assert_eq!(charges.last().map(|charge| charge.target), Some(target(2, 10, None)));
}

#[test]
fn bound_on_observations_shortens_the_window() {
    let mut schedule = Schedule::new(Limits { activities: 1000, ..LIMITS });
    for time in 0..50_000 {
        schedule.charger.running(TaskId(1 + time as u32 % 7), time * MS, NodeId(1), PERIOD);
        let pair = Pair { run: 0, number: time };
        schedule.charger.wake(pair, None, time * MS);
        assert!(schedule.charger.kept() <= 1000);
    }
    let window_ns = schedule.charger.shortened_window_ns().expect("the bound was reached");
    assert!((100 * MS..500 * MS).contains(&window_ns), "{window_ns}");
}

#[test]
fn short_waits_are_charged_like_those_that_contain_a_sample() {
    let mut schedule = Schedule::new(LIMITS);
    // Thread 2 answers 10,000 requests of 0.1 ms; the wake-up of each kind has a stack of its own. The
    // second kind is 1 of 10, and has 1 of 10 samples.
    for request in 0..10_000u64 {
        let (start, end) = (request * MS, request * MS + MS / 10);
        let kind = u32::from(request % 10 == 9);
        if request % 20 == 3 || request % 200 == 19 {
            schedule.charger.running(TaskId(2), start + 50_000, NodeId(10 + kind), PERIOD);
        }
        schedule.pairs += 1;
        let pair = Pair { run: 0, number: schedule.pairs };
        schedule.part(1, start, end, Some(pair));
        let waker = Waker { task: TaskId(2), node: NodeId(20 + kind) };
        schedule.charger.wake(pair, Some(waker), end);
    }
    let charges = schedule.finish();
    let [many, few] = [10, 11].map(|node| share(&charges, target(2, node, None)));
    assert!((many - 0.9).abs() < 0.01 && (few - 0.1).abs() < 0.01, "{many} {few}");
}

#[test]
fn output_stays_in_proportion_to_the_input() {
    let mut schedule = Schedule::new(LIMITS);
    // Thousands of threads wait for one, which is never twice in the same stack.
    for time in 0..1000 {
        schedule.charger.running(TaskId(2), time * MS, NodeId(10 + time as u32), PERIOD);
    }
    for waiter in 0..5000 {
        schedule.waits(3 + waiter, 0, 1000 * MS, Some(2));
    }
    let charges = schedule.finish();
    // Four for each of the 6000 observations, one for each wait, and the credit at the beginning.
    let most = 4 * 6000 + 5000 + 128 * 128;
    assert!((5000..=most).contains(&charges.len()), "{}", charges.len());
    let counts: u64 = charges.iter().map(|charge| charge.count).sum();
    assert_eq!(counts, 5000 * 1000);
}

#[test]
fn cycle_of_waits_ends() {
    let mut schedule = Schedule::new(LIMITS);
    // No schedule has it, but a stream may.
    schedule.waits(2, 0, 10 * MS, Some(1));
    schedule.waits(1, 0, 10 * MS, Some(2));
    let charges = schedule.finish();
    assert_eq!(charges.last().map(|charge| charge.target), Some(target(2, 1, Some(Reason::Cycle))));
}

#[test]
fn chain_is_followed_to_the_bound_on_depth() {
    for (depth, place) in [
        (9, target(11, 10, None)),
        (10, target(11, 10, None)),
        (8, target(10, 1, Some(Reason::Depth))),
    ] {
        let mut schedule = Schedule::new(Limits { depth: depth + 1, ..LIMITS });
        schedule.runs(11, 10, 0, 10 * MS);
        // 1 waits for 2, 2 for 3, ..., 10 for 11.
        for task in (1..=10).rev() {
            schedule.waits(task, 0, 10 * MS, Some(task + 1));
        }
        let charges = schedule.finish();
        assert_eq!(charges.last().map(|charge| charge.target), Some(place), "{depth}");
    }
}

/// One slow holder of a lock, and 100 fast ones that queue for it (golang/go issue 61015).
#[test]
fn convoy_is_charged_to_the_slow_holder() {
    let (slow, hold, fast_hold) = (1, 5 * MS, 2_000);
    let mut schedule = Schedule::new(LIMITS);
    let (mut waited, mut by_plain_rule) = (0, 0);
    for round in 0..20 {
        let begin = round * 20 * MS;
        schedule.runs(slow, 10, begin, begin + hold);
        for fast in 0..100 {
            let arrival = begin + fast * 1000;
            let end = begin + hold + fast * fast_hold;
            // The holder before it in the queue wakes it.
            schedule.waits(2 + fast as u32, arrival, end, Some(1 + fast as u32));
            waited += end - arrival;
            by_plain_rule += if fast == 0 { end - arrival } else { 0 };
        }
    }
    let charges = schedule.finish();
    let blamed = share(&charges, target(slow, 10, None));
    let plain = by_plain_rule as f64 / waited as f64;
    assert!(blamed >= 0.95, "{blamed}");
    assert!((0.005..0.015).contains(&plain), "{plain}");
}

/// A step of an arbitrary input: nothing in it needs to fit together.
#[derive(Clone, Debug)]
enum Input {
    Running { task: u32, time: u64, node: u32 },
    Runnable { task: u32, start: u64, lasted: u64 },
    Wait { task: u32, start: u64, lasted: u64, weight: u64, count: u64, pair: Option<u64> },
    Wake { pair: u64, waker: Option<u32>, time: u64 },
}

fn input() -> impl Strategy<Value = Input> {
    let (task, time) = (1..6u32, 0..2000u64);
    let lasted = prop_oneof![Just(0), 1..20u64, 1..2000u64];
    prop_oneof![
        (task.clone(), time.clone(), 10..14u32).prop_map(|(task, time, node)| Input::Running {
            task,
            time,
            node
        }),
        (task.clone(), time.clone(), lasted.clone())
            .prop_map(|(task, start, lasted)| Input::Runnable { task, start, lasted }),
        (task.clone(), time.clone(), lasted, 0..3000u64, 0..300u64, prop::option::of(0..30u64))
            .prop_map(|(task, start, lasted, weight, count, pair)| Input::Wait {
                task,
                start,
                lasted,
                weight,
                count,
                pair
            }),
        (0..30u64, prop::option::of(task), time).prop_map(|(pair, waker, time)| Input::Wake {
            pair,
            waker,
            time
        }),
    ]
}

/// Charges inputs, with task ids as `name` gives them.
fn charge(inputs: &[Input], limits: Limits, name: impl Fn(u32) -> u32) -> Vec<Charge> {
    let mut charger = Charger::new(limits);
    let pair = |number| Pair { run: 0, number };
    for input in inputs {
        match *input {
            Input::Running { task, time, node } => {
                charger.running(TaskId(name(task)), time, NodeId(node), 50);
            }
            Input::Runnable { task, start, lasted } => {
                charger.runnable(
                    TaskId(name(task)),
                    start,
                    start + lasted,
                    NodeId(3),
                    lasted.max(50),
                );
            }
            Input::Wait { task, start, lasted, weight, count, pair: number } => {
                charger.wait(Wait {
                    event: EventId(1),
                    task: TaskId(name(task)),
                    node: NodeId(1),
                    start,
                    end: start + lasted,
                    weight,
                    count,
                    pair: number.map(pair),
                });
            }
            Input::Wake { pair: number, waker, time } => {
                let waker = waker.map(|task| Waker { task: TaskId(name(task)), node: NodeId(2) });
                charger.wake(pair(number), waker, time);
            }
        }
    }
    charger.finish();
    charger.take_charges()
}

/// Returns the weight and count of each of the tasks 1 to 5.
fn sums(parts: &[(u32, u64, u64)]) -> Vec<(u64, u64)> {
    let sum = |task| {
        let own = parts.iter().filter(|part| part.0 == task);
        own.fold((0, 0), |sum, part| (sum.0 + part.1, sum.1 + part.2))
    };
    (1..6).map(sum).collect()
}

proptest! {
    #[test]
    fn charges_of_a_thread_sum_to_its_waits(
        inputs in vec(input(), 0..80), depth in 1..6usize, window_ns in 1..3000u64, activities in 1..60usize,
    ) {
        let charges = charge(&inputs, Limits { depth, window_ns, activities }, |task| task);
        let waits = inputs.iter().filter_map(|input| match *input {
            Input::Wait { task, weight, count, .. } => Some((task, weight, count)),
            _ => None,
        });
        let waits: Vec<_> = waits.collect();
        let charged: Vec<_> = charges.iter().map(|c| (c.waiter.0, c.weight, c.count)).collect();
        prop_assert_eq!(sums(&charged), sums(&waits));
    }

    #[test]
    fn charges_do_not_depend_on_the_ids_of_threads(inputs in vec(input(), 0..80)) {
        let limits = Limits { depth: 4, ..LIMITS };
        let other = |task: u32| [0, 900, 3, 77, 1, 500][task as usize];
        let sorted = |mut charges: Vec<Charge>| {
            charges.sort_by_key(|c| (c.waiter, c.target, c.weight, c.count));
            charges
        };
        let mut renamed = charge(&inputs, limits, |task| task);
        for charge in &mut renamed {
            charge.waiter = TaskId(other(charge.waiter.0));
            charge.target.task = TaskId(other(charge.target.task.0));
        }
        prop_assert_eq!(sorted(charge(&inputs, limits, other)), sorted(renamed));
    }

    #[test]
    fn effective_sample_size_does_not_grow(inputs in vec(input(), 0..80)) {
        let charges = charge(&inputs, LIMITS, |task| task);
        let mut of_waits = Sum::default();
        for input in &inputs {
            if let Input::Wait { weight, count, .. } = *input {
                of_waits.add(Sum::of(count, weight));
            }
        }
        let mut of_charges = Sum::default();
        charges.iter().for_each(|charge| of_charges.add(Sum::of(charge.count, charge.weight)));
        let [charged, waited] = [of_charges, of_waits].map(Sum::samples_of_equal_weight);
        prop_assert!(charged <= waited * (1.0 + 1e-9), "{} {}", charged, waited);
    }
}
