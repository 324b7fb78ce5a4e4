//! The tools as stages of a pipe and as commands in a script: exit statuses, closed pipes, full
//! disks, killed recorders, unprivileged users.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nprof_stream::{Reader, Record};
use nprof_tests::{Shell, skipped};

/// A command that takes some tenths of a second and exists on every Debian.
const WORK: &str = "perl -e '$x += $_ ** 0.5 for 1 .. 3e6'";

/// Returns the number of samples in a file that may still grow.
fn samples(path: &Path) -> usize {
    let Ok(file) = File::open(path) else { return 0 };
    let mut reader = Reader::new(file);
    let mut samples = 0;
    while let Ok(Some(record)) = reader.next() {
        samples += usize::from(matches!(record, Record::Sample(_)));
    }
    samples
}

/// Returns a shell with a complete recording `x.nprof` of [`WORK`].
fn recorded() -> Shell {
    let shell = Shell::new();
    shell.run(&format!("nprof-record -q -o x.nprof -- {WORK}")).quiet();
    shell
}

#[test]
fn keeps_output_and_status_of_command() {
    let shell = Shell::new();
    let run = shell.run("nprof-record -q -o x.nprof -- sh -c 'echo hi; exit 7'");
    assert_eq!((run.status, run.out.as_str()), (7, "hi\n"), "{run:?}");
    assert!(run.err.is_empty(), "{run:?}");
    let verdict = shell.run("nprof-format check x.nprof").quiet();
    assert!(verdict.contains("complete"), "{verdict}");
}

#[test]
fn keeps_input_of_command() {
    let shell = Shell::new();
    let run = shell.run("seq 3 | nprof-record -q -o x.nprof -- tac");
    assert_eq!((run.stages.as_slice(), run.out.as_str()), (&[0, 0][..], "3\n2\n1\n"));
}

#[test]
fn passes_on_status_of_command_as_env_does() {
    let shell = Shell::new();
    shell.write("not-executable", "");
    for (command, status) in [
        ("sh -c 'kill -9 $$'", 128 + 9),
        ("sh -c 'kill -15 $$'", 128 + 15),
        ("./not-executable", 126),
        ("./not-there", 127),
        ("false", 1),
    ] {
        let run = shell.run(&format!("nprof-record -q -o x.nprof -- {command}"));
        assert_eq!(run.status, status, "{command}: {run:?}");
        assert_eq!(run.out, "");
        if status == 126 || status == 127 {
            assert!(run.err.starts_with("nprof-record: "), "{}", run.err);
            assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        }
    }
    let run = shell.run("nprof-record -q -o missing/x.nprof -- touch ran");
    assert_eq!(run.status, 125, "{run:?}");
    assert!(run.err.contains("missing/x.nprof"), "{}", run.err);
    assert!(
        !shell.path("ran").exists(),
        "the command ran although the output could not be created"
    );
}

#[test]
fn usage_error_prints_message_and_no_output() {
    let shell = Shell::new();
    for (tool, status) in [
        ("nprof-record", 125),
        ("nprof-symbolize", 2),
        ("nprof-blame", 2),
        ("nprof-flat", 2),
        ("nprof-paths", 2),
        ("nprof-annotate", 2),
        ("nprof-diff", 2),
        ("nprof-format text", 2),
        ("nprof-export --to pprof", 2),
        ("nprof-import", 2),
        ("nprof-top", 2),
    ] {
        for misuse in ["--no-such-option", "not-there.nprof"] {
            if tool == "nprof-record" && misuse == "not-there.nprof" {
                continue; // nprof-record takes it for a command
            }
            let run = shell.run(&format!("{tool} {misuse}"));
            assert_eq!((run.status, run.out.as_str()), (status, ""), "{tool} {misuse}: {run:?}");
            assert!(!run.err.is_empty(), "{tool} {misuse}");
        }
    }
}

#[test]
fn rejects_file_that_is_no_stream() {
    let shell = Shell::new();
    shell.write("perf.data", b"PERFILE2 and more");
    for tool in [
        "nprof-symbolize",
        "nprof-blame",
        "nprof-flat",
        "nprof-paths",
        "nprof-annotate",
        "nprof-format text",
        "nprof-export --to pprof",
    ] {
        let run = shell.run(&format!("{tool} perf.data"));
        assert_eq!(run.status, 2, "{tool}: {run:?}");
        assert!(run.err.contains("perf.data"), "{tool}: {}", run.err);
    }
}

#[test]
fn closed_pipe_is_success_and_command_finishes() {
    let shell = Shell::new();
    shell.write("work.sh", format!("{WORK}; touch ran"));
    let run =
        shell.run("nprof-record -q -o - -- sh work.sh | nprof-symbolize | nprof-flat | head -1");
    assert_eq!(run.stages, [0, 0, 0, 0], "{run:?}");
    assert_eq!((run.out.lines().count(), run.err.as_str()), (1, ""), "{run:?}");
    assert!(shell.path("ran").exists());
}

#[test]
fn recorder_without_reader_lets_command_finish() {
    let shell = Shell::new();
    shell.write("work.sh", format!("{WORK}; touch ran; exit 5"));
    let run = shell.run("nprof-record -q -o - -- sh work.sh | true");
    assert_eq!((run.stages.as_slice(), run.err.as_str()), (&[5, 0][..], ""));
    assert!(shell.path("ran").exists());
}

#[test]
fn every_stage_reports_truncated_input() {
    let shell = recorded();
    let whole = shell.read("x.nprof");
    shell.write("cut.nprof", &whole[..whole.len() * 3 / 4]);
    for tool in ["nprof-flat", "nprof-paths", "nprof-symbolize", "nprof-format text"] {
        let run = shell.run(&format!("{tool} < cut.nprof > out"));
        assert_eq!(run.status, 3, "{tool}: {run:?}");
        assert!(run.err.contains("truncated"), "{tool}: {}", run.err);
        assert!(!shell.read("out").is_empty(), "{tool}: no output for the complete part");
    }
    let check = shell.run("nprof-format check cut.nprof");
    assert_eq!(check.status, 1, "{check:?}");
    assert!(check.out.contains("truncated"), "{check:?}");
    let partial = shell.run("nprof-flat --partial-ok cut.nprof");
    assert_eq!(partial.status, 0, "{partial:?}");
    // The output of the symbolizer is truncated, too: a filter must not hide damage.
    let piped = shell.run("nprof-symbolize cut.nprof 2>/dev/null | nprof-flat");
    assert_eq!(piped.stages, [3, 3], "{piped:?}");
}

#[test]
fn full_disk_is_error() {
    let shell = recorded();
    for tool in ["nprof-flat", "nprof-paths", "nprof-symbolize", "nprof-format text"] {
        let run = shell.run(&format!("{tool} x.nprof > /dev/full"));
        assert_eq!(run.status, 2, "{tool}: {run:?}");
        assert!(run.err.contains("No space left"), "{tool}: {}", run.err);
    }
    let run = shell.run(&format!("nprof-record -q -o /dev/full -- {WORK}"));
    assert_eq!(run.status, 125, "{run:?}");
    assert!(run.err.contains("No space left"), "{}", run.err);
}

/// Returns a shell with a stream `x.nprof` and profiles of other programs with its samples.
fn with_profiles() -> Shell {
    let shell = Shell::new();
    shell.write("x.nprof", nprof_tests::odd_names());
    shell.run("nprof-export --to pprof -o x.pb.gz x.nprof 2>&1 | wc -l").quiet();
    shell.run("nprof-paths --event cpu-clock --format folded x.nprof > x.folded").quiet();
    shell
}

/// Commands that read or write the formats of other programs.
const CONVERSIONS: [&str; 6] = [
    "nprof-export --to pprof x.nprof",
    "nprof-export --to firefox x.nprof",
    "nprof-export --to speedscope x.nprof",
    "nprof-export --to callgrind x.nprof",
    "nprof-import x.pb.gz",
    "nprof-import x.folded",
];

#[test]
fn conversions_treat_a_closed_pipe_as_success_and_a_full_disk_as_error() {
    let shell = with_profiles();
    for command in CONVERSIONS {
        let run = shell.run(&format!("{command} | true"));
        assert_eq!(run.stages, [0, 0], "{command}: {run:?}");
        assert!(!run.err.contains("pipe"), "{command}: {run:?}");
        let run = shell.run(&format!("{command} > /dev/full"));
        assert_eq!(run.status, 2, "{command}: {run:?}");
        assert!(run.err.contains("No space left"), "{command}: {}", run.err);
        let tool = command.split(' ').next().unwrap_or_default();
        for option in ["--help", "--version"] {
            let run = shell.run(&format!("{tool} {option} > /dev/full"));
            assert_eq!(run.status, 2, "{tool} {option}: {run:?}");
        }
    }
}

#[test]
fn conversions_write_no_binary_to_a_terminal_and_read_none_from_it() {
    if !nprof_tests::have(&["script"]) {
        return;
    }
    let shell = with_profiles();
    let on_terminal = |command: &str| {
        shell.run(&format!("script -qec '{command} 2> messages' /dev/null < /dev/null"))
    };
    let export = on_terminal("nprof-export --to pprof x.nprof");
    assert_eq!((export.status, export.out.as_str()), (2, ""), "{export:?}");
    let import = on_terminal("nprof-import x.pb.gz");
    assert!(import.out.starts_with("@nprof\t"), "{import:?}");
    for command in ["nprof-export --to callgrind", "nprof-import"] {
        let run = on_terminal(command);
        assert_eq!((run.status, run.out.as_str()), (2, ""), "{command}: {run:?}");
        let messages = String::from_utf8_lossy(&shell.read("messages")).into_owned();
        assert!(messages.contains("terminal"), "{command}: {messages}");
    }
}

#[test]
fn conversions_report_input_that_is_cut_off() {
    let shell = with_profiles();
    let stream = shell.read("x.nprof");
    shell.write("x.nprof", &stream[..stream.len() - 10]);
    for name in ["x.pb.gz", "x.folded"] {
        let whole = shell.read(name);
        shell.write(name, &whole[..whole.len() / 2]);
    }
    for command in CONVERSIONS {
        let run = shell.run(&format!("{command} > out"));
        // The part of a stream is exported; an incomplete profile of another program is refused.
        let status = if command.starts_with("nprof-export") { 3 } else { 2 };
        assert_eq!(run.status, status, "{command}: {run:?}");
        let tool = command.split(' ').next().unwrap_or_default();
        assert!(run.err.starts_with(&format!("{tool}: ")), "{command}: {}", run.err);
    }
}

#[test]
fn service_of_a_recording_reaches_the_files_of_a_fleet() {
    let shell = Shell::new();
    shell.run("nprof-record -q --service api@1.2 -o x.nprof -- true").quiet();
    let head = shell.run("nprof-format text x.nprof | head -1").quiet();
    assert!(head.contains("\tservice=api\tservice_version=1.2"), "{head}");
    // A recording can have no samples: a merged stream keeps the service of its runs.
    let runs = shell
        .run("nprof-format merge x.nprof x.nprof 2> /dev/null | nprof-format text | grep ^@run");
    assert!(runs.out.contains("\tservice=api\t"), "{runs:?}");
}

#[test]
fn killed_recorder_leaves_readable_stream() {
    let shell = Shell::new();
    // The script exits when its parent, the recorder, has exited.
    let script = "my $p = getppid; while (getppid == $p) { $x++ for 1 .. 1e5 }";
    let mut recorder = shell
        .command("nprof-record")
        .args(["-o", "x.nprof", "--", "perl", "-e", script])
        .stdin(Stdio::null())
        .spawn()
        .expect("the recorder can be started");
    let deadline = Instant::now() + Duration::from_secs(60);
    let file = shell.path("x.nprof");
    while samples(&file) < 100 {
        assert!(Instant::now() < deadline, "no samples reach the file");
        std::thread::sleep(Duration::from_millis(50));
    }
    recorder.kill().expect("the recorder runs");
    recorder.wait().expect("the recorder exits");

    let check = shell.run("nprof-format check x.nprof");
    assert_eq!(check.status, 1, "{check:?}");
    assert!(check.out.contains("truncated"), "{check:?}");
    let flat = shell.run("nprof-symbolize x.nprof 2>/dev/null | nprof-flat");
    assert_eq!(flat.stages, [3, 3], "{flat:?}");
    assert!(flat.out.contains("perl"), "{}", flat.out);
    assert!(samples(&file) >= 100);
}

#[test]
fn reads_appended_and_concatenated_streams() {
    let shell = recorded();
    let run = shell.run(&format!(
        "cp x.nprof y.nprof
         nprof-record -q -o - -- {WORK} >> y.nprof && nprof-format check y.nprof"
    ));
    assert!(run.quiet().contains("complete"));
    shell.run("nprof-format text x.nprof > x.txt").quiet();
    let sums = shell.run("cat x.nprof x.txt y.nprof | nprof-format text | grep -c '^@end'").quiet();
    assert_eq!(sums, "4\n");
}

#[test]
fn unprivileged_user_records_own_program() {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if level.trim().parse().unwrap_or(0) > 2 {
        return skipped("kernel.perf_event_paranoid is above 2: users may not sample");
    }
    if !nprof_tests::have(&["setpriv"]) {
        return;
    }
    let shell = Shell::unprivileged();
    let run = shell.run(&format!("id -u; nprof-record -q -o x.nprof -- {WORK}"));
    assert_eq!((run.status, run.out.as_str()), (0, "65534\n"), "{run:?}");
    // One line reports the missing rights. The rings that a user may lock in memory are small
    // and may overflow, which is reported, too.
    let mut messages = run.err.lines();
    assert!(messages.next().is_some_and(|line| line.contains("not privileged")), "{}", run.err);
    assert!(messages.all(|line| line.contains("rings were full")), "{}", run.err);
    let flat = shell.run("nprof-symbolize x.nprof | nprof-flat --by image").quiet();
    assert!(flat.contains("perl"), "{flat}");
    assert!(samples(&shell.path("x.nprof")) >= 50, "{flat}");
}

#[test]
fn same_stream_gives_same_bytes() {
    let shell = recorded();
    shell.run("nprof-symbolize x.nprof > y.nprof").quiet();
    for tool in ["nprof-flat", "nprof-flat --format json", "nprof-paths", "nprof-symbolize"] {
        let same = shell.run(&format!("cmp <({tool} y.nprof) <({tool} y.nprof)"));
        assert_eq!(same.status, 0, "{tool}: {same:?}");
    }
}

#[test]
fn samples_pass_pipe_while_command_runs() {
    let shell = Shell::new();
    // The command runs until its first sample has passed the pipe.
    let run = shell.run(
        "mkfifo go
         nprof-record -q -o - -- perl -e 'open F, \"+<go\"; vec($r, fileno F, 1) = 1;
             1 until select $x = $r, undef, undef, 0' |
         nprof-symbolize | nprof-format text | { grep -m1 '^S' > go; cat > rest; }",
    );
    assert_eq!(run.stages, [0, 0, 0, 0], "{run:?}");
    let mut rest = String::new();
    File::open(shell.path("rest"))
        .and_then(|mut file| file.read_to_string(&mut rest))
        .expect("the rest can be read");
    assert!(rest.contains("\n@end"), "{rest}");
}

#[test]
fn interrupted_pipe_still_prints_report() {
    let shell = Shell::new();
    // A terminal sends SIGINT to every stage. The script sends it once the command runs and the
    // report handles it: SIGINT is bit 1 of SigCgt, so its last hexadecimal digit has that bit.
    let run = shell.run(
        "set -m
         nprof-record -q -o - -- sh -c 'touch started; while :; do :; done' | nprof-flat > table 2>&1 &
         until [ -e started ] && grep -q '^SigCgt:.*[2367abef]$' /proc/$!/status; do
             sleep 0.01
         done
         kill -INT -- -$(jobs -p)
         wait",
    );
    let table = std::fs::read_to_string(shell.path("table")).expect("a report");
    assert!(table.contains("command: sh -c") && table.contains("self %"), "{table}\n{run:?}");
}

#[test]
fn file_of_the_host_is_not_that_of_a_chroot() {
    let shell = Shell::new();
    let source = |name: &str, times: u32| {
        format!(
            "#include <time.h>\n__attribute__((noinline)) void {name}(volatile long n) {{ while (n--); }}\n\
             int main() {{ while (clock() < 2000000) {{ {} }} }}\n",
            format!("{name}(100000); ").repeat(times as usize)
        )
    };
    for (file, name, times) in [("inside.c", "inside", 1), ("outside.c", "outside", 100)] {
        shell.write(file, source(name, times));
        // As an image of it has no build ID, only its path names it.
        shell.run(&format!("gcc -O1 -static -Wl,--build-id=none -o {name} {file}")).quiet();
    }
    shell.run("mkdir -p jail$PWD && mv inside jail$PWD/program && mv outside program").quiet();
    let record = "nprof-record -q -o raw.nprof -- chroot jail $PWD/program";
    let run = shell.run(record);
    if run.status == 125 || run.err.contains("chroot: ") {
        return skipped("no right to chroot");
    }
    let after = shell.run("nprof-symbolize -v raw.nprof | nprof-flat --format csv");
    assert!(!after.out.contains(",outside,"), "{after:?}");
    assert!(after.err.contains("another file: its loaded segments"), "{after:?}");
    // While it runs, its own root has the file.
    let piped = record.replace("-o raw.nprof", "-o -");
    let live = shell.run(&format!("{piped} | nprof-symbolize | nprof-flat --format csv")).quiet();
    assert!(live.contains(",inside,"), "{live}");
}

#[test]
fn rejects_program_rebuilt_after_recording() {
    let shell = Shell::new();
    let source = "#include <math.h>\n__attribute__((noinline)) double work(long n) \
                  { double s = 0; while (n--) s += sqrt(n); return s; }\n\
                  int main() { return work(100000000) < 0; }\n";
    shell.write("prog.c", source);
    for (ids, reason) in [
        ("--build-id", "another build ID: it has "),
        ("--build-id=none", "its loaded segments are not those of the image"),
    ] {
        let compile = |level| format!("gcc -O{level} -g -Wl,{ids} -o prog prog.c -lm");
        shell.run(&compile(1)).quiet();
        shell.run("nprof-record -q -o x.nprof -- ./prog").quiet();
        let before = shell.run("nprof-symbolize x.nprof | nprof-flat --format csv").quiet();
        assert!(before.contains(",work,prog,"), "{before}");
        shell.run(&compile(0)).quiet();
        // File times can be as coarse as a clock tick; a day later is later in any case.
        shell.run("touch -d '1 day' prog").quiet();
        let after = shell.run("nprof-symbolize -v x.nprof | nprof-flat --format csv");
        assert_eq!(after.status, 0, "{after:?}");
        assert!(!after.out.contains(",work,") && !after.out.contains(",main,"), "{after:?}");
        assert!(after.err.contains(reason), "{after:?}");
        let marked =
            shell.run("nprof-symbolize --allow-mismatch x.nprof | nprof-flat --format csv");
        assert!(marked.out.contains("[mismatch]"), "{marked:?}");
    }
}
