//! Calls of running processes, of control groups, of the system, after a delay, and on CPUs that are
//! not known at the start.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::calls::{Calls, compiled, list, record_calls};
use crate::support::{ControlGroup, Directory, recorder};
use crate::symbols::Symbols;

/// Calls `f` 1000 times for each byte that it reads, 100 times in another thread and 10 times in a child,
/// and then prints "ready". The first byte comes from itself.
const DRIVEN: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
__asm__(".text\n.type f, @function\nf: push %rbx\n pop %rbx\n ret\n.size f, .-f\n");
void f(void);
static void *work(void *none) {
    for (int i = 0; i < 100; i++) f();
    return none;
}
int main(void) {
    char byte;
    do {
        pthread_t thread;
        for (int i = 0; i < 1000; i++) f();
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, 0);
        if (fork() == 0) {
            for (int i = 0; i < 10; i++) f();
            _exit(0);
        }
        wait(0);
        puts("ready");
        fflush(stdout);
    } while (read(0, &byte, 1) == 1);
}
"#;

/// The calls for a byte.
const CALLS_OF_A_BYTE: u64 = 1110;

/// Calls f0 to f9 in turn, each 200 times in a tenth of a second.
const IN_TURN: &str = r#"
#include <stdio.h>
#include <unistd.h>
#define F(n) __asm__(".text\n.type f" #n ", @function\nf" #n ": push %rbx\n pop %rbx\n ret\n.size f" #n ", .-f" #n "\n"); void f##n(void);
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9)
static void (*const all[])(void) = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9};
int main(void) {
    for (int f = 0; f < 10; f++) {
        for (int i = 0; i < 20; i++) {
            for (int k = 0; k < 10; k++) all[f]();
            usleep(5000);
        }
    }
}
"#;

/// The program, which waits for bytes.
struct Driven {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Driven {
    /// Starts the program, and waits until it has made its first calls.
    fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("it runs");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut driven = Self { child, output };
        driven.wait();
        driven
    }

    fn wait(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        assert_eq!(line, "ready\n");
    }

    /// Makes the program call its function for a byte, and waits until it has.
    fn call(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"x").expect("it reads");
        self.wait();
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends");
    }
}

/// Starts a recorder, and waits until it counts: it writes the head after that. None if calls cannot be
/// counted here, which is printed.
fn started(words: &[&str], stream: &str) -> Option<Child> {
    let mut command = recorder(words);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::metadata(stream).map_or(0, |file| file.len()) == 0 {
        if child.try_wait().expect("a child").is_some() {
            let mut messages = String::new();
            child.stderr.as_mut().expect("piped").read_to_string(&mut messages).expect("UTF-8");
            assert!(messages.contains("calls cannot be counted"), "{messages}");
            eprintln!("SKIPPED: {messages}");
            return None;
        }
        assert!(Instant::now() < deadline, "no head in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(child)
}

/// Interrupts a recorder, and waits for its end.
fn interrupt(child: Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{messages}");
}

fn driven(name: &str) -> Option<(Directory, String, Symbols, String)> {
    let directory = Directory::new(name);
    let (program, symbols) = compiled(&directory, "gcc", DRIVEN, &["-O1"])?;
    let list = list(&directory, &program, &symbols, &["f"]);
    Some((directory, program, symbols, list))
}

#[test]
fn calls_of_a_running_process_are_counted_from_the_head_on() {
    let Some((directory, program, symbols, list)) = driven("calls-attached") else { return };
    let mut running = Driven::start(&mut Command::new(&program));
    let mut other = Driven::start(&mut Command::new(&program));
    let (stream, pid) = (directory.path("stream"), running.child.id().to_string());
    let started = started(&["--calls", &list, "-o", &stream, "-p", &pid], &stream);
    let Some(recorder) = started else { return };
    for _ in 0..3 {
        running.call();
        other.call();
    }
    running.end();
    let output = recorder.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    other.end();
    assert_eq!(Calls::from_file(&stream, &symbols).of("f"), 3 * CALLS_OF_A_BYTE);
}

#[test]
fn calls_of_all_processes_are_counted_with_the_system() {
    let Some((directory, program, symbols, list)) = driven("calls-system") else { return };
    let mut running = Driven::start(&mut Command::new(&program));
    let stream = directory.path("stream");
    let started = started(&["--calls", &list, "-o", &stream, "-a"], &stream);
    let Some(recorder) = started else { return };
    running.call();
    Driven::start(&mut Command::new(&program)).end();
    running.end();
    interrupt(recorder);
    assert_eq!(Calls::from_file(&stream, &symbols).of("f"), 2 * CALLS_OF_A_BYTE);
}

#[test]
fn calls_of_a_control_group_are_those_of_its_processes() {
    let Some((directory, program, symbols, list)) = driven("calls-group") else { return };
    let Some(group) = ControlGroup::new("calls") else { return };
    let script = format!("echo $$ > {}/cgroup.procs && exec {program}", group.0);
    let mut running = Driven::start(Command::new("sh").args(["-c", &script]));
    let mut other = Driven::start(&mut Command::new(&program));
    let stream = directory.path("stream");
    let started = started(&["--calls", &list, "-o", &stream, "--cgroup", &group.0], &stream);
    if started.is_some() {
        running.call();
        other.call();
    }
    running.end();
    other.end();
    let was_started = started.is_some();
    started.into_iter().for_each(interrupt);
    if was_started {
        assert_eq!(Calls::from_file(&stream, &symbols).of("f"), CALLS_OF_A_BYTE);
    }
}

#[test]
fn calls_before_a_delay_are_not_counted_and_all_later_ones_are() {
    let directory = Directory::new("calls-delay");
    let Some((program, symbols)) = compiled(&directory, "gcc", IN_TURN, &["-O1"]) else { return };
    let names: Vec<String> = (0..10).map(|number| format!("f{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let list = list(&directory, &program, &symbols, &names);
    let stream = directory.path("stream");
    // On a busy machine, the command may not begin before the delay is over, or end during it: then only
    // the order of the counts is tested.
    for _ in 0..3 {
        let words = ["--calls", &list, "--delay", "400ms", "-o", &stream, "--", &program];
        if record_calls(&words).is_none() {
            return;
        }
        let calls = Calls::from_file(&stream, &symbols);
        let counts: Vec<u64> = names.iter().map(|name| calls.of(name)).collect();
        assert!(counts.is_sorted(), "{counts:?}");
        assert!(
            counts.iter().filter(|&&calls| calls > 0 && calls < 200).count() <= 1,
            "{counts:?}"
        );
        assert!(counts.iter().all(|&calls| calls <= 200), "{counts:?}");
        if counts[0] == 0 && counts[9] == 200 {
            return;
        }
    }
    eprintln!("SKIPPED: the delay was over before the command began, in three recordings");
}

#[test]
fn calls_on_a_cpu_that_came_online_later_are_counted() {
    let Some((directory, program, symbols, list)) = driven("calls-cpus") else { return };
    let last = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let last: u32 =
        last.trim().rsplit(['-', ',']).next().and_then(|it| it.parse().ok()).unwrap_or(0);
    if last == 0 {
        return eprintln!("SKIPPED: there is one CPU");
    }
    // The recorder sees CPU 0 alone; the program runs on the last one.
    let (stream, online) = (directory.path("stream"), directory.path("online"));
    fs::write(&online, "0\n").expect("written");
    let recorder = env!("CARGO_BIN_EXE_nprof-record");
    let script = format!(
        "mount --bind {online} /sys/devices/system/cpu/online && \
         exec {recorder} --calls {list} -o {stream} -- taskset -c {last} {program}"
    );
    let mut command = Command::new("unshare");
    let Ok(output) = command.args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).output() else {
        return eprintln!("SKIPPED: no unshare");
    };
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return eprintln!("SKIPPED: {messages}");
    }
    assert!(messages.contains(&format!("{CALLS_OF_A_BYTE} calls of 1 functions")), "{messages}");
    assert_eq!(Calls::from_file(&stream, &symbols).of("f"), CALLS_OF_A_BYTE, "{messages}");
}
