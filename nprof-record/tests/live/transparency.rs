//! Signals, job control, terminals and inherited state are the same with and without the recorder.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Directory, Stream, can_record, record, stderr};
use nprof_stream::Verdict;

pub(crate) const RECORDER: &str = env!("CARGO_BIN_EXE_nprof-record");

/// Prints the state that a process inherits: descriptors, signals, limits, environment, groups.
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
fn command_environment_is_unchanged() {
    if !can_record() {
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
            // `exit 0` keeps the shell from replacing itself: both programs are its children.
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

/// A command on a pseudoterminal of its own.
struct Terminal {
    child: Child,
    seen: String,
}

impl Terminal {
    /// Starts the command. None if there is no script(1).
    fn start(command: &str) -> Option<Self> {
        // The test runner may ignore signals, and that is inherited. `noflsh`: an interrupt must
        // not discard output.
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

    /// Waits until the command prints `text` after the last match.
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

    /// Waits for the end; returns the remaining output and the exit status.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = std::mem::take(&mut self.seen);
        let output = self.child.stdout.as_mut().expect("piped");
        output.read_to_string(&mut rest).expect("UTF-8");
        (rest, self.child.wait().expect("it ends").code())
    }
}

/// Prints "heard" at each interrupt, and runs until a file exists. The terminal may be gone before it
/// runs its handler of the second one: then it cannot print, and goes on.
const HEARS: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static void hear(int number) { if (write(1, "heard\n", 6) < 0) return; }
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
fn terminal_keys_reach_command() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("keys");
    let file = directory.path("out");
    let on_terminal =
        |script: &str| Terminal::start(&format!("{RECORDER} -q -o {file} -- sh -c '{script}'"));
    let end = || {
        let stream = Stream::from_file(&file);
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

    // A command that handles the interrupt receives it once, and is recorded to its end.
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

    // A second interrupt ends the recorder, not the command. (Two at once count as one: two writes
    // to the stream show that the first was handled.)
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
fn job_control_stops_and_continues_recording() {
    if !can_record() {
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
    // SIGTSTP from the terminal stops recorder and command: 148 is 128 + SIGTSTP (20).
    terminal.press(SUSPEND);
    terminal.wait_for("stopped 148");
    terminal.press("x\n");
    terminal.wait_for("got x");
    terminal.wait_for("back 6");
    assert_eq!(terminal.end().1, Some(0));
    assert_eq!(Stream::from_file(&file).verdict, Verdict::Complete);
}

/// Records a command to its end.
pub(crate) fn recorded(directory: &Directory, how: &[&str], command: &[&str]) -> (Output, Stream) {
    let file = directory.path("out");
    let output = record(&[&["-o", &file][..], how, &["--"], command].concat());
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete, "{}", stderr(&output));
    (output, stream)
}

pub(crate) fn send(signal: &str, pid: u32) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Records a shell script, and waits until it prints "ready". Returns the recorder and the pid of
/// the script.
pub(crate) fn started(file: &str, before: &str, script: &str) -> (Child, String) {
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
        child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("readable");
        line.push(char::from(byte[0]));
    }
    let pid = line.trim().strip_prefix("ready ").expect("it is").to_owned();
    (child, pid)
}

#[test]
fn records_stopped_and_killed_command() {
    if !can_record() {
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
    assert!(child.try_wait().expect("known").is_none(), "stopping does not end the recording");
    send("-CONT", pid);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    let (mut child, pid) = started(&file, ":", "read a; exit 4");
    send("-KILL", pid.parse().expect("a pid"));
    assert_eq!(child.wait().expect("it ends").code(), Some(137));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.exits, ["signal 9"]);
}

#[test]
fn signals_of_programs_are_passed_on_and_do_not_end_the_recording() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("passed-on");
    let file = directory.path("out");
    // The shell runs a trap once its child has exited.
    let script = "n=0; for name in USR1 USR2 ALRM; do trap \"echo $name; n=\\$((n+1))\" $name; done; \
                  echo traps; while [ $n -lt 3 ]; do sleep 0.01; done; exit 5";
    let (mut child, _) = started(&file, ":", script);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("readable");
    assert_eq!(next(), "traps");
    for name in ["USR1", "USR2", "ALRM"] {
        send(&format!("-{name}"), child.id());
        assert_eq!(next(), name);
    }
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
}

#[test]
fn ignored_signals_stay_ignored_except_sent_interrupt() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("deaf");
    let file = directory.path("out");
    let end = || {
        let stream = Stream::from_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        stream.end.expect("an end").reason
    };
    // As nohup does: SIGHUP is ignored at start, so it ends neither the recorder nor the command.
    let (mut child, _) = started(&file, "trap '' HUP", "read a; exit 4");
    for _ in 0..3 {
        send("-HUP", child.id());
    }
    child.stdin.as_mut().expect("piped").write_all(b"\n").expect("written");
    assert_eq!(child.wait().expect("it ends").code(), Some(4));
    assert_eq!(end(), b"exit");
    // Shells start background jobs of scripts with SIGINT ignored; one that is sent must end them.
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
fn command_survives_killed_recorder() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("left");
    let (file, proof) = (directory.path("out"), directory.path("proof"));
    let script = format!("while kill -0 $PPID 2>/dev/null; do :; done; echo done > {proof}");
    let (mut child, _) = started(&file, ":", &script);
    // The stream is flushed twice a second: after three writes it has samples of at least a second.
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
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Truncated);
    assert!(stream.samples.len() > 50, "{}", stream.samples.len());
}

#[test]
fn full_disk_truncates_stream_but_command_runs_on() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("full");
    let (small, copy) = (directory.path("small"), directory.path("copy"));
    fs::create_dir(&small).expect("created");
    let script = format!(
        "mount -t tmpfs -o size=16k none {small} || exit 77; \
         {RECORDER} -F 9973 --unwind none -o {small}/out -- \
         sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 7'; \
         status=$?; cp {small}/out {copy}; exit $status"
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let Ok(output) = output else { return eprintln!("SKIPPED: there is no unshare") };
    if output.status.code() != Some(7) && !fs::exists(&copy).expect("known") {
        eprintln!("SKIPPED: no small file system: {}", stderr(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("No space left").count(), 1, "{}", stderr(&output));
    let stream = Stream::from_file(&copy);
    assert_eq!(stream.verdict, Verdict::Truncated, "all written records are intact");
    assert!(stream.samples.len() > 100, "{}", stream.samples.len());
}
