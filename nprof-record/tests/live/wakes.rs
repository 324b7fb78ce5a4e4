//! Wake-ups: each wait and its waker are a pair of equal weight.

use std::collections::HashMap;
use std::fs;

use nprof_stream::{Reader, Record, TaskId};

use crate::support::{Directory, record, stderr};

/// A sample of a wait or of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Half {
    task: TaskId,
    weight: u64,
    count: u64,
    lasted: Vec<u8>,
    call: String,
}

/// The samples of a stream with a pair: those of `blocked` and of `wakes`.
#[derive(Default)]
struct Pairs {
    waits: HashMap<u64, Half>,
    wakes: HashMap<u64, Half>,
    /// The weight of waits without a pair.
    unpaired: u64,
}

/// Records a command. None if waiting cannot be measured here, which is printed.
fn pairs_of(directory: &Directory, command: &[&str]) -> Option<Pairs> {
    let file = directory.path("out");
    let words = ["-e", "wait", "-e", "wakes", "-o", &file, "--"];
    let output = record(&[&words, command].concat());
    let message = stderr(&output);
    if message.contains("waiting cannot be measured") || message.contains("hides its addresses") {
        eprintln!("SKIPPED: {message}");
        return None;
    }
    assert!(output.status.success(), "{message}");
    let bytes = fs::read(&file).expect("a file");
    let (mut pairs, mut events) = (Pairs::default(), Vec::new());
    let mut reader = Reader::new(&bytes[..]);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Event(event) => events.push(String::from_utf8_lossy(&event.name).into_owned()),
            Record::Sample(sample) => {
                let event = events[sample.event.0 as usize - 1].as_str();
                let text = |key| sample.extras.get(key).map(|it| it.to_vec()).unwrap_or_default();
                let half = Half {
                    task: sample.task,
                    weight: sample.weight,
                    count: sample.count,
                    lasted: text("lasted"),
                    call: String::from_utf8_lossy(&text("call")).into_owned(),
                };
                let number = sample.extras.number("pair");
                let earlier = match (event, number) {
                    ("blocked", Some(number)) => pairs.waits.insert(number, half),
                    ("wakes", Some(number)) => pairs.wakes.insert(number, half),
                    ("wakes", None) => panic!("a wake-up without a pair"),
                    ("blocked", None) => {
                        pairs.unpaired += half.weight;
                        None
                    }
                    _ => None,
                };
                assert_eq!(earlier, None, "two pairs of one number");
            }
            _ => {}
        }
    }
    Some(pairs)
}

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
    let directory = Directory::new("wakes-mutex");
    let Some(program) = directory.compile("gcc", MUTEX, &["-O1", "-pthread"]) else { return };
    let Some(Pairs { waits, wakes, unpaired }) = pairs_of(&directory, &[&program]) else { return };
    let (mut paired, mut lock, mut lock_by_thread) = (0, 0, 0);
    for (number, wait) in &waits {
        let wake = wakes.get(number).expect("the sample of its waker");
        assert_eq!((wake.weight, wake.count), (wait.weight, wait.count));
        assert_eq!(wake.lasted, wait.lasted);
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
    // Page faults and the like are ended by threads outside of the recording.
    assert!(unpaired < paired / 20, "{unpaired} {paired}");
    // Three of four threads queue for 800 ms.
    assert!(lock > 1_000_000_000, "{lock}");
    assert!(lock_by_thread as f64 >= 0.99 * lock as f64, "{lock_by_thread} of {lock}");
}

#[test]
fn last_part_of_a_long_wait_has_the_waker() {
    let directory = Directory::new("wakes-parts");
    let Some(Pairs { waits, wakes, unpaired }) =
        pairs_of(&directory, &["sh", "-c", "sleep 1.5 | cat"])
    else {
        return;
    };
    let read = waits.iter().find(|(_, wait)| wait.call == "read").expect("cat reads");
    assert!(read.1.weight < 1_400_000_000, "its first second was written: {}", read.1.weight);
    assert!(!wakes[read.0].task.is_none(), "the exit of sleep closes the pipe");
    let sleep = waits.iter().find(|(_, wait)| wait.call == "clock_nanosleep").expect("it sleeps");
    assert!(wakes[sleep.0].task.is_none(), "the timer wakes it");
    // Of sleep, cat and the shell.
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
