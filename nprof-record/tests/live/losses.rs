//! Losses: lost samples and lost records of mappings, told apart.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::support::{Directory, Stream, can_record, record, stderr};
use nprof_stream::Verdict;

/// Stops its parent, the recorder, while it maps more than the recorder's ring can hold.
const MAPPING_STORM: &str = r#"
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    kill(getppid(), SIGSTOP);
    clock_t end = clock() + CLOCKS_PER_SEC / 10;
    for (int i = 0; i < 10000 || clock() < end; i++) {
        void *at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(at, 4096);
    }
    kill(getppid(), SIGCONT);
    while (clock() < CLOCKS_PER_SEC / 20) {}
}
"#;

/// Stops its parent, the recorder, while it maps more than the recorder's ring can hold, and then maps
/// nothing for long enough that the kernel reports the loss late.
const LATE_REPORT: &str = r#"
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
static void map(int count) {
    for (int i = 0; i < count; i++) {
        munmap(mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    }
}
int main(void) {
    kill(getppid(), SIGSTOP);
    map(10000);
    poll(0, 0, 300);
    kill(getppid(), SIGCONT);
    poll(0, 0, 800);
    map(10);
    poll(0, 0, 200);
}
"#;

/// Prints its own scheduling policy and niceness, and the policy of its parent, the recorder.
const POLICIES: &str = r#"
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
int main(void) {
    printf("%d %d %d\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
           sched_getscheduler(getppid()));
}
"#;

#[test]
fn only_the_recorder_has_a_real_time_priority() {
    let directory = Directory::new("priority");
    if !can_record() {
        return;
    }
    let Some(program) = directory.compile("gcc", POLICIES, &["-D_GNU_SOURCE"]) else { return };
    let output = record(&["-o", &directory.path("stream"), "--", &program]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    // The command has the policy and niceness of the program that starts the recorder.
    let direct = Command::new(&program).output().expect("it runs").stdout;
    let direct = String::from_utf8_lossy(&direct).into_owned();
    let of_command = |printed: &str| printed.rsplit_once(' ').map(|(own, _)| own.to_owned());
    assert_eq!(of_command(&printed), of_command(&direct));
    // SCHED_RR with SCHED_RESET_ON_FORK.
    if !printed.ends_with(" 1073741826\n") {
        eprintln!("SKIPPED: no right to a real-time priority: {printed}");
    }
}

#[test]
fn lost_records_of_mappings_are_no_lost_samples() {
    let directory = Directory::new("mapping-storm");
    if !can_record() {
        return;
    }
    let Some(program) = directory.compile("gcc", MAPPING_STORM, &[]) else { return };
    let path = directory.path("stream");
    let begin = Instant::now();
    let output = record(&["-o", &path, "--", &program]);
    let elapsed = begin.elapsed().as_secs_f64();
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&path);
    assert_eq!(stream.verdict, Verdict::Complete);
    let end = stream.end.expect("an end");
    // 112 bytes each, in rings of at most 256 KiB.
    let lost = end.lost_records.expect("known");
    assert!(lost > 0, "{}", stderr(&output));
    // Stopped for long on a busy machine, it loses samples, too: a thousand a second of each CPU.
    let text = fs::read_to_string("/proc/stat").expect("the CPUs");
    let cpus = text.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    let most = elapsed * 1000.0 * cpus as f64;
    assert!((end.lost as f64) < most, "{elapsed}: {}", stderr(&output));
    let message = stderr(&output);
    assert!(message.contains(": nprof-record was stopped for "), "{message}");
    assert!(!message.contains("-F"), "no rate helps: {message}");
}

#[test]
fn loss_that_is_reported_long_after_a_stop_is_due_to_it() {
    let directory = Directory::new("late-report");
    if !can_record() {
        return;
    }
    let Some(program) = directory.compile("gcc", LATE_REPORT, &[]) else { return };
    let stream = directory.path("stream");
    // On one CPU the command mostly stops the recorder before its main loop begins.
    let one_cpu = ["taskset", "-c", "0"];
    for (prefix, follow) in
        [(&[][..], "system"), (&[], "inherit"), (&one_cpu, "system"), (&one_cpu, "inherit")]
    {
        let recorder = env!("CARGO_BIN_EXE_nprof-record");
        let own = [recorder, "--follow", follow, "-o", &stream, "--", &program];
        let words = [prefix, &own].concat();
        let Ok(output) = Command::new(words[0]).args(&words[1..]).output() else {
            eprintln!("SKIPPED: there is no {}", words[0]);
            continue;
        };
        let message = stderr(&output);
        if !output.status.success() {
            eprintln!("SKIPPED: {words:?}: {message}");
            continue;
        }
        assert!(message.contains("records of processes and mappings were lost"), "{message}");
        assert!(message.contains(": nprof-record was stopped for "), "{words:?}: {message}");
    }
}
