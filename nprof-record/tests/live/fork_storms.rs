//! Many processes, threads and recorders at once: all of them are recorded, limits are named.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use crate::support::{Directory, Stream, can_record, record, recorder, stderr};
use crate::transparency::{RECORDER, recorded};
use nprof_stream::Verdict;

/// True if the recorder could sample all CPUs.
fn is_privileged(output: &Output) -> bool {
    !stderr(output).contains("not privileged")
}

#[test]
fn records_all_short_processes() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("storm");
    let one_by_one = ["sh", "-c", "i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i+1)); done"];
    let (output, stream) = recorded(&directory, &[], &one_by_one);
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 600);
    if is_privileged(&output) {
        assert!(stream.coverage() >= 0.93, "{}", stderr(&output));
    }
    let at_once = |processes: u32| {
        let script = format!("seq {processes} | xargs -P8 -n1 /bin/true");
        recorded(&directory, &[], &["sh", "-c", &script])
    };
    // The peak memory of 500 processes, to compare with that of 3,000 that run as many at once.
    let (_, stream) = at_once(500);
    let few = stream.end.and_then(|end| end.recorder_bytes).expect("known");
    let (output, stream) = at_once(3000);
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 3000);
    assert_eq!((stream.tasks, stream.exits.len()), (3003, 3003));
    assert!(!stderr(&output).contains("were lost"), "{}", stderr(&output));
    if is_privileged(&output) {
        assert!(stream.coverage() >= 0.93, "{}", stderr(&output));
    }
    // State of exited processes is dropped: memory does not grow with their number. On a busy machine
    // a longer backlog takes 1 to 3 MiB.
    let many = stream.end.and_then(|end| end.recorder_bytes).expect("known");
    assert!(many < few + (5 << 20), "{few} bytes for 500 processes, {many} for 3000");
}

#[test]
fn names_every_process_of_a_build() {
    if !can_record() || Command::new("make").arg("-v").output().is_err() {
        return;
    }
    let directory = Directory::new("build");
    let (mut objects, mut calls) = (String::new(), String::new());
    for unit in 0..16 {
        let source =
            format!("#include <stdio.h>\nint f{unit}(int x) {{ return printf(\"%d\", x); }}\n");
        fs::write(directory.path(&format!("f{unit}.c")), source).expect("written");
        let _ = write!(objects, " f{unit}.o");
        let _ = writeln!(calls, "int f{unit}(int);");
    }
    fs::write(directory.path("main.c"), format!("{calls}int main(void) {{ return f0(1); }}\n"))
        .expect("written");
    let rules =
        format!("all: main.o{objects}\n\tgcc -o all main.o{objects}\n%.o: %.c\n\tgcc -O1 -c $<\n");
    fs::write(directory.path("Makefile"), rules).expect("written");
    let make = ["make", "-s", "-j2", "-C", &directory.path(".")];
    let (output, stream) = recorded(&directory, &[], &make);
    if !output.status.success() {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    let mut names = BTreeMap::<&str, usize>::new();
    for name in &stream.executed {
        *names.entry(name).or_default() += 1;
    }
    let right = [("as", 17), ("cc1", 17), ("collect2", 1), ("gcc", 18), ("ld", 1), ("make", 1)];
    assert_eq!(names, BTreeMap::from(right));
    assert_eq!(stream.exits.len(), stream.tasks);
    if is_privileged(&output) {
        assert!(stream.coverage() >= 0.95, "{}", stderr(&output));
    }
}

#[test]
fn hundred_recorders_run_in_parallel() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("hundred");
    let start = |number: u32| {
        let file = directory.path(&number.to_string());
        let words = ["-q", "-F", "99", "-o", &file, "--", "sh", "-c", "exit 3"];
        (recorder(&words).stderr(Stdio::piped()).spawn().expect("it runs"), file)
    };
    let started: Vec<_> = (0..100).map(start).collect();
    let mut complete = 0;
    for (child, file) in started {
        let output = child.wait_with_output().expect("it ends");
        match output.status.code() {
            Some(3) => {
                assert_eq!(Stream::from_file(&file).verdict, Verdict::Complete);
                complete += 1;
            }
            Some(125) => {
                let stderr = stderr(&output);
                // Locked memory or descriptors may not suffice for 100 recorders.
                assert!(stderr.contains("ulimit"), "names the exceeded limit: {stderr}");
            }
            other => panic!("{other:?}: {}", stderr(&output)),
        }
    }
    assert!(complete > 10, "{complete}");
}

#[test]
fn rejects_zombie_and_accepts_kernel_thread() {
    if !can_record() {
        return;
    }
    // A zombie until `wait` reads its status.
    let mut ended = Command::new("true").spawn().expect("it runs");
    let pid = ended.id();
    while !fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there").contains(") Z") {
        std::thread::yield_now();
    }
    let output = record(&["-o", "-", "-p", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(125));
    let message = stderr(&output);
    assert!(message.contains(&format!("process {pid} is a zombie")), "{message}");
    ended.wait().expect("it ended");
    // Kernel threads have no user code and no /proc/PID/maps.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        let output = record(&["-o", "-", "-d", "0.05", "-p", "2"]);
        assert_eq!(Stream::read(&output.stdout).verdict, Verdict::Complete, "{}", stderr(&output));
    }
}

/// Starts the number of threads given by its argument, prints "ready", and exits at end of input.
const THREADS: &str = "
#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>
void *thread(void *p) { pause(); return p; }
int main(int count, char **words) {
    pthread_t made; pthread_attr_t small; char end;
    pthread_attr_init(&small); pthread_attr_setstacksize(&small, 16384);
    for (int i = 1; i < atoi(words[1]); i++) if (pthread_create(&made, &small, thread, 0)) return 1;
    puts(\"ready\"); fflush(stdout); return read(0, &end, 1) < 0;
}";

#[test]
fn attaches_to_thousands_of_threads_without_loss() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("thousands");
    let Some(program) = directory.compile("gcc", THREADS, &["-O1", "-pthread"]) else { return };
    let mut threads = Command::new(&program)
        .arg("2000")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut ready = [0; 6];
    threads.stdout.as_mut().expect("piped").read_exact(&mut ready).expect("all run");
    let pid = threads.id().to_string();
    let output = record(&["-o", "-", "-d", "0.2", "-p", &pid]);
    if is_privileged(&output) {
        let stream = Stream::read(&output.stdout);
        assert_eq!(stream.tasks, 2000);
        let end = stream.end.expect("an end");
        assert_eq!(end.lost, 0, "{}", stderr(&output));
        assert!(end.recorder_bytes.expect("known") < 24 << 20, "{}", stderr(&output));
    }

    // Without privilege an event is opened for each thread: 16 descriptors do not suffice.
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let script = format!("ulimit -n 16; exec {RECORDER} -q -o - -d 0.05 -p {pid}");
    let limited = Command::new("setpriv").args(nobody).args(["sh", "-c", &script]).output();
    if let Ok(output) = limited.as_ref().map_err(|_| eprintln!("SKIPPED: there is no setpriv")) {
        assert_eq!(output.status.code(), Some(125));
        assert!(output.stdout.is_empty());
    }
    drop(threads.stdin.take());
    threads.wait().expect("it ends");
}

#[test]
fn too_few_descriptors_reports_ulimit() {
    let script = format!("ulimit -n 5; exec {RECORDER} -q -o /dev/null -- true");
    let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("ulimit -n"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

/// Without a descriptor for the files of code their unwind tables are missing.
#[test]
fn files_that_lack_descriptors_are_reported() {
    let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let mut reported = 0;
    // The events take as many as there are CPUs, or several times that.
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for limit in 8..64 + 8 * cpus {
        let script = format!("ulimit -n {limit}; exec {RECORDER} -o /dev/null -- sh -c '{work}'");
        let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
        let text = stderr(&output);
        assert!(
            text.contains("ulimit -n") || !text.contains("incomplete (no-unwind-info"),
            "{text}"
        );
        reported += i32::from(text.contains("of code could not be opened"));
        if output.status.success() && !text.contains("ulimit -n") {
            break;
        }
    }
    assert!(reported > 0);
}

#[test]
fn samples_every_system_call() {
    let directory = Directory::new("writes");
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; /bin/echo x; done | cat | cat >/dev/null";
    // Without the pipes: the shell writes each line by one call, traced or not.
    let script = script.replace(" | cat | cat", "");
    let counted = directory.path("counted");
    let words = ["-f", "-c", "-e", "trace=write", "-o", &counted, "sh", "-c", &script];
    if Command::new("strace").args(words).output().is_err() {
        return eprintln!("SKIPPED: there is no strace");
    }
    let event = ["-e", "syscalls:sys_enter_write:1"];
    let output = record(&[&event[..], &["-o", "/dev/null", "true"]].concat());
    if !output.status.success() {
        return eprintln!("SKIPPED: {}", stderr(&output));
    }
    let counted = fs::read_to_string(counted).expect("strace says it");
    // strace -c: % time, seconds, usecs/call, calls, syscall.
    let line = counted.lines().find(|line| line.ends_with(" write")).expect("calls");
    let calls: usize = line.split_whitespace().nth(3).expect("a number").parse().expect("one");
    let (_, stream) = recorded(&directory, &event, &["sh", "-c", &script]);
    assert_eq!((stream.samples.len(), calls), (calls, 18));
    assert!(stream.samples.iter().all(|sample| sample.weight == 1 && sample.frames.len() > 4));
}
