//! Recording processes, the system and cgroups that run already; several events, delay, CPUs.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use crate::support::{Directory, Stream, can_record, record, recorder, stderr};
use nprof_stream::{LoadSegment, Reader, Record, Verdict};

/// Threads that create threads: each works for 3 ms of CPU time, starts the next one and exits.
/// The program prints "ready" when they run, and runs until its standard input is closed.
const RELAY: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile long work;
static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static void *relay(void *none) {
    pthread_t next;
    while (used() < 0.003) for (int i = 0; i < 1000; i++) work += i;
    if (pthread_create(&next, 0, relay, 0) == 0) pthread_detach(next);
    return none;
}
int main(void) {
    char end;
    pthread_t first;
    for (int i = 0; i < 3; i++) { pthread_create(&first, 0, relay, 0); pthread_detach(first); }
    puts("ready");
    fflush(stdout);
    return read(0, &end, 1) < 0;
}
"#;

/// Prints "ready", and works in a child once it gets a byte: 300 ms, prints "half", and 200 ms more. It
/// ends with the child.
const PARENT: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static volatile long work;
static double used(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static void burn(double seconds) {
    while (used() < seconds) for (int i = 0; i < 1000; i++) work += i;
}
int main(void) {
    char begin;
    puts("ready");
    fflush(stdout);
    if (read(0, &begin, 1) != 1) return 1;
    if (fork() == 0) {
        burn(0.3);
        puts("half");
        fflush(stdout);
        burn(0.5);
        return 0;
    }
    return wait(0) < 0;
}
"#;

/// A program that is ended on drop, by closing its standard input.
pub(crate) struct Running(Child);

impl Running {
    /// Starts the program and waits until it prints "ready".
    pub(crate) fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut running = Self(spawned.expect("it runs"));
        running.wait_for_line("ready\n");
        running
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until it prints a line.
    fn wait_for_line(&mut self, expected: &str) {
        let mut line = String::new();
        let output = self.0.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("UTF-8");
        assert_eq!(line, expected);
    }

    /// Writes to its standard input.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().expect("piped").write_all(bytes).expect("it reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn relay(name: &str) -> Option<(Directory, Running)> {
    let directory = Directory::new(name);
    let program = directory.compile("gcc", RELAY, &["-O1", "-pthread"])?;
    let running = Running::start(&mut Command::new(program));
    Some((directory, running))
}

#[test]
fn attaches_by_inheritance() {
    if !can_record() {
        return;
    }
    let Some((directory, running)) = relay("inherit") else { return };
    let file = directory.path("out");
    let pid = running.pid();
    let output = record(&["--follow", "inherit", "-o", &file, "-d", "0.5", "-p", &pid]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert!(stream.tasks > 1 && !stream.samples.is_empty(), "{}", stderr(&output));
    assert_eq!(stream.end.expect("an end").lost_others, Some(0), "no ring has samples of others");
    let output = record(&["--follow", "cgroup", "-o", &file, "-p", &pid]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("--follow cgroup needs a command"), "{}", stderr(&output));
}

#[test]
fn attached_program_with_newline_in_its_path_is_found() {
    if !can_record() {
        return;
    }
    let Some((directory, running)) = relay("newline") else { return };
    drop(running);
    // Procfs escapes the newline, records of the kernel do not.
    let program = directory.path("a\nprogram");
    fs::rename(directory.path("program"), &program).expect("renamed");
    let running = Running::start(&mut Command::new(&program));
    let file = directory.path("out");
    let output = record(&["-o", &file, "-d", "0.5", "-p", &running.pid()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    let images = stream.samples.iter().flat_map(|sample| &sample.frames);
    assert!(images.clone().any(|(image, _)| image == "a\nprogram"));
    assert!(!images.clone().any(|(image, _)| image.contains("012")));
    let (mut executed, mut load) = (Vec::new(), Vec::new());
    let bytes = fs::read(&file).expect("it is written");
    let mut reader = Reader::new(&*bytes);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Task(task) => executed.extend(task.extras.get("exe").map(|exe| exe.to_vec())),
            Record::Image(image) if image.path.ends_with(b"/a\nprogram") => {
                load = LoadSegment::decode(&image.extras.get("load").expect("its segments"));
            }
            _ => {}
        }
    }
    assert_eq!(executed, [OsStr::new(&program).as_bytes()]);
    assert!(load.iter().any(|segment| segment.executable && segment.size > 0), "{load:?}");
    assert!(stream.complete() > 0.9, "{}", stderr(&output));
}

#[test]
fn records_short_lived_threads_after_attaching() {
    if !can_record() {
        return;
    }
    let Some((directory, running)) = relay("relay") else { return };
    let file = directory.path("out");
    let output = record(&["-o", &file, "-d", "0.7", "-p", &running.pid()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.end.as_ref().expect("an end").reason, b"duration");
    // On a busy machine the threads get a small part of the CPUs. A sample per ms and CPU hits them
    // at random: in 1 of 15,000 runs by more than 4 standard deviations.
    let used_ms = stream.end.as_ref().and_then(|end| end.task_ns).expect("known") as f64 * 1e-6;
    // Inherited events miss up to a period (1 ms) of each thread on each CPU: much of 3 ms.
    if !stderr(&output).contains("not privileged") {
        let error = (stream.accounted() - 1.0).abs();
        assert!(error < 0.1 + 4.0 / used_ms.sqrt(), "{error}: {}", stderr(&output));
    }
    // Each has 3 ms, and the time that it takes to start the next and to exit.
    assert!(stream.tasks as f64 > used_ms / 9.0, "{} tasks in {used_ms} ms", stream.tasks);
    assert!(stream.samples.len() < 50 || stream.complete() > 0.9, "{}", stderr(&output));
    let program = stream.samples.iter().flat_map(|sample| &sample.frames);
    assert!(program.into_iter().any(|(image, _)| image == "program"));
}

#[test]
fn attached_recording_ends_when_process_exits() {
    if !can_record() {
        return;
    }
    let Some((directory, running)) = relay("ends") else { return };
    let file = directory.path("out");
    let mut recording = recorder(&["-q", "-o", &file, "-p", &running.pid()]).spawn().expect("it");
    // A file with a header shows that recording has begun.
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    drop(running);
    assert_eq!(recording.wait().expect("it ends").code(), Some(0));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.end.expect("an end").reason, b"exit");
}

#[test]
fn cpu_time_of_child_that_ends_with_its_parent_counts() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("parent");
    let Some(program) = directory.compile("gcc", PARENT, &["-O1"]) else { return };
    let mut running = Running::start(&mut Command::new(program));
    let file = directory.path("out");
    let mut recording = recorder(&["-q", "-o", &file, "-p", &running.pid()]).spawn().expect("it");
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    running.send(b"x");
    running.wait_for_line("half\n");
    // The recorder can read neither of them again.
    let kill = |signal: &str| {
        let sent = Command::new("kill").args([signal, &recording.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    };
    kill("-STOP");
    drop(running);
    kill("-CONT");
    assert_eq!(recording.wait().expect("it ends").code(), Some(0));
    let stream = Stream::from_file(&file);
    // On a busy machine more than a second has passed: then the time is unknown.
    if stream.end.as_ref().expect("an end").task_ns.is_some() {
        assert!(stream.coverage() < 1.2, "{}", stream.coverage());
    }
}

#[test]
fn interrupt_ends_recording_but_not_attached_process() {
    if !can_record() {
        return;
    }
    let Some((directory, mut running)) = relay("interrupt") else { return };
    let file = directory.path("out");
    let mut recording = recorder(&["-q", "-o", &file, "-p", &running.pid()]).spawn().expect("it");
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    let sent = Command::new("kill").args(["-INT", &recording.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(recording.wait().expect("it ends").code(), Some(0));
    assert_eq!(Stream::from_file(&file).end.expect("an end").reason, b"interrupt");
    assert!(running.0.try_wait().expect("known").is_none(), "the process still runs");
}

#[test]
fn unprivileged_user_attaches_to_own_process() {
    let Some((directory, running)) = relay("own") else { return };
    drop(running);
    let program = directory.path("program");
    let user = |program: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
        command
    };
    if !user("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: cannot become another user");
        return;
    }
    let running = Running::start(&mut user(&program));
    let words = ["-o", "-", "-d", "0.5", "-p", &running.pid()];
    let output = user(env!("CARGO_BIN_EXE_nprof-record")).args(words).output().expect("it runs");
    if stderr(&output).contains("cannot open the event") {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    let stream = Stream::read(&output.stdout);
    assert_eq!(stream.verdict, Verdict::Complete, "{}", stderr(&output));
    assert!(!stream.samples.is_empty(), "{}", stderr(&output));
    // Process 1 belongs to root.
    let words = ["-o", "-", "-d", "0.1", "-p", "1"];
    let output = user(env!("CARGO_BIN_EXE_nprof-record")).args(words).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("belongs to another user"), "{}", stderr(&output));
}

#[test]
fn rejects_missing_process_and_cgroup() {
    // Pids of 64-bit kernels are below 4194304 (PID_MAX_LIMIT).
    let output = record(&["-o", "-", "-p", "4194304"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("process 4194304 does not exist"), "{}", stderr(&output));
    let output = record(&["-o", "-", "--cgroup", "no/such/group"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("cgroup"), "{}", stderr(&output));
}

#[test]
fn records_whole_system() {
    let Some((directory, running)) = relay("system") else { return };
    let file = directory.path("out");
    let output = record(&["-o", &file, "-a", "-d", "0.5"]);
    if !output.status.success() {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    let ours = stream.samples.iter().filter(|sample| sample.comm == "program").count();
    assert!(ours > 50, "{ours} samples of {}", stream.samples.len());
    assert!((0.8..1.2).contains(&stream.coverage()), "{}", stderr(&output));
    record(&["-o", &file, "-a", "-d", "0.5", "-C", "0"]);
    assert_eq!(Stream::from_file(&file).cpus, [0]);
    drop(running);
}

#[test]
fn records_command_in_own_cgroup() {
    let directory = Directory::new("group");
    let file = directory.path("out");
    let script = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; cat /proc/self/cgroup; exit 3";
    let output = record(&["--follow", "cgroup", "-o", &file, "--", "sh", "-c", script]);
    if stderr(&output).contains("cgroup") || stderr(&output).contains("control group") {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let groups = String::from_utf8_lossy(&output.stdout).into_owned();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).expect("a group");
    assert!(group.contains("nprof-"), "{group}");
    let stream = Stream::from_file(&file);
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 9);
    assert!(!fs::exists(format!("/sys/fs/cgroup{group}")).expect("known"), "the cgroup is removed");
}

#[test]
fn two_events_have_separate_samples() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("events");
    let file = directory.path("out");
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let words = ["-e", "task-clock", "-e", "cpu-clock:3700000", "-o", &file, "--", "sh", "-c"];
    let output = record(&[&words[..], &[busy]].concat());
    let stream = Stream::from_file(&file);
    assert_eq!(stream.events, ["task-clock", "cpu-clock"]);
    assert_eq!((stream.event.period, stream.event.frequency), (Some(3_700_000), None));
    let few = stream.samples.iter().filter(|sample| sample.weight == 3_700_000).count();
    let many = stream.samples.len() - few;
    // 997 Hz against 270 Hz (one sample in 3.7 ms).
    assert!(few > 5 && many > few * 2 && many < few * 7, "{few} {many} {}", stderr(&output));
}

#[test]
fn delay_postpones_sampling() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("delay");
    let file = directory.path("out");
    let script = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 1.5; exec true";
    // A high frequency: any sample of the first second would be noticed.
    let words = ["--delay", "1", "-F", "9973", "-o", &file, "--", "sh", "-c", script];
    let output = record(&words);
    let stream = Stream::from_file(&file);
    assert!(stream.executed.iter().any(|name| name == "true"), "{}", stderr(&output));
    let end = stream.end.as_ref().expect("an end");
    // The loop uses its CPU time in the first second, before sampling starts.
    assert!(end.task_ns.expect("known") < 60_000_000, "{}", stderr(&output));
}
