//! The short form of each script in this folder, and the tests of bench/lab. `make papers` runs the
//! scripts in full.

use std::sync::{Mutex, PoisonError};

use nprof_tests::{Shell, have, repository, skipped};

/// Runs an experiment in its short form, up to three times: other work on the machine can spoil a
/// run.
///
/// # Panics
///
/// If no attempt succeeds.
fn assert_holds(experiment: &str) {
    // Two experiments at once would measure each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !have(&["python3", "perf", "gcc", "g++", "gprof", "taskset"]) {
        return;
    }
    let shell = Shell::new();
    let run = repository().join("tests/experiments/run");
    let mut last = None;
    // Each claim allows for its own chance of failure; the attempts allow for other work on the machine.
    for _ in 0..3 {
        let run = shell.run(&format!("{} --short {experiment}", run.display()));
        if run.status == 0 {
            return;
        }
        last = Some(run);
    }
    panic!("{last:#?}");
}

#[test]
fn profiles_repeat_and_agree_with_perf() {
    assert_holds("agreement");
}

#[test]
fn slowdown_is_measured_for_every_profiler() {
    assert_holds("slowdown");
}

#[test]
fn distortion_is_within_chance_and_calls_are_attributed_to_caller() {
    assert_holds("distortion");
}

#[test]
fn samples_times_period_equal_counted_events() {
    assert_holds("event_counts");
}

#[test]
fn samples_follow_whole_call_paths() {
    assert_holds("call_paths");
}

#[test]
fn kernel_share_equals_getrusage() {
    let privileged = Shell::new().run("nprof-record -q -a -d 0.1 -o x");
    if privileged.status != 0 {
        return skipped("the whole system cannot be sampled here");
    }
    assert_holds("kernel_share");
}

#[test]
fn statistics_and_document_pass_unit_tests() {
    if !have(&["python3"]) {
        return;
    }
    let bench = repository().join("bench");
    let run = Shell::new().run(&format!("python3 -B -m unittest discover -s {}", bench.display()));
    assert_eq!(run.status, 0, "{run:#?}");
}
