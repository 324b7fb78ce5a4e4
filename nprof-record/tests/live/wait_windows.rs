//! Waiting in windows of time.

use std::process::Command;

use crate::support::{Directory, record, stderr, wait_until_asleep};
use crate::waiting::{Observation, PERIOD_NS, Recording};

const WINDOWS: [&str; 2] = ["--wait-windows", "10ms/100ms"];

/// The weight of a window in which a thread waited all the time.
const INTERVAL_NS: u64 = 100_000_000;

#[test]
fn thread_that_waits_all_the_time_has_the_interval_of_each_window() {
    let mut hung = Command::new("sleep").arg("60").spawn().expect("it is installed");
    let pid = hung.id().to_string();
    wait_until_asleep(hung.id());
    let words = [&WINDOWS[..], &["-e", "wait", "-p", &pid, "-d", "2"]].concat();
    let recording = Recording::of(Directory::new("windows-hung"), &words);
    hung.kill().and_then(|()| hung.wait()).expect("it was started");
    let Some(recording) = recording else { return };
    let is_whole = |weight: &u64| *weight == INTERVAL_NS;
    let weights: Vec<u64> = recording.waits().map(|wait| wait.weight).collect();
    // The recorder opens a window for each interval, later on a machine that did not run; the last may
    // be cut off.
    assert!((10..=21).contains(&weights.len()), "{weights:?}");
    assert!(weights.iter().filter(|it| !is_whole(it)).count() <= 1, "{weights:?}");
    assert!(
        recording.waits().all(|wait| !wait.frames.is_empty() && wait.call == "clock_nanosleep")
    );
    for event in &recording.events {
        assert_eq!(event.duty, b"10000000/100000000");
        assert_eq!((event.period, event.frequency), (Some(10 * PERIOD_NS), None));
    }
    assert_eq!((recording.times.len(), recording.end.wall_ns), (0, None), "not counted");
    let message = stderr(&recording.output);
    assert!(!message.contains("not sampled"), "{message}");
}

/// Two processes that send a byte to and fro for two seconds, on one CPU. Prints the ns.
const PING_PONG: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "now.h"
int main(void) {
    int there[2], back[2];
    char byte = 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back)) return 1;
    if (fork() == 0) {
        close(there[1]);
        while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
        return 0;
    }
    long long begin = now();
    while (now() - begin < 2000000000)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
    printf("%lld\n", now() - begin);
}
"#;

#[test]
fn sums_of_short_waits_are_those_of_the_whole_time() {
    let options = [&WINDOWS[..], &["-e", "wall"]].concat();
    let Some(recording) = Recording::of_program("windows-ping-pong", PING_PONG, &[], &options, &[])
    else {
        return;
    };
    let all_ns = 2.0 * recording.printed()[0];
    // Both processes run or wait all the time. On an otherwise idle machine they do so evenly, and the
    // sum has a standard deviation of a few per cent; a loaded one stops both at times, which 20 windows
    // find more or less often.
    let sum_ns = recording.samples.iter().map(|it| it.weight).sum::<u64>() as f64;
    assert!((0.5..1.5).contains(&(sum_ns / all_ns)), "{sum_ns} of {all_ns}");
    let reads = recording.waits().filter(|wait| wait.event == "blocked" && wait.call == "read");
    let blocked = recording.waits().filter(|wait| wait.event == "blocked").count();
    assert!(2 * reads.count() > blocked, "they wait in read");
}

/// Waits for 7 ms near the start of the stack and 3 ms far from it, in turn for two seconds.
const TWO_DEPTHS: &str = r#"
#include <time.h>
static void wait_for(long ns) {
    struct timespec t = {0, ns};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
}
__attribute__((noinline)) static void near(void) {
    wait_for(7000000);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void far(int depth) {
    volatile char room[128];
    room[0] = depth;
    if (depth) far(depth - 1);
    else wait_for(3000000);
    room[1] = depth;
}
int main(void) {
    for (int i = 0; i < 200; i++) near(), far(20);
}
"#;

#[test]
fn wait_at_the_end_of_a_window_has_its_own_stack() {
    let options = [&WINDOWS[..], &["-e", "blocked"]].concat();
    let recording = Recording::of_program("windows-depths", TWO_DEPTHS, &["-g"], &options, &[]);
    let Some(recording) = recording else { return };
    let names = recording.names();
    let is_right = |wait: &&Observation| {
        let calls = names.calls(wait);
        let depth = calls.iter().filter(|name| **name == "far").count();
        depth == if calls.contains(&"near") { 0 } else { 21 }
    };
    let sleeps: Vec<_> = recording.waits().filter(|it| it.call == "clock_nanosleep").collect();
    assert!(sleeps.len() >= 20, "{}", sleeps.len());
    // The process may have ended before the stack at the last window is read.
    let wrong = sleeps.iter().copied().filter(|wait| !is_right(wait)).count();
    assert!(wrong <= 1, "{wrong} of {}", sleeps.len());
}

/// A thousand threads that wait for a second.
const CROWD: &str = r#"
#include <pthread.h>
#include <unistd.h>
static void *idle(void *none) { pause(); return none; }
int main(void) {
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < 1000; i++) pthread_create(&thread, &small, idle, 0);
    sleep(1);
    _exit(0);
}
"#;

#[test]
fn windows_that_the_recorder_cannot_keep_up_with_are_reported() {
    // It takes several us for each thread, so more than the 2 ms of an interval for all of them.
    let directory = Directory::new("windows-crowd");
    let Some(program) = directory.compile("gcc", CROWD, &["-O1", "-pthread"]) else { return };
    let words = ["--wait-windows", "1ms/2ms", "-e", "wait", "--", &program];
    let Some(recording) = Recording::of(directory, &words) else { return };
    let message = stderr(&recording.output);
    assert!(message.contains("windows of waiting were skipped"), "{message}");
    let long = ["--wait-windows", "10ms/100ms", "-e", "wait", "--", "sleep", "0.3"];
    let recording = Recording::of(Directory::new("windows-alone"), &long).expect("as before");
    let message = stderr(&recording.output);
    assert!(!message.contains("windows of waiting were skipped"), "{message}");
}

#[test]
fn windows_need_an_event_of_waiting_and_no_wakes() {
    let message = |events: &[&str]| {
        let directory = Directory::new("windows-refused");
        let file = directory.path("out");
        let output = record(&[&["-o", &file][..], &WINDOWS, events, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(125));
        stderr(&output)
    };
    let without = message(&["-e", "cpu-clock"]);
    assert!(without.contains("--wait-windows: no event of waiting is recorded"), "{without}");
    let wakes = message(&["-e", "wall", "-e", "wakes"]);
    assert!(wakes.contains("-e wakes needs both ends of each wait"), "{wakes}");
}
