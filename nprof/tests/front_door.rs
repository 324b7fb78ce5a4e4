//! `nprof` as a user runs it: the tools by short names, and its own commands.

use nprof_tests::{Shell, TOOLS, Terminal, have, tool};

/// Takes some tenths of a second, and exists on every Debian.
const WORK: &str = "perl -e '$x += $_ ** 0.5 for 1 .. 2e6'";

#[test]
fn unknown_command_names_similar_ones() {
    let shell = Shell::new();
    for (command, similar) in [("falt", "flat"), ("symbolise", "symbolize"), ("bensch", "bench")] {
        let run = shell.run(&format!("nprof {command}"));
        assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
        let message = format!("nprof: {command}: no such command; similar: {similar}");
        assert!(run.err.starts_with(&message), "{run:?}");
    }
    let run = shell.run("nprof $'\\e[31mred'");
    assert!(run.status == 2 && !run.err.contains('\u{1b}'), "{run:?}");
}

#[test]
fn tool_runs_in_place_of_nprof() {
    let shell = Shell::new();
    let run = shell.run("nprof flat --no-such-option");
    assert!(run.status == 2 && run.err.starts_with("nprof-flat: "), "{run:?}");
    let run = shell.run("nprof record -q -o x -- sh -c 'exit 7'");
    assert_eq!((run.status, run.err.as_str()), (7, ""), "{run:?}");
    assert!(shell.run("nprof format check x").quiet().contains("complete"));
    // A closed pipe is no failure of the tool.
    let run = shell.run("nprof record -l | head -n 1");
    assert_eq!(run.stages, [0, 0], "{run:?}");
}

#[test]
fn all_tools_have_short_names() {
    let shell = Shell::new();
    let help = shell.run("nprof --help").quiet();
    for name in TOOLS.iter().filter_map(|tool| tool.strip_prefix("nprof-")) {
        let version = shell.run(&format!("nprof {name} --version")).quiet();
        assert!(version.starts_with(&format!("nprof-{name} ")), "{version}");
        assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
    }
}

#[test]
fn help_of_a_tool_needs_no_manual_page() {
    let shell = Shell::new();
    let nprof = tool("nprof").display().to_string();
    let help = |name: &str| shell.run(&format!("PATH=/nowhere {nprof} help {name}")).quiet();
    assert!(help("flat").contains("Usage: nprof-flat"));
    assert!(help("bench").contains("Usage: nprof bench"));
    assert!(help("").contains("Tools that report:"));
    assert_eq!(shell.run("nprof help nothing").status, 2);
}

#[test]
fn run_keeps_output_status_and_recording_of_command() {
    let shell = Shell::new();
    shell.write("work.sh", format!("echo out; {WORK}; exit 3"));
    let run = shell.run("nprof run -- sh work.sh");
    assert_eq!((run.status, run.out.as_str()), (3, "out\n"), "{run:?}");
    let kept = shell.run("ls nprof-sh-*.nprof").quiet();
    let kept = kept.trim_end();
    assert!(run.err.contains("samples: ") && run.err.contains(kept), "{run:?}");
    assert!(shell.run(&format!("nprof format check {kept}")).quiet().contains("complete"));
    // It is symbolized: the steps of the stream name both tools.
    let text = shell.run(&format!("nprof format text {kept}")).quiet();
    assert!(text.contains("nprof-record") && text.contains("nprof-symbolize"), "no step");
}

#[test]
fn run_without_recording_leaves_no_file() {
    let shell = Shell::new();
    for (words, status) in [
        ("-- ./not-there", 127),
        ("--no-such-option -- true", 125),
        ("-F 99 true", 125),
        ("-o missing/x -- touch ran", 125),
    ] {
        let run = shell.run(&format!("nprof run {words}"));
        assert_eq!((run.status, run.out.as_str()), (status, ""), "{words}: {run:?}");
        assert_eq!(run.err.lines().count(), 1, "{words}: {run:?}");
    }
    assert_eq!(shell.run("ls").quiet(), "");
}

#[test]
fn run_without_recording_keeps_file_of_earlier_one() {
    let shell = Shell::new();
    shell.write("x", "earlier");
    for (words, status) in [("-- ./not-there", 127), ("--no-such-option -- true", 125)] {
        assert_eq!(shell.run(&format!("nprof run -o x {words}")).status, status);
        assert_eq!(shell.read("x"), b"earlier");
    }
    shell.write("x", "longer than a recording: ".repeat(100_000));
    assert_eq!(shell.run("nprof run -o x -- true").status, 0);
    assert!(shell.run("nprof format check x").quiet().contains("complete"));
}

#[test]
fn failed_report_does_not_hide_status_of_command() {
    let shell = Shell::new();
    for (command, status) in [("sh -c 'exit 3'", 3), ("true", 125)] {
        let run = shell.run(&format!("nprof run -o /dev/full -- {command}"));
        assert_eq!(run.status, status, "{run:?}");
        assert!(run.err.contains("nprof-symbolize: "), "{run:?}");
        assert!(!run.err.contains("recorded in"), "{run:?}");
    }
    assert!(std::fs::metadata("/dev/full").is_ok(), "the device was removed");
}

/// A program that has samples, creates the file `ready`, and then waits for its end.
fn write_waiting_program(shell: &Shell) {
    shell.write("wait.sh", format!("{WORK}; touch ready; exec sleep 600"));
}

/// Waits until the recorded program waits.
const READY: &str = "while ! [ -e ready ]; do sleep 0.1; done";

/// Asserts that `report` has the report of a complete recording `x`.
#[track_caller]
fn assert_reported(shell: &Shell, case: &str) {
    let report = String::from_utf8_lossy(&shell.read("report")).into_owned();
    let has = |text| report.contains(text);
    assert!(has("samples: ") && has("recorded in x"), "{case}: {report}");
    assert!(shell.run("nprof format check x").quiet().contains("complete"), "{case}");
}

#[test]
fn run_reports_what_was_recorded_before_a_request_to_end() {
    for (run, request) in [
        ("nprof run", "kill -TERM $!"),
        // nohup(1) ignores SIGHUP, also if it runs the tests.
        ("env --default-signal=HUP nprof run", "kill -HUP $!"),
        // A script starts background jobs with SIGINT ignored.
        ("env --default-signal=INT nprof run", "kill -INT $!"),
        // timeout(1) passes a signal on to its child, then to the process group of all.
        ("timeout 600 nprof run", "kill -TERM $!"),
    ] {
        let shell = Shell::new();
        write_waiting_program(&shell);
        let run =
            shell.run(&format!("{run} -o x -- sh wait.sh 2>report & {READY}; {request}; wait $!"));
        assert!(run.status != 0, "{request}: {run:?}");
        assert_reported(&shell, request);
    }
}

#[test]
fn interrupt_ends_recording_of_program_that_ignores_it() {
    let shell = Shell::new();
    shell.write("wait.sh", format!("mkfifo end; {WORK}; touch ready; read end <end; touch ended"));
    let run = shell.run(&format!(
        "nprof run -o x -- sh wait.sh 2>report & {READY}; kill -INT $!; wait $!; status=$?
         ! [ -e ended ] || echo 'the program did not run on'
         echo end >end; exit $status"
    ));
    assert_eq!((run.status, run.out.as_str()), (130, ""), "{run:?}");
    assert_reported(&shell, "ignored");
}

#[test]
fn interrupt_of_terminal_ends_the_recording_and_not_the_report() {
    let shell = Shell::new();
    shell.write(
        "wait.sh",
        format!("trap 'exit 5' INT; {WORK}; touch ready; while :; do sleep 0.1; done"),
    );
    // Without exec, a shell that waits for nprof gets the interrupt, too: dash then exits with 130.
    let run = shell.run(&format!(
        "{{ {READY}; printf '\\003'; }} |
         script -qec 'exec nprof run -o x -- sh wait.sh' report >/dev/null"
    ));
    assert_eq!(run.stages, [0, 5], "{run:?}");
    assert_reported(&shell, "terminal");
}

#[test]
fn bench_compares_and_keeps_recordings() {
    let shell = Shell::new();
    shell.write("a b.sh", WORK);
    let bench = "nprof bench -n 2 -o kept --base \"sh 'a b.sh'\" --new 'sh a\\ b.sh' -- -n 0";
    let run = shell.run(bench);
    let streams = shell.run("ls kept").quiet();
    assert_eq!(streams, "base-1.nprof\nbase-2.nprof\nnew-1.nprof\nnew-2.nprof\n");
    let diff = shell.run("nprof diff -n 0 --base kept/base-* --new kept/new-*");
    assert_eq!((run.status, &run.out), (diff.status, &diff.out));
    assert!(run.out.contains("2 runs of sh 'a b.sh'"), "{run:?}");
    // Recordings are never overwritten.
    let again = shell.run(bench);
    assert!(again.status == 2 && again.err.contains("kept"), "{again:?}");
}

#[test]
fn bench_stops_at_program_that_fails() {
    let shell = Shell::new();
    let run = shell.run("nprof bench -o kept --base true --new 'sh -c \"exit 3\"'");
    assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
    assert!(
        run.err.contains("nprof: new, run 1: ") && run.err.contains("exit status: 3"),
        "{run:?}"
    );
    // Nothing was recorded: no directory stays, of which the next one would need another name.
    let run = shell.run("nprof bench --base ./not-there --new true");
    assert!(run.status == 2 && !run.err.contains("recordings are in"), "{run:?}");
    assert_eq!(shell.run("ls").quiet(), "kept\n");
    let run = shell.run("nprof bench --base 'a \"b' --new true");
    assert!(run.status == 2 && run.err.contains("open quote"), "{run:?}");
}

#[test]
fn doctor_agrees_with_the_recorder() {
    for shell in [Shell::new(), Shell::unprivileged()] {
        let doctor = shell.run("nprof doctor");
        let listed = shell.run("nprof-record -l").quiet();
        let is_available = |name: &str| {
            let line = listed.lines().find(|line| line.starts_with(&format!("{name} ")));
            line.is_some_and(|line| line.contains("  available"))
        };
        let has_cpu_time = is_available("nprof.clk_unhalted");
        assert_eq!(doctor.status, i32::from(!has_cpu_time), "{doctor:?}");
        for (about, name) in [
            ("CPU time", "nprof.clk_unhalted"),
            ("kernel functions", "kernel-code"),
            ("the whole system", "system-wide"),
            ("deep stacks", "deep-stacks"),
            ("waiting", "blocked"),
            ("memory", "heap.alloc"),
            ("exact calls", "counted-calls"),
        ] {
            let state = if is_available(name) { "yes" } else { "no: " };
            let line = format!("{about:<22}{state}");
            assert!(doctor.out.lines().any(|shown| shown.starts_with(&line)), "{line}\n{doctor:?}");
        }
    }
}

/// A program that prints, and then computes until a signal ends it.
const COMPUTE: &str = "sh -c 'echo from the command; exec perl -e \"1 while ++\\$x\"'";

/// True if script(1) and stty(1) are there.
fn has_terminal() -> bool {
    have(&["script", "stty"])
}

#[test]
fn top_shows_a_running_command_and_keeps_its_recording() {
    if !has_terminal() {
        return;
    }
    let shell = Shell::new();
    let command = format!("nprof top -o kept --window 10m -- {COMPUTE}; echo status $?");
    let mut terminal = Terminal::new(&shell, 100, 20, &command);
    terminal.wait(|screen| screen.starts_with("functions") && screen.contains("  perl"));
    terminal.press("t");
    terminal.wait(|screen| screen.starts_with("threads") && screen.contains(" perl"));
    terminal.press("q");
    let (_, output) = terminal.finish();
    let (screen, after) = output.rsplit_once("\x1b[?1049l").expect("the screen is left");
    assert!(!screen.contains("from the command") && after.contains("from the command"), "{after}");
    assert!(after.contains("recorded in kept") && after.contains("status 0"), "{after}");
    assert!(shell.run("nprof format check kept").quiet().contains("complete"));
    let flat = shell.run("nprof flat --by image kept").quiet();
    assert!(flat.contains("perl"), "{flat}");
}

#[test]
fn top_stays_after_the_command_and_ends_by_a_signal() {
    if !has_terminal() {
        return;
    }
    let shell = Shell::new();
    let command =
        "sh -c 'echo $$ > pid; exec nprof top -F 997 --window 10m -- perl work.pl'\necho status $?";
    shell.write("work.pl", "$x += $_ ** 0.5 for 1 .. 2e6");
    let mut terminal = Terminal::new(&shell, 100, 20, command);
    terminal.wait(|screen| screen.contains("[recording ended]") && screen.contains("  perl"));
    shell.run("kill $(cat pid)").quiet();
    let (_, output) = terminal.finish();
    let (_, after) = output.rsplit_once("\x1b[?1049l").expect("the screen is left");
    assert!(after.contains("status 143"), "{after}");
}

#[test]
fn top_without_recording_reports_the_reason() {
    let shell = Shell::new();
    let run = shell.run("nprof top -- true");
    assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
    assert!(run.err.contains("nprof: standard output is not a terminal"), "{run:?}");
    if !has_terminal() {
        return;
    }
    for (words, status, message) in [
        ("-- ./not-there", 127, "nprof-record: "),
        ("-o missing/x -- touch ran", 2, "nprof: cannot create missing/x: "),
        ("-p 1 --no-such-option", 125, "nprof-record: "),
        ("--window x -- sleep 600", 2, "nprof-top: "),
        ("-o - -- touch ran", 2, "nprof: -o -"),
    ] {
        let (code, output) = Terminal::new(&shell, 100, 20, &format!("nprof top {words}")).finish();
        assert!(code == Some(status) && output.contains(message), "{words}: {code:?}: {output}");
    }
    assert!(!shell.path("ran").exists());
    let mut terminal =
        Terminal::new(&shell, 100, 20, &format!("nprof top -o /dev/full -- {COMPUTE}"));
    terminal.wait(|screen| screen.contains("  perl"));
    terminal.press("q");
    let (code, output) = terminal.finish();
    assert!(code == Some(2) && output.contains("/dev/full: No space left"), "{code:?}: {output}");
}
