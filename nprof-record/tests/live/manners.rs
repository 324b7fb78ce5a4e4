//! Manners: to the command it is as if nobody recorded it, to the user the recorder is a command
//! like any other, and neither many processes nor many recorders are too much.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Directory, Stream, complaint, may_record, record, recorder};
use nprof_format::Verdict;

const RECORDER: &str = env!("CARGO_BIN_EXE_nprof-record");

/// Prints what a process inherits.
const SHOW: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
extern char **environ;
static void print(FILE *out, const char *file, const char *only) {
    char line[512]; FILE *in = fopen(file, "re");
    while (in && fgets(line, sizeof line, in))
        if (!only || (strlen(line) > 3 && strstr(only, strtok(strdupa(line), ":")))) fputs(line, out);
    if (in) fclose(in);
}
int main(int count, char **words) {
    char name[64], target[512];
    int closed[3]; for (int i = 0; i < 3; i++) closed[i] = fcntl(i, F_GETFD);
    FILE *out = fopen(words[1], "we");
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", i);
        ssize_t length = readlink(name, target, sizeof target - 1);
        if (i == fileno(out) || (length < 0 && i > 2)) continue;
        target[length < 0 ? 0 : length] = 0;
        if (!strncmp(target, "pipe:", 5)) target[4] = 0;
        fprintf(out, "descriptor %d %s %x\n", i, target, fcntl(i, F_GETFL));
    }
    for (int i = 0; i < 3; i++) fprintf(out, "closed %d %d\n", i, closed[i]);
    print(out, "/proc/self/status", "SigPnd ShdPnd SigBlk SigIgn SigCgt NoNewPrivs Seccomp Umask CapEff "
        "CapInh CapAmb Cpus_allowed Groups Threads");
    print(out, "/proc/self/limits", 0);
    print(out, "/proc/self/oom_score_adj", 0);
    for (char **word = environ; *word; word++) if (strncmp(*word, "_=", 2)) fprintf(out, "%s\n", *word);
    fprintf(out, "nice %d scheduled %d slack %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0),
        prctl(PR_GET_TIMERSLACK));
    fprintf(out, "group %d %d session %d\n", getpgrp() == getpgid(getppid()), getpgrp() == getpid(),
        getsid(0) == getsid(getppid()));
    return 0;
}
"#;

#[test]
fn the_command_finds_everything_as_it_would_without_us() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("show");
    let Some(program) = directory.compile("gcc", SHOW, &["-O1"]) else { return };
    let stream = directory.path("stream");
    for before in [
        ":",
        "trap '' PIPE",
        "trap '' CHLD",
        "trap '' INT QUIT HUP TERM",
        "exec <&-",
        "exec 2>&-",
        "exec 0<&- 1>&- 2>&-",
        "exec 7</dev/null",
        "ulimit -Sn 100; ulimit -c 0; umask 077",
        "renice -n 3 $$ >/dev/null",
    ] {
        let shown = |recorder: &str| {
            let file = directory.path("shown");
            // Both times there is a process between the shell and the program.
            let script = format!("{before}; {recorder} \"$0\" {file}; exit 0");
            let run = Command::new("sh").args(["-c", &script, &program]).output();
            assert!(run.expect("it runs").status.success());
            fs::read_to_string(file).expect("it was shown")
        };
        let (plain, recorded) = (shown(""), shown(&format!("{RECORDER} -q -o {stream} --")));
        assert_eq!(plain, recorded, "{before}");
        assert!(plain.lines().count() > 40, "{plain}");
    }
}

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    seen: String,
}

impl Terminal {
    /// Starts it; `None` where there is no script(1). It has the signals' usual dispositions,
    /// which the tests may have not; and what it prints at an interrupt is not thrown away.
    fn start(command: &str) -> Option<Self> {
        let usual = "env --default-signal=INT,QUIT,HUP,TSTP";
        let command = format!("stty noflsh; exec {usual} {command}");
        let words = ["-qec", &command, "/dev/null"];
        let mut script = Command::new("script");
        let script = script.args(words).env("SHELL", "/bin/sh");
        match script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(child) => Some(Self { child, seen: String::new() }),
            Err(_) => {
                eprintln!("SKIPPED: there is no script");
                None
            }
        }
    }

    /// Waits until it has printed this, since the last time.
    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 256];
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let read = self.child.stdout.as_mut().expect("piped").read(&mut bytes);
            let read = read.expect("readable");
            assert!(read > 0, "no {text} in {}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().expect("piped").write_all(keys.as_bytes()).expect("written");
    }

    /// What else it printed, and its status.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = std::mem::take(&mut self.seen);
        let output = self.child.stdout.as_mut().expect("piped");
        output.read_to_string(&mut rest).expect("UTF-8");
        (rest, self.child.wait().expect("it ends").code())
    }
}

/// Says when it is interrupted, and goes on until there is a file.
const HEARS: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static void hear(int number) { if (write(1, "heard\n", 6) < 0) _exit(1); }
int main(int count, char **names) {
    signal(SIGINT, hear); signal(SIGHUP, SIG_IGN);
    if (write(1, "ready\n", 6) < 0) return 1;
    while (access(names[1], F_OK)) for (volatile int i = 0; i < 100000; i++) {}
    close(creat(names[2], 0600));
    return 6;
}
"#;

const INTERRUPT: &str = "\x03";
const QUIT: &str = "\x1c";
const SUSPEND: &str = "\x1a";

#[test]
fn the_keys_of_a_terminal_do_what_they_do_without_us() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("keys");
    let file = directory.path("out");
    let on_terminal =
        |script: &str| Terminal::start(&format!("{RECORDER} -q -o {file} -- sh -c '{script}'"));
    let end = || {
        let stream = Stream::of_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        let end = stream.end.expect("an end");
        (String::from_utf8_lossy(&end.reason).into_owned(), end.status)
    };
    for (key, status) in [(INTERRUPT, 130), (QUIT, 131)] {
        let Some(mut terminal) = on_terminal("echo ready; exec sleep 600") else { return };
        terminal.wait_for("ready");
        terminal.press(key);
        assert_eq!(terminal.end().1, Some(status));
        assert_eq!(end(), ("exit".to_owned(), Some(status as u64)));
    }

    // Who lives on is told once, and the recording goes on.
    let Some(program) = directory.compile("gcc", HEARS, &["-O1"]) else { return };
    let (go, proof) = (directory.path("go"), directory.path("proof"));
    let hears = format!("exec {program} {go} {proof}");
    let mut terminal = on_terminal(&hears).expect("as before");
    terminal.wait_for("ready");
    terminal.press(INTERRUPT);
    terminal.wait_for("heard");
    fs::write(&go, "").expect("written");
    let (rest, status) = terminal.end();
    assert_eq!((rest.contains("heard"), status), (false, Some(6)), "{rest}");
    assert_eq!(end(), ("exit".to_owned(), Some(6)));

    // A second one is too much for us, but not for it. (Two that come at once count as one: the
    // first is taken before the stream grows twice.)
    fs::remove_file(&go).expect("it was there");
    fs::remove_file(&proof).expect("it was there");
    let mut terminal = on_terminal(&hears).expect("as before");
    terminal.wait_for("ready");
    terminal.press(INTERRUPT);
    terminal.wait_for("heard");
    let length = || fs::metadata(&file).expect("it is there").len();
    for _ in 0..2 {
        let before = length();
        while length() == before {
            std::thread::yield_now();
        }
    }
    terminal.press(INTERRUPT);
    assert_eq!(terminal.end().1, Some(130));
    assert_eq!(end(), ("interrupt".to_owned(), None));
    fs::write(&go, "").expect("written");
    while !fs::exists(&proof).expect("known") {
        std::thread::yield_now();
    }
}

#[test]
fn a_job_can_be_stopped_and_goes_on() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("job");
    let (file, script) = (directory.path("out"), directory.path("script"));
    let job = format!(
        "set -m\n{RECORDER} -q -o {file} -- sh -c 'echo ready; read a; echo got $a; exit 6'\n\
         echo stopped $?\nfg >/dev/null\necho back $?\n"
    );
    fs::write(&script, job).expect("written");
    let Some(mut terminal) = Terminal::start(&format!("bash {script}")) else { return };
    terminal.wait_for("ready");
    terminal.press(SUSPEND);
    terminal.wait_for("stopped 148");
    terminal.press("x\n");
    terminal.wait_for("got x");
    terminal.wait_for("back 6");
    assert_eq!(terminal.end().1, Some(0));
    assert_eq!(Stream::of_file(&file).verdict, Verdict::Complete);
}

/// Runs a command to its end under the recorder.
fn recorded(directory: &Directory, how: &[&str], command: &[&str]) -> (Output, Stream) {
    let file = directory.path("out");
    let output = record(&[&["-o", &file][..], how, &["--"], command].concat());
    let stream = Stream::of_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete, "{}", complaint(&output));
    (output, stream)
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Starts the recorder on a shell's script, and waits until that says that it is ready.
fn started(file: &str, before: &str, script: &str) -> (Child, String) {
    let script = format!("echo ready $$; {script}");
    let how = format!("{before}; exec \"$0\" -q -o {file} -- sh -c \"$1\"");
    let mut child = Command::new("sh")
        .args(["-c", &how, RECORDER, &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    let mut byte = [0];
    while !line.ends_with('\n') {
        child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("it says so");
        line.push(char::from(byte[0]));
    }
    let pid = line.trim().strip_prefix("ready ").expect("it is").to_owned();
    (child, pid)
}

#[test]
fn a_command_may_be_stopped_or_killed() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("killed");
    let file = directory.path("out");
    let (mut child, pid) = started(&file, ":", "read a; exit 4");
    let pid = pid.parse().expect("a pid");
    send("-STOP", pid);
    while !fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives").contains(") T") {
        std::thread::yield_now();
    }
    assert!(child.try_wait().expect("known").is_none(), "a stop is no end");
    send("-CONT", pid);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    let (mut child, pid) = started(&file, ":", "read a; exit 4");
    send("-KILL", pid.parse().expect("a pid"));
    assert_eq!(child.wait().expect("it ends").code(), Some(137));
    let stream = Stream::of_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.exits, ["signal 9"]);
}

#[test]
fn what_is_started_deaf_stays_deaf() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("deaf");
    let file = directory.path("out");
    let end = || {
        let stream = Stream::of_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        stream.end.expect("an end").reason
    };
    // As by nohup: what ends the others is nothing to it and its command.
    let (mut child, _) = started(&file, "trap '' HUP", "read a; exit 4");
    for _ in 0..3 {
        send("-HUP", child.id());
    }
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("written");
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    assert_eq!(end(), b"exit");
    // As by `&` in a script: an interrupt that is sent is meant.
    let mut running = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
    let script = format!("trap '' INT; exec {RECORDER} -q -o {file} -p {}", running.id());
    fs::remove_file(&file).expect("it was there");
    let mut attached = Command::new("sh").args(["-c", &script]).spawn().expect("it runs");
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    send("-INT", attached.id());
    assert_eq!(attached.wait().expect("it ends").code(), Some(0));
    assert_eq!(end(), b"interrupt");
    drop(running.stdin.take());
    running.wait().expect("it ends");
}

#[test]
fn a_killed_recorder_takes_nobody_with_it() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("left");
    let (file, proof) = (directory.path("out"), directory.path("proof"));
    let script = format!("while kill -0 $PPID 2>/dev/null; do :; done; echo done > {proof}");
    let (mut child, _) = started(&file, ":", &script);
    // Flushed twice a second: twice seen, all but the last second is there.
    let mut sizes = vec![0];
    while sizes.len() < 4 {
        let size = fs::metadata(&file).map_or(0, |metadata| metadata.len());
        if *sizes.last().expect("not empty") != size {
            sizes.push(size);
        }
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("it ends");
    while !fs::exists(&proof).expect("known") {
        std::thread::yield_now();
    }
    let stream = Stream::of_file(&file);
    assert_eq!(stream.verdict, Verdict::Truncated);
    assert!(stream.samples.len() > 50, "{}", stream.samples.len());
}

#[test]
fn a_full_disk_keeps_what_fitted_and_the_command() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("full");
    let (small, copy) = (directory.path("small"), directory.path("copy"));
    fs::create_dir(&small).expect("made");
    let script = format!(
        "mount -t tmpfs -o size=16k none {small} || exit 77; \
         {RECORDER} -F 9973 --unwind none -o {small}/out -- \
         sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 7'; \
         status=$?; cp {small}/out {copy}; exit $status"
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let Ok(output) = output else { return eprintln!("SKIPPED: there is no unshare") };
    if output.status.code() != Some(7) && !fs::exists(&copy).expect("known") {
        eprintln!("SKIPPED: no small file system: {}", complaint(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{}", complaint(&output));
    assert_eq!(complaint(&output).matches("No space left").count(), 1, "{}", complaint(&output));
    let stream = Stream::of_file(&copy);
    assert_eq!(stream.verdict, Verdict::Truncated, "what is there is whole");
    assert!(stream.samples.len() > 100, "{}", stream.samples.len());
}

/// Whether everything can be sampled here.
fn is_privileged(output: &Output) -> bool {
    !complaint(output).contains("not privileged")
}

#[test]
fn nothing_of_many_short_processes_is_missed() {
    if !may_record() {
        return;
    }
    let directory = Directory::new("storm");
    let one_by_one = ["sh", "-c", "i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i+1)); done"];
    let (output, stream) = recorded(&directory, &[], &one_by_one);
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 600);
    if is_privileged(&output) {
        assert!(stream.coverage() >= 0.93, "{}", complaint(&output));
    }
    let few = stream.end.and_then(|end| end.recorder_bytes).expect("known");
    let at_once = ["sh", "-c", "seq 3000 | xargs -P8 -n1 /bin/true"];
    let (output, stream) = recorded(&directory, &[], &at_once);
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 3000);
    assert_eq!((stream.tasks, stream.exits.len()), (3003, 3003));
    assert!(!complaint(&output).contains("were lost"), "{}", complaint(&output));
    if is_privileged(&output) {
        assert!(stream.coverage() >= 0.93, "{}", complaint(&output));
    }
    // What has ended is forgotten.
    let many = stream.end.and_then(|end| end.recorder_bytes).expect("known");
    assert!(many < few + (2 << 20), "{few} bytes for 600 processes, {many} for 3000");
}

#[test]
fn every_process_of_a_build_is_named() {
    if !may_record() || Command::new("make").arg("-v").output().is_err() {
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
        eprintln!("SKIPPED: {}", complaint(&output));
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
        assert!(stream.coverage() >= 0.95, "{}", complaint(&output));
    }
}

#[test]
fn a_hundred_recorders_at_once_do_not_disturb_each_other() {
    if !may_record() {
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
                assert_eq!(Stream::of_file(&file).verdict, Verdict::Complete);
                complete += 1;
            }
            Some(125) => {
                let complaint = complaint(&output);
                assert!(complaint.contains("ulimit"), "it names what is scarce: {complaint}");
            }
            other => panic!("{other:?}: {}", complaint(&output)),
        }
    }
    assert!(complete > 10, "{complete}");
}

#[test]
fn who_cannot_be_attached_to_is_named() {
    if !may_record() {
        return;
    }
    // Nobody asks for its status yet.
    let mut ended = Command::new("true").spawn().expect("it runs");
    let pid = ended.id();
    while !fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there").contains(") Z") {
        std::thread::yield_now();
    }
    let output = record(&["-o", "-", "-p", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(125));
    let complaint_of = complaint(&output);
    assert!(complaint_of.contains(&format!("process {pid} has ended")), "{complaint_of}");
    ended.wait().expect("it ended");
    // One of the kernel's own threads has no code of its own to look for.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        let output = record(&["-o", "-", "-d", "0.05", "-p", "2"]);
        assert_eq!(
            Stream::read(&output.stdout).verdict,
            Verdict::Complete,
            "{}",
            complaint(&output)
        );
    }
}

/// A program with so many threads, that says `ready` and ends with its input.
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
fn thousands_of_threads_are_attached_to_without_loss() {
    if !may_record() {
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
        assert_eq!(end.lost, 0, "{}", complaint(&output));
        assert!(end.recorder_bytes.expect("known") < 24 << 20, "{}", complaint(&output));
    }

    // Who may not sample all has to open an event of each thread.
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
fn few_descriptors_are_named_with_the_limit() {
    let script = format!("ulimit -n 5; exec {RECORDER} -q -o /dev/null -- true");
    let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(complaint(&output).contains("ulimit -n"), "{}", complaint(&output));
    assert_eq!(complaint(&output).lines().count(), 1, "{}", complaint(&output));
}

#[test]
fn every_single_system_call_is_a_sample() {
    let directory = Directory::new("writes");
    let script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; /bin/echo x; done | cat | cat >/dev/null";
    // The shell's lines are written one by one whoever looks on.
    let script = script.replace(" | cat | cat", "");
    let counted = directory.path("counted");
    let words = ["-f", "-c", "-e", "trace=write", "-o", &counted, "sh", "-c", &script];
    if Command::new("strace").args(words).output().is_err() {
        return eprintln!("SKIPPED: there is no strace");
    }
    let event = ["-e", "syscalls:sys_enter_write:1"];
    let output = record(&[&event[..], &["-o", "/dev/null", "true"]].concat());
    if !output.status.success() {
        return eprintln!("SKIPPED: {}", complaint(&output));
    }
    let counted = fs::read_to_string(counted).expect("strace says it");
    let line = counted.lines().find(|line| line.ends_with(" write")).expect("calls");
    let calls: usize = line.split_whitespace().nth(3).expect("a number").parse().expect("one");
    let (_, stream) = recorded(&directory, &event, &["sh", "-c", &script]);
    assert_eq!((stream.samples.len(), calls), (calls, 18));
    assert!(stream.samples.iter().all(|sample| sample.weight == 1 && sample.frames.len() > 4));
}
