//! nprof-top on a terminal, with keys, signals and streams that end, fail, or go on.

use std::time::{Duration, Instant};

use nprof_tests::{ODD_NAME, Shell, Terminal, have, odd_names, waits};

/// Returns a shell with the streams `waits.nprof` and `odd.nprof`.
fn shell() -> Shell {
    let shell = Shell::new();
    shell.write("waits.nprof", waits());
    shell.write("odd.nprof", odd_names());
    shell
}

/// True if script(1) and stty(1) are there.
fn has_terminal() -> bool {
    have(&["script", "stty"])
}

/// Asserts that a command on a terminal left its screen and ended with this status; returns the output
/// after the screen.
#[track_caller]
fn left(terminal: Terminal<'_>, status: i32) -> String {
    let (code, output) = terminal.finish();
    assert_eq!(code, Some(status), "{output}");
    let (_, after) = output.rsplit_once("\x1b[?1049l").expect("the screen is left");
    after.to_owned()
}

#[test]
fn keys_change_table_span_order_and_filter() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 100, 20, "nprof-top waits.nprof; echo status $?");
    let screen = terminal.wait(|screen| screen.contains("[recording ended]"));
    assert!(screen.starts_with("functions  [recording ended]  cpu-clock"), "{screen}");
    terminal.press("\t");
    terminal.wait(|screen| screen.starts_with("threads") && screen.contains("7/7 worker"));
    terminal.press("3");
    terminal.wait(|screen| screen.contains("  runnable  last") && screen.contains("preempted"));
    terminal.press("e");
    terminal.wait(|screen| screen.contains("  blocked  last") && screen.contains("epoll_wait"));
    terminal.press("a");
    terminal.wait(|screen| screen.contains("  all 0.0 s  49 samples"));
    terminal.press("/fut.x\r");
    terminal.wait(|screen| screen.contains("2 rows match") && !screen.contains("epoll_wait"));
    terminal.press("/(\r");
    terminal.wait(|screen| screen.contains("not a regular expression"));
    terminal.press("\x1b");
    terminal.wait(|screen| screen.contains("epoll_wait"));
    terminal.press("?");
    terminal.wait(|screen| screen.contains("Ctrl-C") && screen.contains("pause"));
    terminal.press("x");
    terminal.wait(|screen| screen.contains("epoll_wait") && !screen.contains("Ctrl-C"));
    terminal.press("q");
    assert!(left(terminal, 0).contains("status 0"));
}

#[test]
fn hostile_names_are_escaped() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 100, 20, "nprof-top odd.nprof");
    terminal.wait(|screen| screen.contains(ODD_NAME));
    // Ctrl-C is a key.
    terminal.press("\x03");
    left(terminal, 0);
}

/// Shows a stream in a process whose number is in the file `pid`. SIGHUP is ignored if the tests run by
/// nohup(1).
const SHOW: &str = "sh -c 'echo $$ > pid; exec env --default-signal=HUP nprof-top waits.nprof'";

#[test]
fn signals_restore_the_terminal() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    for (signal, number) in [("HUP", 1), ("INT", 2), ("TERM", 15)] {
        let command = format!("stty -g > before\n{SHOW}\necho status $?\nstty -g > after");
        let mut terminal = Terminal::new(&shell, 80, 10, &command);
        terminal.wait(|screen| screen.contains("[recording ended]"));
        // The screen changes with each key.
        terminal.press(&"?x".repeat(500));
        shell.run(&format!("kill -{signal} $(cat pid)")).quiet();
        let after = left(terminal, 0);
        // Nothing is drawn after the screen is left.
        assert!(!after.replace("\x1b[?25h", "").contains('\x1b'), "{signal}: {after:?}");
        let status = format!("status {}", 128 + number);
        // The cursor is visible again.
        assert!(after.contains("\x1b[?25h") && after.contains(&status), "{signal}: {after}");
        assert_eq!(shell.read("before"), shell.read("after"), "{signal}");
    }
}

/// True if a process runs. One that has ended may still wait for its parent.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}

#[test]
fn closed_terminal_ends_the_program() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 80, 10, SHOW);
    terminal.wait(|screen| screen.contains("[recording ended]"));
    let pid = String::from_utf8(shell.read("pid")).expect("a number");
    assert!(runs(pid.trim()));
    drop(terminal);
    let begun = Instant::now();
    while runs(pid.trim()) {
        assert!(begun.elapsed() < Duration::from_secs(120), "it runs without a terminal");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn closed_terminal_ends_the_program_without_a_signal() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    shell.run("mkfifo status").quiet();
    // The keys come from standard input, and from /dev/tty.
    for command in ["nprof-top waits.nprof", "nprof-top < waits.nprof"] {
        // The leader of the session ignores SIGHUP, and the kernel sends it to no other process.
        let command = format!("trap '' HUP\n{command}\necho $? > status");
        let mut terminal = Terminal::new(&shell, 80, 10, &command);
        terminal.wait(|screen| screen.contains("[recording ended]"));
        drop(terminal);
        assert_eq!(shell.run("timeout 120 cat status").quiet(), "129\n", "{command}");
    }
}

#[test]
fn small_and_changing_screens_show_what_fits() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 20, 5, "nprof-top waits.nprof");
    terminal.wait(|screen| screen.starts_with("functions  [recordin") && screen.contains("crc"));
    terminal.resize(1, 1);
    terminal.resize(90, 12);
    terminal.wait(|screen| screen.contains("[recording ended]") && screen.contains("q quit"));
    terminal.press("q");
    left(terminal, 0);
}

/// Shows a stream that goes on when a line is written to `go`.
const SHOW_LIVE: &str = "mkfifo stream go\n\
                         (exec 3> stream; sed '/^U/,$d' waits.nprof >&3; read go < go; \
                         sed -n '/^U/,$p' waits.nprof >&3) &\n\
                         nprof-top --window 10m < stream\necho status $?";

#[test]
fn incomplete_key_does_not_stop_the_screen() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 100, 12, SHOW_LIVE);
    terminal.wait(|screen| screen.contains("server+0x"));
    // The beginning of an arrow, and its end.
    terminal.press("\x1b[");
    shell.run("echo > go").quiet();
    terminal.wait(|screen| screen.contains("[recording ended]"));
    terminal.press("Bq");
    assert!(left(terminal, 0).contains("status 0"));
}

#[test]
fn live_stream_is_shown_while_it_is_written() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let mut terminal = Terminal::new(&shell, 100, 12, SHOW_LIVE);
    // Names are defined after the samples.
    let screen = terminal.wait(|screen| screen.contains("server+0x"));
    assert!(!screen.contains("ended"), "{screen}");
    terminal.press(" ");
    terminal.wait(|screen| screen.contains("[paused]"));
    shell.run("echo > go").quiet();
    let screen = terminal.wait(|screen| screen.contains("[recording ended]"));
    assert!(screen.contains("server+0x") && !screen.contains("crc"), "{screen}");
    terminal.press(" ");
    terminal.wait(|screen| screen.contains("crc") && !screen.contains("paused"));
    terminal.press("q");
    assert!(left(terminal, 0).contains("status 0"));
}

#[test]
fn incomplete_stream_stays_on_the_screen_and_is_reported() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    let whole = shell.read("waits.nprof");
    shell.write("cut.nprof", &whole[..whole.len() - 200]);
    for (option, status) in [("", 3), (" --partial-ok", 0)] {
        let command = format!("nprof-top{option} cut.nprof");
        let mut terminal = Terminal::new(&shell, 120, 12, &command);
        terminal.wait(|screen| screen.contains("truncated") && screen.contains("crc"));
        terminal.press("q");
        let after = left(terminal, status);
        assert!(after.contains("nprof-top: cut.nprof: truncated"), "{after}");
    }
}

#[test]
fn input_that_is_no_stream_is_an_error() {
    if !has_terminal() {
        return;
    }
    let shell = shell();
    shell.write("perf.data", b"PERFILE2 and more");
    for (command, message) in [
        ("nprof-top perf.data", "perf.data file"),
        ("nprof-top < /dev/null", "it is empty"),
        ("nprof-top", "standard input is a terminal"),
        ("nprof-top missing", "No such file"),
    ] {
        let (status, output) = Terminal::new(&shell, 80, 10, command).finish();
        assert!(status == Some(2) && output.contains(message), "{command}: {status:?}: {output}");
    }
}

#[test]
fn output_must_be_a_terminal() {
    let shell = shell();
    let run = shell.run("nprof-top < waits.nprof");
    assert_eq!((run.status, run.out.as_str()), (2, ""), "{run:?}");
    assert!(run.err.contains("not a terminal; nprof-flat prints"), "{run:?}");
    for option in ["--help", "--version"] {
        assert!(!shell.run(&format!("nprof-top {option}")).quiet().is_empty());
        assert_eq!(shell.run(&format!("nprof-top {option} > /dev/full")).status, 2);
        assert_eq!(shell.run(&format!("nprof-top {option} | true")).stages, [0, 0]);
    }
}
