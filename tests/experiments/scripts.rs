//! The experiments of the papers nprof comes from, in their short form: each runs on this machine
//! and what it is to show holds. `make papers` runs them in full.

use std::sync::{Mutex, PoisonError};

use nprof_tests::{Shell, have, repository, skipped};

/// Runs an experiment. What else the machine does may spoil one run: only what does not hold in
/// any attempt does not.
fn holds(experiment: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !have(&["python3", "perf", "gcc", "g++", "gprof", "taskset"]) {
        return;
    }
    let shell = Shell::new();
    let run = repository().join("tests/experiments/run");
    let mut last = None;
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
fn profiles_are_those_of_perf_and_repeat() {
    holds("agreement");
}

#[test]
fn slow_downs_can_be_measured() {
    holds("slowdown");
}

#[test]
fn time_is_where_it_is_spent_and_belongs_to_who_called() {
    holds("distortion");
}

#[test]
fn samples_stand_for_the_events_there_were() {
    holds("event_counts");
}

#[test]
fn samples_are_propagated_along_whole_stacks() {
    holds("call_paths");
}

#[test]
fn a_busy_kernel_is_seen_as_the_kernel_accounts_it() {
    let privileged = Shell::new().run("nprof-record -q -a -d 0.1 -o x");
    if privileged.status != 0 {
        return skipped("the whole system cannot be sampled here");
    }
    holds("kernel_share");
}

#[test]
fn statistics_are_right() {
    if !have(&["python3"]) {
        return;
    }
    let bench = repository().join("bench");
    let run = Shell::new().run(&format!("python3 -B -m unittest discover -s {}", bench.display()));
    assert_eq!(run.status, 0, "{run:#?}");
}
