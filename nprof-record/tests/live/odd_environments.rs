//! File size limits, time namespaces, a recorder that is killed at once, commands that ignore
//! interrupts, other pid namespaces, a missing /proc.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nprof_stream::{Reader, Record, Verdict};

use crate::support::{Directory, Stream, can_record, record, stderr};
use crate::transparency::{RECORDER, send, started};

#[test]
fn file_size_limit_truncates_stream_but_command_runs_on() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("limit");
    let file = directory.path("out");
    // 16 blocks of 512 or 1024 bytes. The command writes no file.
    let script = format!(
        "ulimit -f 16; exec {RECORDER} -F 9973 --unwind none -o {file} -- \
         sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 7'"
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("File too large").count(), 1, "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Truncated, "all written records are intact");
    assert!(stream.samples.len() > 100, "{}", stream.samples.len());
}

#[test]
fn command_keeps_its_disposition_of_file_size_signal() {
    if !can_record() {
        return;
    }
    let output = record(&["-o", "/dev/null", "--", "sh", "-c", "kill -XFSZ $$; exit 3"]);
    assert_eq!(output.status.code(), Some(128 + 25), "{}", stderr(&output));
    let how =
        format!("trap '' XFSZ; exec {RECORDER} -o /dev/null -- sh -c 'kill -XFSZ $$; exit 3'");
    let output = Command::new("sh").args(["-c", &how]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn recorder_killed_at_once_leaves_a_stream_with_its_command() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("early");
    let file = directory.path("out");
    let (mut child, _) = started(&file, ":", "read a");
    // The command runs before the first record is written.
    while fs::metadata(&file).map_or(0, |metadata| metadata.len()) == 0 {
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("it ends");
    let bytes = fs::read(&file).expect("a file");
    let mut reader = Reader::new(&*bytes);
    let Some(Record::Head(head)) = reader.next().expect("a stream") else { panic!("no head") };
    assert!(head.command.ends_with(b"read a'"), "{}", String::from_utf8_lossy(&head.command));
    while reader.next().expect("a stream").is_some() {}
    assert_eq!(reader.verdict(), Verdict::Truncated);
}

#[test]
fn samples_in_time_namespace_lie_between_head_and_end() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("timens");
    let file = directory.path("out");
    for offset in ["86400", "-1000"] {
        let mut command = Command::new("unshare");
        command.args(["-T", "--monotonic", offset, RECORDER, "-o", &file, "--"]);
        command.args(["sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"]);
        let output = command.output();
        let is_tried = output.as_ref().is_ok_and(|output| output.status.success());
        if !is_tried {
            eprintln!("SKIPPED: no time namespace {offset} s from the system's: {output:?}");
            continue;
        }
        let bytes = fs::read(&file).expect("a file");
        let (mut times, mut samples) = ([None; 2], Vec::new());
        let mut reader = Reader::new(&*bytes);
        while let Some(record) = reader.next().expect("a stream") {
            match record {
                Record::Head(head) => times[0] = head.time,
                Record::End(end) => times[1] = end.time,
                Record::Sample(sample) => samples.push(sample.time),
                _ => {}
            }
        }
        let [Some(begin), Some(end)] = times else { panic!("{times:?}") };
        assert!(samples.len() > 20, "{}", samples.len());
        // The head is written after the first samples were taken.
        let earliest = begin.saturating_sub(1_000_000_000);
        assert!(samples.iter().all(|time| (earliest..=end).contains(time)), "{begin} to {end}");
    }
}

#[test]
fn sent_interrupt_ends_recording_of_command_that_ignores_it() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("ignoring");
    let file = directory.path("out");
    // As with `nprof-record ... &` in a script: both are started with SIGINT ignored.
    let (mut child, pid) = started(&file, "trap '' INT", "read a; exit 4");
    let input = child.stdin.take();
    send("-INT", child.id());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.end.expect("an end").reason, b"interrupt");
    assert!(fs::exists(format!("/proc/{pid}")).expect("known"), "the command runs on");
    drop(input);
}

/// Runs the recorder through another program. None if that fails, which is printed.
fn recorded_through(through: &[&str], words: &[&str]) -> Option<Output> {
    let words = [&through[1..], &[RECORDER], words].concat();
    let output = Command::new(through[0]).args(words).output();
    let output = output.ok().filter(|output| output.status.success());
    if output.is_none() {
        eprintln!("SKIPPED: {through:?} is not permitted");
    }
    output
}

#[test]
fn processes_of_other_pid_namespaces_are_reported_as_missing() {
    let directory = Directory::new("pidns");
    let file = directory.path("out");
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("it runs");
    let through = ["unshare", "-p", "-f", "--mount-proc"];
    let output = recorded_through(&through, &["-a", "-d", "0.5", "-o", &file]);
    busy.kill().expect("killed");
    busy.wait().expect("it ends");
    let Some(output) = output else { return };
    let message = stderr(&output);
    assert!(message.contains("processes of other pid namespaces cannot be recorded"), "{message}");
    assert!(!message.contains("-F"), "no rate helps: {message}");
}

#[test]
fn processes_that_outlive_the_command_are_reported() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("daemons");
    let (file, pids) = (directory.path("out"), directory.path("pids"));
    let script = |count: usize| {
        let sleep = "sleep 600 > /dev/null 2>&1 & echo $! >> $0; ".repeat(count);
        format!("{sleep} true | cat; true & wait $!")
    };
    for (count, expected) in
        [(0, None), (1, Some("1 of its processes goes on")), (3, Some("3 of its"))]
    {
        let output = record(&["-o", &file, "--", "sh", "-c", &script(count), &pids]);
        let message = stderr(&output);
        let started = fs::read_to_string(&pids).unwrap_or_default();
        started.lines().for_each(|pid| send("-KILL", pid.parse().expect("a pid")));
        let _ = fs::remove_file(&pids);
        assert!(output.status.success(), "{message}");
        let found = message.contains("go on unrecorded") || message.contains("goes on unrecorded");
        assert_eq!(found, expected.is_some(), "{message}");
        assert!(message.contains(expected.unwrap_or_default()), "{message}");
    }
}

#[test]
fn proc_of_another_pid_namespace_is_refused() {
    let directory = Directory::new("outer-proc");
    let file = directory.path("out");
    let own = ["-p", "$$", "-d", "0.1", "-o", &file].join(" ");
    let command = ["-o", &file, "--", "true"].join(" ");
    for words in [own, command] {
        let script = format!("{RECORDER} {words}; echo ended $?");
        let output = Command::new("unshare").args(["-p", "-f", "sh", "-c", &script]).output();
        let output = output.ok().filter(|output| output.status.success());
        let Some(output) = output else { return eprintln!("SKIPPED: unshare is not permitted") };
        let message = stderr(&output);
        assert!(
            message.contains("/proc lists the processes of another pid namespace"),
            "{message}"
        );
        assert_eq!(output.stdout, b"ended 125\n", "{message}");
        assert!(!Path::new(&file).exists(), "nothing was recorded");
    }
}

#[test]
fn missing_proc_is_reported_as_the_reason_of_incomplete_stacks() {
    let directory = Directory::new("no-proc");
    let file = directory.path("out");
    let through = ["unshare", "-m", "sh", "-c", "umount -l /proc && exec \"$@\"", "sh"];
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let output = recorded_through(&through, &["-o", &file, "--", "sh", "-c", work]);
    let Some(output) = output else { return };
    let message = stderr(&output);
    assert!(message.contains("/proc is not mounted"), "{message}");
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert!(!stream.samples.is_empty(), "{message}");
}
