//! Waits of odd lengths and numbers, with truth by construction: in step with the period, one long wait
//! among many short ones, many idle threads, lost samples, a control group.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use crate::attach::Running;
use crate::process_life::signal;
use crate::support::{ControlGroup, Directory, is_refused, recorder, wait_until_asleep};
use crate::waiting::{PERIOD_NS, Recording, Times};

/// Returns the sum of the weights of waits in each of two functions.
fn weights_in(recording: &Recording, functions: [&str; 2]) -> [f64; 2] {
    let names = recording.names();
    let waits: Vec<_> = recording.waits().map(|wait| (names.calls(wait), wait.weight)).collect();
    functions.map(|function| {
        let own = waits.iter().filter(|(calls, _)| calls.contains(&function));
        own.map(|(_, weight)| *weight as f64).sum()
    })
}

/// Twenty threads that sleep 0.9 ms and 0.1 ms in turn. Prints the share of the longer sleeps in the
/// time of both.
const LOCKSTEP: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include "now.h"
static void sleep_until(long long end) {
    struct timespec t = {end / 1000000000, end % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}
static long long longer[20], shorter[20];
__attribute__((noinline)) static void longer_sleep(long long end) { sleep_until(end); }
__attribute__((noinline)) static void shorter_sleep(long long end) { sleep_until(end); }
static void *work(void *number) {
    long i = (long)number;
    prctl(PR_SET_TIMERSLACK, 1);
    for (long long end = now(), stop = end + 1000000000; end < stop;) {
        long long before = now();
        longer_sleep(end += 900000);
        long long between = now();
        shorter_sleep(end += 100000);
        longer[i] += between - before, shorter[i] += now() - between;
    }
    return 0;
}
int main(void) {
    pthread_t threads[20];
    long long all = 0, sum = 0;
    for (long i = 0; i < 20; i++) pthread_create(threads + i, 0, work, (void *)i);
    for (int i = 0; i < 20; i++) pthread_join(threads[i], 0), sum += longer[i], all += longer[i] + shorter[i];
    printf("%f\n", (double)sum / all);
}
"#;

#[test]
fn shares_of_waits_in_step_with_the_period_are_right() {
    let options = ["-e", "wait:1000000"];
    let Some(recording) = Recording::of_program(
        "waits-lockstep",
        LOCKSTEP,
        &["-fno-optimize-sibling-calls"],
        &options,
        &[],
    ) else {
        return;
    };
    let truth = recording.printed()[0];
    let [longer, shorter] = weights_in(&recording, ["longer_sleep", "shorter_sleep"]);
    let share = longer / (longer + shorter);
    // 20,000 samples: the standard deviation is below 0.3 points, and the clock reads of the program
    // add some of its CPU time.
    assert!((share - truth).abs() < 0.02, "{share} {truth}");
}

/// A hundred thousand waits for the other end of a pipe, and one of a second. Prints the time of the
/// long one in ns.
const NEEDLE: &str = r#"
#include <stdio.h>
#include <unistd.h>
#include "now.h"
static int there[2], back[2];
static char byte;
__attribute__((noinline)) static int long_read(void) { return read(back[0], &byte, 1) + 1; }
__attribute__((noinline)) static int short_read(void) { return read(back[0], &byte, 1) + 1; }
int main(void) {
    if (pipe(there) || pipe(back)) return 1;
    if (fork() == 0) {
        close(there[1]);
        usleep(1000000);
        while (write(back[1], &byte, 1) == 1 && read(there[0], &byte, 1) == 1) {}
        _exit(0);
    }
    long long begin = now();
    long_read();
    printf("%lld\n", now() - begin);
    for (int i = 0; i < 100000; i++) {
        if (write(there[1], &byte, 1) != 1) return 1;
        short_read();
    }
}
"#;

#[test]
fn long_wait_among_a_hundred_thousand_short_ones_has_its_share() {
    let options = ["-e", "wait"];
    let Some(recording) = Recording::of_program("waits-needle", NEEDLE, &[], &options, &[]) else {
        return;
    };
    let truth = recording.printed()[0];
    let [long, _] = weights_in(&recording, ["long_read", "short_read"]);
    assert!((0.98..1.02).contains(&(long / truth)), "{long} {truth}");
    // The kernel's clocks of CPU time leave out stolen time: the exact sums are those of the programs.
    let waited = |times: &Times| (times.runnable + times.blocked) as f64;
    let names = recording.names();
    let reader = recording.waits().find(|wait| names.calls(wait).contains(&"long_read"));
    let reader = reader.expect("the long read").task;
    let own = recording.times.iter().find(|times| times.task == reader).expect("its times");
    // On a busy machine the thread is preempted in `main`, too.
    let all = recording.waits().filter(|wait| wait.task == reader).map(|wait| wait.weight as f64);
    let (share, exact) = (long / all.sum::<f64>(), truth / waited(own));
    assert!((share - exact).abs() < 0.015, "{share} {exact}");
    // At most a sample for each period of waiting, however often the threads are switched.
    assert_eq!(recording.end.lost, 0);
    let waiting: u64 = recording.times.iter().map(|it| it.runnable + it.blocked).sum();
    let samples = recording.samples.len() as u64;
    assert!(samples <= waiting / 1_000_000 + 20, "{samples} of {waiting}");
    recording.assert_waits_are_exact();
}

/// A thousand idle threads and four busy ones, until standard input is closed.
const IDLE: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
static volatile long turns;
static pthread_barrier_t named;
static void begin(const char *name) {
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&named);
}
static void *idle(void *none) { begin("idle"); pause(); return none; }
static void *busy(void *none) { begin("as long a name!"); for (;;) turns++; return none; }
int main(void) {
    char end;
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&named, 0, 1005);
    for (int i = 0; i < 1000; i++) pthread_create(&thread, &small, idle, 0);
    for (int i = 0; i < 4; i++) pthread_create(&thread, &small, busy, 0);
    pthread_barrier_wait(&named);
    puts("ready");
    fflush(stdout);
    _exit(read(0, &end, 1) < 0);
}
"#;

#[test]
fn idle_threads_have_few_samples_and_all_their_time() {
    let directory = Directory::new("waits-idle");
    let Some(program) = directory.compile("gcc", IDLE, &["-O1", "-pthread"]) else { return };
    let running = Running::start(&mut Command::new(program));
    let words = ["-e", "wait", "-p", &running.pid(), "-d", "3"];
    let Some(recording) = Recording::of(directory, &words) else { return };
    assert_eq!(recording.times.len(), 1005);
    recording.assert_waits_are_exact();
    let named = |name: &[u8]| recording.lives.values().filter(|thread| thread.comm == name).count();
    assert_eq!((named(b"idle"), named(b"as long a name!")), (1000, 4));
    // One at the end for each thread, and 32 in each second before. The size of the stream also depends
    // on the time for which the busy threads wait for a CPU.
    let parts = recording.samples.iter().filter(|it| it.event == "blocked").count();
    assert!((1000..1200).contains(&parts), "{parts}");
}

/// Fifty threads that sleep for half a millisecond again and again, while the recorder, the parent of
/// the process, is stopped. They end after it has gone on.
const FLOOD: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
static atomic_int is_over;
static void nap(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, 0);
}
static void *work(void *none) {
    while (!is_over) nap(500000);
    return none;
}
int main(void) {
    pthread_t threads[50];
    if (kill(getppid(), SIGSTOP)) return 1;
    for (int i = 0; i < 50; i++) pthread_create(threads + i, 0, work, 0);
    nap(900000000);
    kill(getppid(), SIGCONT);
    nap(500000000);
    is_over = 1;
    for (int i = 0; i < 50; i++) pthread_join(threads[i], 0);
}
"#;

#[test]
fn waits_that_a_stopped_recorder_loses_are_counted() {
    // Each wait is recorded, with 8 KiB of stack.
    let options = ["-e", "blocked:10000"];
    let Some(recording) = Recording::of_program("waits-flood", FLOOD, &[], &options, &[]) else {
        return;
    };
    let exact: u64 = recording.times.iter().map(|times| times.blocked).sum();
    let weight = recording.weight_of("blocked");
    let lost = recording.end.lost;
    assert!(lost > 0, "{weight} of {exact}");
    let message = String::from_utf8_lossy(&recording.output.stderr).into_owned();
    assert!(message.contains(&format!(" {lost} lost ")), "{message}");
    assert!(message.contains("nprof-record was stopped for"), "{message}");
    // The times of threads are counted in the kernel, and show how much the samples lack.
    assert_eq!(recording.times.len(), 51);
    assert!(weight < exact, "{weight} of {exact}");
}

#[test]
fn waits_of_a_control_group_are_those_of_its_tasks() {
    let Some(group) = ControlGroup::new("waits") else { return };
    let enter = format!("echo $$ > {}/cgroup.procs && exec sleep 60", group.0);
    let mut inside = Command::new("sh").args(["-c", &enter]).spawn().expect("a shell");
    let mut outside = Command::new("sleep").arg("61").spawn().expect("it is installed");
    // The shell enters the group before it executes sleep.
    wait_until_asleep(inside.id());
    let words = ["-e", "wait", "--cgroup", &group.0, "-d", "1.5"];
    let recording = Recording::of(Directory::new("waits-cgroup"), &words);
    for child in [&mut inside, &mut outside] {
        child.kill().and_then(|()| child.wait()).expect("it was started");
    }
    let Some(recording) = recording else { return };
    let [times] = &recording.times[..] else { panic!("{} threads", recording.times.len()) };
    assert!(times.blocked > 1_300_000_000, "{}", times.blocked);
    let weight = recording.weight_in("clock_nanosleep");
    assert!(weight.abs_diff(times.blocked) <= PERIOD_NS, "{weight} {}", times.blocked);
}

#[test]
fn processes_that_enter_a_control_group_have_their_waits() {
    let Some(group) = ControlGroup::new("enter") else { return };
    let directory = Directory::new("waits-enter");
    let file = directory.path("out");
    let words = ["-e", "wall", "--cgroup", &group.0, "-o", &file];
    let mut recorder = recorder(&words).stderr(Stdio::piped()).spawn().expect("the recorder runs");
    // Its head is written once the group is recorded.
    while !std::fs::metadata(&file).is_ok_and(|it| it.len() > 0)
        && recorder.try_wait().is_ok_and(|ended| ended.is_none())
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The shell has children before the recorder sees it, and others later.
    let enter = format!(
        "echo $$ > {}/cgroup.procs; sleep 2.5 & for i in $(seq 25); do sleep 0.1; done; wait",
        group.0
    );
    Command::new("sh").args(["-c", &enter]).status().expect("a shell");
    signal("-INT", &recorder);
    let output = recorder.wait_with_output().expect("it ends");
    if is_refused(&output) {
        return;
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let recording = Recording::of_output(&Rc::new(directory), "out", output);
    if recording.is_by_switches() {
        return eprintln!("SKIPPED: no BPF programs measure waiting");
    }
    let blocked = |comm: &[u8]| {
        let of_it = |task| recording.lives.get(&task).is_some_and(|life| life.comm == comm);
        let times = recording.times.iter().filter(|times| of_it(times.task));
        times.map(|times| times.blocked).collect::<Vec<_>>()
    };
    // The recorder has half a second to see the shell, on a busy machine.
    let total: u64 = blocked(b"sleep").iter().chain(&blocked(b"sh")).sum();
    assert!(total > 3 * 2_000_000_000, "{total} of 7.5 s: {message}");
    recording.assert_waits_are_exact();
}

/// A thread that alternates between 20 us of work and of sleep, and prints its CPU time in ns.
const SHORT_TURNS: &str = r#"
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
static long long now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
__attribute__((noinline)) static void work(void) {
    for (long long end = now(CLOCK_MONOTONIC) + 20000; now(CLOCK_MONOTONIC) < end;) {}
}
int main(void) {
    struct timespec nap = {0, 20000};
    prctl(PR_SET_TIMERSLACK, 1);
    for (int i = 0; i < 40000; i++) {
        work();
        nanosleep(&nap, 0);
    }
    printf("%lld\n", now(CLOCK_PROCESS_CPUTIME_ID));
}
"#;

#[test]
fn cpu_time_after_short_waits_is_sampled() {
    let options = ["-e", "wall", "-F", "4000"];
    let found = Recording::of_program("waits-turns", SHORT_TURNS, &[], &options, &[]);
    let Some(recording) = found else { return };
    let [times] = &recording.times[..] else { panic!("{:?}", recording.times) };
    let share = recording.weight_of("cpu-clock") as f64 / times.cpu as f64;
    // By the samples of the timer alone, it was 0.86 in a virtual machine.
    assert!((0.95..1.05).contains(&share), "{share} of {times:?}");
    let printed = recording.printed()[0];
    assert!((0.8..1.2).contains(&(times.cpu as f64 / printed)), "{printed} {times:?}");
}

/// A thread that runs for two seconds, on one CPU with one that alternates between 20 us of work and of sleep.
const PREEMPTED: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include "now.h"
static long long end;
static void *turns(void *unused) {
    struct timespec nap = {0, 20000};
    prctl(PR_SET_TIMERSLACK, 1);
    while (now() < end) {
        for (long long until = now() + 20000; now() < until;) {}
        nanosleep(&nap, 0);
    }
    return unused;
}
int main(void) {
    cpu_set_t one;
    pthread_t thread;
    sched_getaffinity(0, sizeof(one), &one);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &one)) continue;
        if (found++) CPU_CLR(cpu, &one);
    }
    sched_setaffinity(0, sizeof(one), &one);
    end = now() + 2000000000LL;
    pthread_create(&thread, 0, turns, 0);
    while (now() < end) {}
    pthread_join(thread, 0);
}
"#;

#[test]
fn each_of_two_threads_on_a_cpu_has_samples_of_its_time() {
    let options = ["-e", "wall", "-F", "4000"];
    let found = Recording::of_program("waits-preempted", PREEMPTED, &[], &options, &[]);
    let Some(recording) = found else { return };
    assert_eq!(recording.times.len(), 2);
    for times in &recording.times {
        let of_thread = recording.samples.iter().filter(|sample| sample.task == times.task);
        let on_cpu = of_thread.filter(|sample| sample.event == "cpu-clock");
        let share = on_cpu.map(|it| it.weight).sum::<u64>() as f64 / times.cpu as f64;
        // By the samples as they come, 1.13 and 0.74 in a virtual machine.
        assert!((0.95..1.05).contains(&share), "{share} of {times:?}");
    }
}

/// Two threads that hand over to each other a thousand times, and pause, for two seconds.
const HANDOVERS: &str = r#"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static int there[2], back[2];
static void *reply(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
    return unused;
}
int main(void) {
    pthread_t thread;
    struct timespec pause = {0, 10000000}, t;
    char byte = 0;
    pipe(there), pipe(back);
    pthread_create(&thread, 0, reply, 0);
    clock_gettime(CLOCK_MONOTONIC, &t);
    for (time_t end = t.tv_sec + 2; t.tv_sec < end; clock_gettime(CLOCK_MONOTONIC, &t)) {
        for (int i = 0; i < 1000; i++) write(there[1], &byte, 1), read(back[0], &byte, 1);
        nanosleep(&pause, 0);
    }
    close(there[1]);
    pthread_join(thread, 0);
}
"#;

#[test]
fn no_time_of_threads_that_hand_over_and_pause_is_counted_twice() {
    let found = Recording::of_program("waits-handovers", HANDOVERS, &[], &["-e", "wall"], &[]);
    let Some(recording) = found else { return };
    assert_eq!(recording.times.len(), 2);
    for Times { wall, cpu, runnable, blocked, .. } in &recording.times {
        let sum = cpu + runnable + blocked;
        assert!(wall.abs_diff(sum) <= 100_000, "{wall} {sum}");
    }
}
