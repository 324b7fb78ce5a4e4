//! Wake-ups: each wait and its waker are a pair of equal weight.

use std::collections::HashMap;

use crate::support::{Directory, record, stderr};
use crate::waiting::{Observation, Recording};

/// The samples of a stream with a pair: those of `blocked` and of `wakes`.
#[derive(Default)]
struct Pairs {
    waits: HashMap<u64, Observation>,
    wakes: HashMap<u64, Observation>,
    /// The waits without a pair.
    unpaired: Vec<Observation>,
}

impl Pairs {
    fn of(recording: Recording) -> Self {
        let mut pairs = Self::default();
        for sample in recording.samples {
            let of_event = match sample.event.as_str() {
                "blocked" => &mut pairs.waits,
                "wakes" => &mut pairs.wakes,
                _ => continue,
            };
            match sample.pair {
                Some(number) => {
                    let earlier = of_event.insert(number, sample);
                    assert!(earlier.is_none(), "two samples of pair {number}");
                }
                None => {
                    assert_eq!(sample.event, "blocked", "a wake-up without a pair");
                    pairs.unpaired.push(sample);
                }
            }
        }
        pairs
    }
}

const EVENTS: [&str; 4] = ["-e", "wait", "-e", "wakes"];

/// Four threads queue for a mutex that each holds for 5 ms; the main thread sleeps.
const MUTEX: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int done;
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static void *work(void *unused) {
    for (int i = 0; i < 40; i++) {
        pthread_mutex_lock(&mutex);
        for (long end = now() + 5000000; now() < end;) {}
        pthread_mutex_unlock(&mutex);
    }
    done++;
    return unused;
}
int main(void) {
    pthread_t thread;
    struct timespec nap = {0, 50000000};
    for (int i = 0; i < 4; i++) pthread_create(&thread, 0, work, 0);
    while (done < 4) nanosleep(&nap, 0);
}
"#;

#[test]
fn wait_and_wake_up_have_equal_weights_and_the_right_waker() {
    let Some(recording) = Recording::of_program("wakes-mutex", MUTEX, &[], &EVENTS, &[]) else {
        return;
    };
    let Pairs { waits, wakes, unpaired } = Pairs::of(recording);
    let (mut paired, mut lock, mut lock_by_thread) = (0, 0, 0);
    for (number, wait) in &waits {
        let wake = wakes.get(number).expect("the sample of its waker");
        assert_eq!((wake.weight, wake.count), (wait.weight, wait.count));
        assert_eq!(wake.lasted_ns, wait.lasted_ns);
        paired += wait.weight;
        match wait.call.as_str() {
            "clock_nanosleep" => assert!(wake.task.is_none(), "the timer wakes it"),
            "futex" => {
                lock += wait.weight;
                let is_other = !wake.task.is_none() && wake.task != wait.task;
                lock_by_thread += if is_other { wait.weight } else { 0 };
            }
            _ => {}
        }
    }
    let woken: u64 = wakes.values().map(|wake| wake.weight).sum();
    assert_eq!(wakes.len(), waits.len(), "a wake-up without its wait");
    assert_eq!(woken, paired);
    // Page faults and the like are ended by threads outside of the recording. The part of a long wait,
    // as there may be on a busy machine, has no waker yet. The kernel reports no wake-up by some
    // interrupts on virtual machines: one of 200, as `perf record -e sched:sched_waking` shows, too.
    let of_program = unpaired.iter().filter(|it| ["clock_nanosleep", "futex"].contains(&&*it.call));
    let missed = of_program.filter(|it| it.lasted_ns < 900_000_000).count();
    assert!(missed * 10 <= waits.len(), "{missed} of {}", waits.len());
    // Three of four threads queue for 800 ms.
    assert!(lock > 1_000_000_000, "{lock}");
    assert!(lock_by_thread as f64 >= 0.99 * lock as f64, "{lock_by_thread} of {lock}");
}

#[test]
fn last_part_of_a_long_wait_has_the_waker() {
    let words = [&EVENTS[..], &["--", "sh", "-c", "sleep 2.5 | cat"]].concat();
    let Some(recording) = Recording::of(Directory::new("wakes-parts"), &words) else { return };
    let Pairs { waits, wakes, unpaired } = Pairs::of(recording);
    let read = waits.iter().find(|(_, wait)| wait.call == "read").expect("cat reads");
    assert!(read.1.weight < 2_000_000_000, "its first second was written: {}", read.1.weight);
    assert!(!wakes[read.0].task.is_none(), "the exit of sleep closes the pipe");
    let sleep = waits.iter().find(|(_, wait)| wait.call == "clock_nanosleep").expect("it sleeps");
    assert!(wakes[sleep.0].task.is_none(), "the timer wakes it");
    // Of sleep, cat and the shell: those of two seconds, less the time in which they start.
    let unpaired: u64 = unpaired.iter().map(|wait| wait.weight).sum();
    assert!(unpaired > 2_500_000_000, "{unpaired}");
}

#[test]
fn wakes_without_blocked_is_refused_with_the_remedy() {
    let directory = Directory::new("wakes-alone");
    let output = record(&["-e", "wakes", "-o", &directory.path("out"), "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    assert!(message.contains("wakes needs the event blocked; add -e blocked"), "{message}");
}
