//! Waiting: the sums of programs that time themselves, causes, and threads that wait all the time.

use std::fs;
use std::process::{Command, Output};

use nprof_stream::{ChangeKind, Mark, Reader, Record};

use crate::deep_stacks::Functions;
use crate::support::{Directory, Stream, record, stderr};

/// The interval of the events, in ns.
const PERIOD_NS: u64 = 1_003_010;

/// A sample of a wait.
pub(crate) struct Wait {
    pub(crate) event: String,
    pub(crate) weight: u64,
    count: u64,
    lasted_ns: u64,
    call: String,
    on: String,
    pub(crate) state: String,
    pub(crate) has_stack: bool,
}

/// The exact times of a thread.
pub(crate) struct Times {
    pub(crate) wall: u64,
    pub(crate) cpu: u64,
    pub(crate) runnable: u64,
    pub(crate) blocked: u64,
}

/// The waits of a stream.
#[derive(Default)]
pub(crate) struct Waits {
    pub(crate) waits: Vec<Wait>,
    pub(crate) times: Vec<Times>,
    /// The way in which the last event was measured.
    pub(crate) capture: String,
}

impl Waits {
    pub(crate) fn from_file(path: &str) -> Self {
        let bytes = fs::read(path).expect("a file");
        let mut reader = Reader::new(&bytes[..]);
        let (mut all, mut events) = (Self::default(), Vec::new());
        while let Some(record) = reader.next().expect("a stream") {
            match record {
                Record::Event(event) => {
                    events.push(String::from_utf8_lossy(&event.name).into());
                    all.capture = String::from_utf8_lossy(&event.capture).into();
                }
                Record::Sample(sample) if sample.extras.get("lasted").is_some() => {
                    let word = |key| match sample.extras.get(key) {
                        Some(value) => String::from_utf8_lossy(&value).into_owned(),
                        None => String::new(),
                    };
                    let event: &String = &events[sample.event.0 as usize - 1];
                    all.waits.push(Wait {
                        event: event.clone(),
                        weight: sample.weight,
                        count: sample.count,
                        lasted_ns: sample.extras.number("lasted").expect("a number"),
                        call: word("call"),
                        on: word("on"),
                        state: word("state"),
                        has_stack: !sample.node.is_none(),
                    });
                }
                Record::Change(change) if change.kind == ChangeKind::Times => {
                    let ns = |key| change.extras.number(key).expect("a number");
                    all.times.push(Times {
                        wall: ns("wall"),
                        cpu: ns("cpu"),
                        runnable: ns("runnable"),
                        blocked: ns("blocked"),
                    });
                }
                _ => {}
            }
        }
        all
    }

    /// Returns the sum of the weights of waits in a system call.
    pub(crate) fn weight_in(&self, call: &str) -> u64 {
        self.waits.iter().filter(|wait| wait.call == call).map(|wait| wait.weight).sum()
    }
}

/// Returns the waits of a recording. None if BPF programs cannot measure them here, which is printed.
fn measured(output: &Output, file: &str) -> Option<Waits> {
    let message = stderr(output);
    assert!(output.status.success(), "{message}");
    let waits = Waits::from_file(file);
    if waits.capture == "switches" {
        eprintln!("SKIPPED: no BPF programs measure waiting: {message}");
        return None;
    }
    Some(waits)
}

/// Eight threads that sleep in two lengths, and print the time that they slept in ns.
pub(crate) const SLEEPER: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
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
    let directory = Directory::new("waits-sleeper");
    let file = directory.path("out");
    let Some(program) = directory.compile("gcc", SLEEPER, &["-O1", "-pthread"]) else { return };
    let output = record(&["-e", "wall", "-o", &file, "--", &program]);
    let Some(waits) = measured(&output, &file) else { return };
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let slept: f64 = text.trim().parse().expect("a number");
    // Each sleep is at least an interval and recorded exactly. The rest is the time from the end of
    // the system call to the clock, and short waits for a CPU, which are sampled.
    let ratio = waits.weight_in("clock_nanosleep") as f64 / slept;
    assert!((0.97..1.03).contains(&ratio), "{ratio}");
    assert_eq!(waits.times.len(), 9, "one for each thread");
    for Times { wall, cpu, runnable, blocked } in waits.times {
        let sum = cpu + runnable + blocked;
        assert!(wall.abs_diff(sum) <= wall / 1000 + PERIOD_NS, "{wall} {sum}");
        assert!(blocked > wall / 4, "{wall} {blocked}");
    }
    for wait in &waits.waits {
        let is_exact = wait.weight == wait.lasted_ns && wait.weight >= PERIOD_NS;
        // A short wait may contain the points of two periods.
        let is_sampled = wait.weight == wait.count * PERIOD_NS && wait.count <= 2;
        assert!(is_exact || is_sampled, "{} {}", wait.weight, wait.count);
    }
}

#[test]
fn thread_that_waits_all_the_time_is_recorded_in_parts() {
    let directory = Directory::new("waits-hung");
    let file = directory.path("out");
    let mut hung = Command::new("sleep").arg("60").spawn().expect("it is installed");
    let pid = hung.id().to_string();
    let output = record(&["-e", "wait", "-p", &pid, "-d", "2.5", "-o", &file]);
    hung.kill().and_then(|()| hung.wait()).expect("it was started");
    let Some(waits) = measured(&output, &file) else { return };
    let [times] = &waits.times[..] else { panic!("{} threads", waits.times.len()) };
    assert_eq!((times.cpu, times.runnable, times.blocked), (0, 0, times.wall));
    assert!(times.wall >= 2_400_000_000, "{}", times.wall);
    assert!(waits.waits.len() >= 3, "one each second, and one at the end");
    let weight = waits.weight_in("clock_nanosleep");
    // The last part ends a moment after the times were read.
    assert!(weight.abs_diff(times.blocked) < 50_000_000, "{weight} {}", times.blocked);
    let is_complete = |wait: &Wait| wait.has_stack && wait.state == "S" && wait.event == "blocked";
    assert!(waits.waits.iter().all(is_complete));
}

/// A shell that reads from a slow pipe, and lives on until its descriptor is looked up.
const READER: &str = "sleep 0.3 | { read line; sleep 0.4; }";

#[test]
fn reader_of_a_pipe_waits_in_read_on_it() {
    let directory = Directory::new("waits-pipe");
    let file = directory.path("out");
    let output = record(&["-e", "blocked", "-o", &file, "--", "sh", "-c", READER]);
    let Some(waits) = measured(&output, &file) else { return };
    let longest = waits.waits.iter().filter(|wait| wait.call == "read");
    let longest = longest.max_by_key(|wait| wait.lasted_ns).expect("the shell reads");
    assert!(longest.lasted_ns > 200_000_000, "{}", longest.lasted_ns);
    assert!(longest.on.starts_with("fd:0=pipe:["), "{}", longest.on);
    assert!(waits.weight_in("clock_nanosleep") > 250_000_000, "sleep sleeps");
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
    let directory = Directory::new("waits-spinners");
    let file = directory.path("out");
    let Some(program) = directory.compile("gcc", SPINNERS, &["-O1"]) else { return };
    let output = record(&["-e", "wait", "-o", &file, "--", &program]);
    let Some(waits) = measured(&output, &file) else { return };
    let mut spinners = waits.times.iter().filter(|times| times.cpu > 400_000_000);
    let (Some(first), Some(second)) = (spinners.next(), spinners.next()) else {
        panic!("{} threads", waits.times.len())
    };
    for Times { wall, cpu, runnable, blocked } in [first, second] {
        // The end of a process may wait for a lock of the kernel.
        assert!(*blocked < wall / 100, "{blocked} of {wall}");
        assert!(wall.abs_diff(cpu + runnable) <= wall / 100, "{wall} {cpu} {runnable}");
    }
    // Other programs may use the CPU, too: each then waits longer.
    let runnable = first.runnable.max(second.runnable);
    assert!(runnable >= 480_000_000, "{runnable}: it waited while the other ran");
    let weight: u64 =
        waits.waits.iter().filter(|it| it.event == "runnable").map(|it| it.weight).sum();
    let exact: u64 = waits.times.iter().map(|times| times.runnable).sum();
    let ratio = weight as f64 / exact as f64;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
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
    let directory = Directory::new("waits-crowd");
    let file = directory.path("out");
    let Some(program) = directory.compile("gcc", CROWD, &["-O1", "-pthread"]) else { return };
    let output = record(&["-e", "wait", "-o", &file, "--", &program]);
    let Some(waits) = measured(&output, &file) else { return };
    assert_eq!(waits.times.len(), 1001, "one for each thread");
    let exact: u64 = waits.times.iter().map(|times| times.runnable).sum();
    let weight: u64 =
        waits.waits.iter().filter(|it| it.event == "runnable").map(|it| it.weight).sum();
    let ratio = weight as f64 / exact as f64;
    assert!((0.93..1.07).contains(&ratio), "{ratio} of {exact}");
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

#[test]
fn recorder_ends_no_wait_of_an_epoll_loop() {
    let directory = Directory::new("waits-epoll");
    let file = directory.path("out");
    let Some(program) = directory.compile("gcc", EPOLL, &["-O1"]) else { return };
    let output = record(&["-e", "wall", "-o", &file, "--", &program]);
    let Some(waits) = measured(&output, &file) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert!(waits.weight_in("epoll_wait") >= 300 * 3_900_000, "each wait is recorded");
}

#[test]
fn leaf_names_the_cause_without_stacks() {
    let directory = Directory::new("waits-leaf");
    let file = directory.path("out");
    let sleep = ["--unwind", "none", "--", "sleep", "0.2"];
    let output = record(&[&["-e", "blocked", "-o", &file], &sleep[..]].concat());
    if measured(&output, &file).is_none() {
        return;
    }
    let bytes = fs::read(&file).expect("a file");
    let mut reader = Reader::new(&bytes[..]);
    let (mut images, mut frames) = (Vec::new(), 0);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Image(image) => images.push(String::from_utf8_lossy(image.path).into_owned()),
            Record::Event(event) => {
                assert_eq!(event.capture, b"bpf");
            }
            Record::Frame(_) => frames += 1,
            _ => {}
        }
    }
    assert!(frames > 0, "waits have a leaf");
    assert!(images.iter().all(|image| !image.contains("bpf_prog")), "{images:?}");
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
        let directory = Directory::new(&format!("waits-deep-{depth}"));
        let file = directory.path("out");
        let sizes = [format!("-DDEPTH={depth}"), format!("-DFRAME={frame}")];
        let options = ["-O2", "-fomit-frame-pointer", &sizes[0], &sizes[1]];
        let Some(program) = directory.compile("gcc", DEEP, &options) else { return };
        let output = record(&["-e", "blocked", "-o", &file, "--", &program]);
        if measured(&output, &file).is_none() {
            return;
        }
        let stream = Stream::from_file(&file);
        assert!(stream.samples.len() >= 300, "each sleep has a sample");
        let functions = Functions::from_file(&program);
        let complete = stream.samples.iter().filter(|sample| {
            let calls = functions.on_stack(sample);
            let frames = calls.iter().filter(|name| **name == "deep").count();
            sample.mark == Mark::None && (calls.is_empty() || frames == depth)
        });
        let (complete, all) = (complete.count(), stream.samples.len());
        // Before the first hint, as much is copied as can be, which a busy ring has no room for; on a
        // busy machine the hint comes late.
        assert!(complete + 1 + all / 50 >= all, "{depth}: {complete} of {all}");
    }
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
    fs::copy(format!("{own}/waits.bpf.c"), directory.path("waits.bpf.c")).expect("a source");
    let variable = format!("BPF={}", directory.path(""));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let made = Command::new("make").args(["-s", "-C", root, "bpf", &variable]).output();
    let made = made.expect("make runs");
    assert!(made.status.success(), "{}", stderr(&made));
    let compiled = fs::read(directory.path("waits.bpf.o")).expect("an object");
    let kept = fs::read(format!("{own}/waits.bpf.o")).expect("an object");
    assert!(compiled == kept, "the object is not that of its source; run make bpf");
}
