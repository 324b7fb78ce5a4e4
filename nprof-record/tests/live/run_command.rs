//! Running a command: exit status, output, descriptors, signals, write errors, unprivileged use.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::{Directory, Stream, can_record, record, recorder, stderr};
use nprof_stream::Verdict;

/// A shell script that is busy for a while.
const BUSY: &str = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done";

#[test]
fn exit_status_is_that_of_command() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("status");
    let file = directory.path("out");
    // 128 + SIGSEGV (11), 128 + SIGTERM (15).
    for (script, status) in
        [("exit 0", 0), ("echo hi; exit 7", 7), ("kill -SEGV $$", 139), ("kill -TERM $$", 143)]
    {
        let output = record(&["-o", &file, "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}");
        let stream = Stream::from_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        assert_eq!(stream.end.expect("an end").status, Some(status as u64));
    }
    let output = record(&["-o", &file, "--", "sh", "-c", "echo hi; exit 7"]);
    assert_eq!(output.stdout, b"hi\n", "with -o FILE the command's output is its own");
    let last = Stream::from_file(&file).exits.pop();
    assert_eq!(last.as_deref(), Some("7"));
}

#[test]
fn failures_exit_as_env_does() {
    let directory = Directory::new("failures");
    let file = directory.path("out");
    assert_eq!(record(&[]).status.code(), Some(125));
    let misused = record(&["--no-such-option", "true"]);
    assert_eq!(misused.status.code(), Some(125));
    let message = "nprof-record: unexpected argument '--no-such-option' found; tip: to pass '--no-such-option' as \
         a value, use '-- --no-such-option'; nprof-record --help lists the options\n";
    assert_eq!(stderr(&misused), message);
    assert_eq!(record(&["-e", "no-such", "true"]).status.code(), Some(125));
    assert_eq!(record(&["--help"]).status.code(), Some(0));
    assert!(record(&["-F", "0", "true"]).stdout.is_empty());
    if !can_record() {
        return;
    }
    let output = record(&["-o", &file, "--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(stderr(&output), "nprof-record: no-such-command: command not found\n");
    assert!(!fs::exists(&file).expect("known"), "nothing was recorded");
    let script = directory.path("script");
    fs::write(&script, "#!/bin/sh\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).expect("set");
    assert_eq!(record(&["-o", &file, "--", &script]).status.code(), Some(126));
    assert_eq!(record(&["-o", "/no/such/directory/x", "--", "true"]).status.code(), Some(125));
}

#[test]
fn existing_output_survives_failed_exec() {
    let directory = Directory::new("survives");
    let file = directory.path("out");
    fs::write(&file, "precious").expect("written");
    record(&["-o", &file, "--", "no-such-command"]);
    assert_eq!(fs::read(&file).expect("read"), b"precious");
}

#[test]
fn command_output_goes_to_stderr_when_stream_is_on_stdout() {
    if !can_record() {
        return;
    }
    for words in [&["-o", "-"][..], &[]] {
        let script = ["sh", "-c", "echo out; echo err >&2"];
        let output = record(&[words, &["--"], &script].concat());
        assert_eq!(Stream::read(&output.stdout).verdict, Verdict::Complete);
        let stderr = stderr(&output);
        assert!(stderr.contains("out\n") && stderr.contains("err\n"), "{stderr}");
    }
}

#[test]
fn write_error_does_not_affect_command() {
    if !can_record() {
        return;
    }
    let output = record(&["-o", "/dev/full", "--", "sh", "-c", &format!("{BUSY}; exit 3")]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output).matches("cannot write the stream").count(), 1);
    assert_eq!(record(&["-o", "/dev/full", "--", "true"]).status.code(), Some(125));

    let directory = Directory::new("closed");
    let proof = directory.path("proof");
    let script = format!("{BUSY}; echo done > {proof}; exit 3");
    let mut child = recorder(&["-o", "-", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    // A closed pipe is not an error to report: the reader of the stream has chosen to stop.
    drop(child.stdout.take());
    let mut messages = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut messages).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    assert_eq!((messages.as_str(), fs::read(&proof).expect("proof")), ("", b"done\n".to_vec()));
}

#[test]
fn command_inherits_unchanged_descriptors_and_signals() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("inherits");
    let file = directory.path("out");
    let script = "ls /proc/self/fd | wc -l; ulimit -n; grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let plain = Command::new("sh").args(["-c", script]).output().expect("it runs");
    let output = record(&["-o", &file, "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&plain.stdout));
}

#[test]
fn records_short_lived_children() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("children");
    let file = directory.path("out");
    let script = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done";
    let output = record(&["-F", "4999", "-o", &file, "--", "sh", "-c", script]);
    let stream = Stream::from_file(&file);
    assert_eq!((stream.tasks, stream.exits.len()), (101, 101));
    assert_eq!(stream.executed.iter().filter(|name| *name == "true").count(), 100);
    if stderr(&output).contains("not privileged") {
        return;
    }
    let samples = stream.samples.iter().filter(|sample| sample.comm == "true").count();
    assert!(samples > 50, "{samples} samples of 100 runs of true");
}

#[test]
fn fallback_records_requested_event_and_reason() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("fallback");
    let file = directory.path("out");
    record(&["-o", &file, "--", "true"]);
    let event = Stream::from_file(&file).event;
    assert_eq!(event.requested, b"nprof.clk_unhalted");
    let named = record(&["-e", "cycles", "-o", &file, "--", "true"]);
    // Virtual machines often have no cycle counter.
    if event.name == b"cpu-clock" {
        assert!(!event.fallback.is_empty());
        assert_eq!(named.status.code(), Some(125));
        assert!(stderr(&named).contains("cannot open the event cycles"));
    } else {
        assert!(event.fallback.is_empty() && named.status.success());
    }
    record(&["-e", "cpu-clock", "-F", "499", "-o", &file, "--", "true"]);
    let event = Stream::from_file(&file).event;
    assert_eq!((event.requested.as_slice(), event.frequency), (&b""[..], Some(499)));
}

#[test]
fn duration_ends_sampling_before_command() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("duration");
    let file = directory.path("out");
    let output = record(&["-d", "0.05", "-o", &file, "--", "sh", "-c", "sleep 0.3; exit 9"]);
    assert_eq!(output.status.code(), Some(9));
    let end = Stream::from_file(&file).end.expect("an end");
    assert_eq!((end.reason.as_slice(), end.status), (&b"duration"[..], None));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("goes on; waiting for its exit status"), "{errors}");
}

#[test]
fn forwards_signal_to_command() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("signal-sent");
    let file = directory.path("out");
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = recorder(&["-o", &file, "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("UTF-8");
    assert_eq!(line, "ready\n");
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert_eq!(stream.end.expect("an end").status, Some(5));
}

#[test]
fn killed_recorder_leaves_truncated_stream() {
    if !can_record() {
        return;
    }
    let script = "while kill -0 $PPID; do :; done 2>/dev/null";
    let mut child = recorder(&["-o", "-", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut output = child.stdout.take().expect("piped");
    let mut bytes = vec![0; 4096];
    output.read_exact(&mut bytes).expect("the stream is flushed while the command runs");
    child.kill().expect("killed");
    output.read_to_end(&mut bytes).expect("read");
    child.wait().expect("it ends");
    let stream = Stream::read(&bytes);
    assert_eq!(stream.verdict, Verdict::Truncated);
    assert!(!stream.samples.is_empty() && stream.end.is_none());
}

#[test]
fn eight_descriptors_are_enough() {
    if !can_record() {
        return;
    }
    // The recorder raises its soft limit to the hard one, and restores it for the command.
    let script = "ulimit -Sn 8; exec \"$0\" -o - -- sh -c 'ulimit -Sn; exit 4'";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_nprof-record")])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(Stream::read(&output.stdout).verdict, Verdict::Complete);
    assert!(stderr(&output).contains('8'), "the command has the limit it would have had");
}

#[test]
fn unprivileged_recording_is_user_mode_and_says_so() {
    let program = env!("CARGO_BIN_EXE_nprof-record");
    let words =
        ["--reuid=65534", "--regid=65534", "--clear-groups", program, "-o", "-", "--", "sh", "-c"];
    let Ok(output) =
        Command::new("setpriv").args(words).arg(format!("{BUSY}; {BUSY}; {BUSY}")).output()
    else {
        eprintln!("SKIPPED: there is no setpriv");
        return;
    };
    if !output.status.success() {
        eprintln!("SKIPPED: {}", stderr(&output));
        return;
    }
    let stream = Stream::read(&output.stdout);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert!(!stream.samples.is_empty());
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("readable");
    // From level 2, unprivileged users cannot sample the kernel.
    if paranoid.trim().parse::<i32>().expect("a number") >= 2 {
        assert_eq!(stream.event.scope, b"user");
        assert!(stderr(&output).contains("not privileged: the kernel and most of"));
        assert!(
            stream.samples.iter().all(|sample| sample.frames.iter().all(|(_, kernel)| !kernel))
        );
    }
}
