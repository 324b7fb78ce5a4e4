//! Waiting: the sums of programs that time themselves, causes, and threads that wait all the time.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use nprof_stream::Mark;

use crate::support::{Directory, stderr, wait_until_asleep};
use crate::waiting::{Observation, PERIOD_NS, Recording, Times};
use crate::waits_by_switches::{EXECUTING_THREAD, assert_books_of_executing_thread};

/// Eight threads that sleep in two lengths, and print the time that they slept in ns.
pub(crate) const SLEEPER: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include "now.h"
static long long nap(long ns) {
    long long start = now();
    struct timespec t = {0, ns};
    nanosleep(&t, 0);
    return now() - start;
}
static void *work(void *sum) {
    for (int i = 0; i < 40; i++) *(long long *)sum += nap(10000000);
    for (int i = 0; i < 100; i++) {
        *(long long *)sum += nap(1000000);
        for (long long end = now() + 100000; now() < end;) {}
    }
    return 0;
}
int main(void) {
    pthread_t threads[8];
    long long sums[8] = {0}, sum = 0;
    for (int i = 0; i < 8; i++) pthread_create(threads + i, 0, work, sums + i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0), sum += sums[i];
    printf("%lld\n", sum);
}
"#;

#[test]
fn weights_are_the_time_that_a_program_slept() {
    let options = ["-e", "wall"];
    let Some(recording) = Recording::of_program("waits-sleeper", SLEEPER, &[], &options, &[])
    else {
        return;
    };
    let slept = recording.printed()[0];
    // Each sleep is at least an interval and recorded exactly. The rest is the time from the end of
    // the system call to the clock, and short waits for a CPU, which are sampled.
    let ratio = recording.weight_in("clock_nanosleep") as f64 / slept;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
    assert_eq!(recording.times.len(), 9, "one for each thread");
    recording.assert_books_close();
    recording.assert_waits_are_exact();
    // The sleeps of each thread are at least 500 ms. The first thread waits for the others.
    let slept = recording.times.iter().filter(|times| times.blocked > 490_000_000);
    assert!(slept.count() >= 8);
    for wait in recording.waits() {
        let is_exact = wait.weight == wait.lasted_ns && wait.weight >= PERIOD_NS;
        // A short wait may contain the points of two periods.
        let is_sampled = wait.weight == wait.count * PERIOD_NS && wait.count <= 2;
        assert!(is_exact || is_sampled, "{} {}", wait.weight, wait.count);
    }
}

#[test]
fn thread_that_waits_all_the_time_is_recorded_in_parts() {
    let mut hung = Command::new("sleep").arg("60").spawn().expect("it is installed");
    let pid = hung.id().to_string();
    wait_until_asleep(hung.id());
    let words = ["-e", "wait", "-p", &pid, "-d", "3.5"];
    let recording = Recording::of(Directory::new("waits-hung"), &words);
    hung.kill().and_then(|()| hung.wait()).expect("it was started");
    let Some(recording) = recording else { return };
    let [times] = &recording.times[..] else { panic!("{} threads", recording.times.len()) };
    assert_eq!((times.cpu, times.runnable, times.blocked), (0, 0, times.wall));
    assert!(times.wall >= 3_400_000_000, "{}", times.wall);
    assert!(
        recording.waits().count() >= 3,
        "one each second, of which one may be late, and one at the end"
    );
    let weight = recording.weight_in("clock_nanosleep");
    // Only the last part may be shorter than a period.
    assert!(weight.abs_diff(times.blocked) <= PERIOD_NS, "{weight} {}", times.blocked);
    let is_complete = |wait: &Observation| {
        wait.event == "blocked" && wait.state == "S" && !wait.frames.is_empty()
    };
    assert!(recording.waits().all(is_complete));
}

/// A shell that reads from a slow pipe, and lives on until its descriptor is looked up.
const READER: &str = "sleep 0.8 | { read line; sleep 0.4; }";

#[test]
fn reader_of_a_pipe_waits_in_read_on_it() {
    let words = ["-e", "blocked", "--", "sh", "-c", READER];
    let Some(recording) = Recording::of(Directory::new("waits-pipe"), &words) else { return };
    let reads = recording.waits().filter(|wait| wait.call == "read");
    let longest = reads.max_by_key(|wait| wait.lasted_ns).expect("the shell reads");
    assert!(longest.lasted_ns > 200_000_000, "{}", longest.lasted_ns);
    assert!(longest.on.starts_with("fd:0=pipe:["), "{}", longest.on);
    assert!(recording.weight_in("clock_nanosleep") > 250_000_000, "sleep sleeps");
}

/// Two processes that use one CPU for a second of its time.
pub(crate) const SPINNERS: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < 2; i++) {
        if (fork()) continue;
        struct timespec t;
        do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_nsec < 500000000);
        _exit(0);
    }
    while (wait(0) > 0) {}
}
"#;

#[test]
fn spinners_on_one_cpu_are_runnable_and_never_blocked() {
    let options = ["-e", "wait"];
    let Some(recording) = Recording::of_program("waits-spinners", SPINNERS, &[], &options, &[])
    else {
        return;
    };
    let mut spinners = recording.times.iter().filter(|times| times.cpu > 400_000_000);
    let (Some(first), Some(second)) = (spinners.next(), spinners.next()) else {
        panic!("{} threads", recording.times.len())
    };
    for Times { wall, cpu, runnable, blocked, .. } in [first, second] {
        // The end of a process may wait for a lock of the kernel.
        assert!(*blocked < wall / 100, "{blocked} of {wall}");
        assert!(wall.abs_diff(cpu + runnable) <= wall / 100, "{wall} {cpu} {runnable}");
    }
    // Other programs may use the CPU, too: each then waits longer.
    let runnable = first.runnable.max(second.runnable);
    assert!(runnable >= 480_000_000, "{runnable}: it waited while the other ran");
    let exact: u64 = recording.times.iter().map(|times| times.runnable).sum();
    let ratio = recording.weight_of("runnable") as f64 / exact as f64;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

/// A thread that another one, on another CPU if there is one, wakes 10,000 times while a third one uses its
/// CPU. Prints the time in ns that it spent in read(2). Real-time priority, if it may have it, excludes other
/// programs.
const WOKEN: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#include "now.h"
static int ends[2];
static volatile int done;
static void run_on(int cpu, int priority) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    struct sched_param parameters = {.sched_priority = priority};
    if (priority) sched_setscheduler(0, SCHED_FIFO, &parameters);
}
static void *compute(void *none) {
    run_on(0, 0);
    while (!done) {}
    return none;
}
static void *wake(void *none) {
    run_on(1, 2);
    struct timespec pause = {0, 70000};
    for (int i = 0; i < 10000; i++) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, 0);
        if (write(ends[1], "", 1) != 1) break;
    }
    close(ends[1]);
    return none;
}
int main(void) {
    pthread_t computing, waking;
    long long away = 0;
    char byte;
    if (pipe(ends)) return 1;
    pthread_create(&computing, 0, compute, 0);
    pthread_create(&waking, 0, wake, 0);
    run_on(0, 1);
    for (;;) {
        long long begin = now();
        ssize_t length = read(ends[0], &byte, 1);
        long long end = now();
        away += end - begin;
        if (length != 1) break;
        while (now() - end < 30000) {}
    }
    done = 1;
    pthread_join(computing, 0);
    printf("%lld\n", away);
}
"#;

#[test]
fn woken_thread_waits_until_it_runs_beside_a_busy_one() {
    for attempt in 1.. {
        let name = "waits-woken";
        let Some(recording) = Recording::of_program(name, WOKEN, &[], &["-e", "wait"], &[]) else {
            return;
        };
        recording.assert_books_close();
        recording.assert_waits_are_exact();
        let away = recording.printed()[0];
        let first = recording.times.iter().min_by_key(|times| times.task).expect("a thread");
        let waited = first.runnable + first.blocked;
        // The rest is the way into the kernel and back, which other work of the CPU may make longer.
        if waited as f64 > 0.85 * away {
            break;
        }
        assert!(attempt < 3, "{waited} of {away} ns");
    }
}

/// A thousand threads that wake and exit at the same time, on one CPU.
const CROWD: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>
static struct timespec end;
static void *nap(void *none) {
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0);
    return none;
}
int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    clock_gettime(CLOCK_MONOTONIC, &end);
    // Less than the time after which a wait is written in parts.
    end.tv_nsec += 500000000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    pthread_t threads[1000];
    for (int i = 0; i < 1000; i++) pthread_create(threads + i, 0, nap, 0);
    for (int i = 0; i < 1000; i++) pthread_join(threads[i], 0);
}
"#;

#[test]
fn waits_of_exiting_threads_have_samples() {
    // A recorder that waits for a CPU has no room for the records of a thousand exits.
    for attempt in 1.. {
        let options = ["-e", "wait"];
        let recording = Recording::of_program("waits-crowd", CROWD, &[], &options, &[]);
        let Some(recording) = recording else { return };
        let exact: u64 = recording.times.iter().map(|times| times.runnable).sum();
        let ratio = recording.weight_of("runnable") as f64 / exact as f64;
        let (threads, lost) = (recording.times.len(), recording.end.lost);
        if threads == 1001 && (0.93..1.07).contains(&ratio) {
            break;
        }
        assert!(attempt < 3, "{threads} threads, {ratio} of {exact}, {lost} lost");
    }
}

/// A loop of waits for a descriptor, which prints how many ended before their time.
pub(crate) const EPOLL: &str = r#"
#include <stdio.h>
#include <sys/epoll.h>
int main(void) {
    int early = 0, queue = epoll_create1(0);
    struct epoll_event event;
    for (int i = 0; i < 300; i++) early += epoll_wait(queue, &event, 1, 4) != 0;
    printf("%d\n", early);
}
"#;

/// Four threads that compute and end at the same time, after the first thread of the process.
const LAST_THREADS: &str = r#"
#include <pthread.h>
#include <time.h>
static double end;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
static void *work(void *none) {
    while (now() < end);
    return none;
}
int main(void) {
    pthread_t thread;
    end = now() + 0.1;
    for (int i = 0; i < 4; i++) pthread_create(&thread, 0, work, 0);
    pthread_exit(0);
}
"#;

#[test]
fn threads_that_end_with_the_recording_have_times() {
    for _ in 0..10 {
        let options = ["-e", "wait"];
        let recording = Recording::of_program("waits-last", LAST_THREADS, &[], &options, &[]);
        let Some(recording) = recording else { return };
        assert_eq!(recording.times.len(), 5);
    }
}

#[test]
fn thread_that_executes_an_image_has_times_before_and_after() {
    let options = ["-e", "wall"];
    let recording = Recording::of_program("waits-executing", EXECUTING_THREAD, &[], &options, &[]);
    if let Some(recording) = recording {
        assert_books_of_executing_thread(&recording);
    }
}

#[test]
fn threads_that_wait_all_the_time_have_times_system_wide() {
    if fs::metadata("/proc/self").expect("procfs").uid() != 0 {
        return eprintln!("SKIPPED: only root records the whole machine");
    }
    let words = ["-e", "wait", "-a", "-d", "0.5"];
    let Some(all) = Recording::of(Directory::new("idle-machine"), &words) else { return };
    let timed: BTreeSet<_> = all.times.iter().map(|times| times.task).collect();
    let waiting: BTreeSet<_> = all.samples.iter().map(|sample| sample.task).collect();
    let missing = waiting.difference(&timed).count();
    // Of threads that end with the recording, the last note may be lost on a busy machine.
    assert!(missing * 20 < waiting.len(), "{missing} of {} have no times", waiting.len());
}

#[test]
fn recorder_ends_no_wait_of_an_epoll_loop() {
    let options = ["-e", "wall"];
    let Some(recording) = Recording::of_program("waits-epoll", EPOLL, &[], &options, &[]) else {
        return;
    };
    assert_eq!(recording.printed(), [0.0]);
    assert!(recording.weight_in("epoll_wait") >= 300 * 3_900_000, "each wait is recorded");
}

#[test]
fn leaf_names_the_cause_without_stacks() {
    let words = ["-e", "blocked", "--unwind", "none", "--", "sleep", "0.2"];
    let Some(recording) = Recording::of(Directory::new("waits-leaf"), &words) else { return };
    assert!(recording.waits().all(|wait| wait.frames.len() == 1), "waits have a leaf");
    let mut leaves = recording.waits().map(|wait| &wait.frames[0].0);
    assert!(leaves.all(|image| !image.contains("bpf_prog")));
}

/// Waits of 1.5 ms below `DEPTH` frames of `FRAME` bytes.
const DEEP: &str = r#"
#include <string.h>
#include <time.h>
static void __attribute__((noinline)) nap(void) {
    struct timespec t = {0, 1500000};
    nanosleep(&t, 0);
}
static int __attribute__((noinline)) deep(int depth) {
    volatile char frame[FRAME];
    memset((char *)frame, depth, FRAME);
    if (depth > 1) deep(depth - 1);
    else for (int i = 0; i < 300; i++) nap();
    return frame[FRAME - 1];
}
int main(void) { return deep(DEPTH) == 1; }
"#;

#[test]
fn deep_stacks_of_waits_are_complete() {
    // 15 KiB, more than the kernel copies, and 1 MB, as much as is ever copied.
    for (depth, frame) in [(60, 256), (1000, 1000)] {
        // On a busy machine the first hints may come late.
        for attempt in 1.. {
            let Some((complete, all)) = complete_deep_stacks(depth, frame) else { return };
            // Each sleep has a sample. Before the first hint, as much is copied as can be, which a busy ring
            // has no room for.
            if all >= 300 && complete + 1 + all / 200 >= all {
                break;
            }
            assert!(attempt < 3, "{depth}: {complete} of {all}");
        }
    }
}

/// Records the program with this number and size of frames. Returns the number of its waits with all
/// frames, and of all. None if it was skipped.
fn complete_deep_stacks(depth: usize, frame: usize) -> Option<(usize, usize)> {
    let name = format!("waits-deep-{depth}");
    let sizes = [format!("-DDEPTH={depth}"), format!("-DFRAME={frame}")];
    let flags = ["-O2", "-fomit-frame-pointer", &sizes[0], &sizes[1]];
    let recording = Recording::of_program(&name, DEEP, &flags, &["-e", "blocked"], &[])?;
    let names = recording.names();
    let complete = recording.waits().filter(|wait| {
        let calls = names.calls(wait);
        let frames = calls.iter().filter(|name| **name == "deep").count();
        wait.mark == Mark::None && (calls.is_empty() || frames == depth)
    });
    Some((complete.count(), recording.waits().count()))
}

/// The compiler of the object in the repository. Others produce other code from the same source.
const COMPILER: &str = "clang version 14.0.6";

#[test]
fn object_is_compiled_from_its_source() {
    let version = Command::new("clang").arg("--version").output();
    let is_same = version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains(COMPILER));
    if !is_same {
        return eprintln!("SKIPPED: no {COMPILER}");
    }
    let directory = Directory::new("waits-object");
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");
    const NAMES: [&str; 2] = ["waits", "calls"];
    for file in ["kernel.h", "waits.bpf.c", "calls.bpf.c"] {
        fs::copy(format!("{own}/{file}"), directory.path(file)).expect("a source");
    }
    let variable = format!("BPF={}", directory.path(""));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let made = Command::new("make").args(["-s", "-C", root, "bpf", &variable]).output();
    let made = made.expect("make runs");
    assert!(made.status.success(), "{}", stderr(&made));
    for name in NAMES {
        let file = format!("{name}.bpf.o");
        let compiled = fs::read(directory.path(&file)).expect("an object");
        let kept = fs::read(format!("{own}/{file}")).expect("an object");
        assert!(compiled == kept, "{file} is not that of its source; run make bpf");
    }
}
