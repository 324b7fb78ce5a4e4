//! Runs a report with a stream as its standard input, and checks the command-line conventions that
//! all reports share.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The stream of [`odd_names`], with ` | ` between fields.
const STREAM: &str = "\
@nprof | 1.1 | run=0x1 | command=prog\\n</title>
@event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time
@event | id=2 | name=faults | unit=count
I | 1 | elf | - | /bin/prog
T | 1 | 0 | 7 | 7 | 0 | a;b (c) [d] 1
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u
F | 3 | 1 | 0x30 | u
N | 1 | 0 | 1 | 2
N | 3 | 1 | 3
S | 1 | 1 | 1 | 0 | 2 | 1000000 | 1
S | 2 | 1 | 1 | 0 | 2 | 1000000 | 1
S | 3 | 1 | 1 | 0 | 3 | 1000000 | 1
S | 4 | 2 | 1 | 0 | 3 | 1 | 1
U | 1 | main | -
U | 2 | =f;\\n\\x1b, \"<&> | -
U | 3 | g | -
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
@end | reason=exit | samples=4 | records=13 | lost=0
";

/// The name of the second function of [`odd_names`], as all formats except folded print it.
pub const ODD_NAME: &str = "=f;\\n\\x1b, \"<&>";

/// Returns a complete stream with separators, quotes and control characters in the names of a
/// thread, a command and a function: 3 samples of `cpu-clock`, 2 of them on [`ODD_NAME`] and 1 on
/// `g`, and 1 of `faults` on `g`. `main` calls both functions.
pub fn odd_names() -> Vec<u8> {
    STREAM.replace(" | ", "\t").into_bytes()
}

/// The stream of [`waits`], with ` | ` between fields.
const WAITS: &str = "\
@nprof | 1.1 | run=0x2 | command=server
@event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | period=1000000
@event | id=2 | name=runnable | unit=ns | measure=wait-time | period=1000000
@event | id=3 | name=blocked | unit=ns | measure=wait-time | period=1000000
@event | id=4 | name=calls | unit=count | measure=calls | period=1
I | 1 | elf | - | /bin/server
I | 2 | kernel | - | [kernel]
T | 1 | 0 | 7 | 7 | 0 | worker
T | 2 | 1 | 7 | 8 | 0 | idle
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u,ra
F | 3 | 1 | 0x30 | u
F | 4 | 1 | 0x40 | u,ra
F | 5 | 2 | 0x50 | k
F | 6 | 1 | 0x60 | u,ra
F | 7 | 1 | 0x70 | u,ra
F | 8 | 2 | 0x80 | k
N | 1 | 0 | 1 | 2 | 3
N | 4 | 2 | 4 | 5
N | 6 | 0 | 6 | 7 | 8
S | 1 | 1 | 1 | 0 | 3 | 4000000 | 4
S | 2 | 1 | 1 | 0 | 2 | 2000000 | 2
S | 3 | 2 | 1 | 0 | 3 | 1000000 | 1 | lasted=1000000
S | 4 | 3 | 1 | 0 | 5 | 20000000 | 20 | lasted=20000000 | call=futex | on=futex:0x7f00 | state=S
S | 5 | 3 | 1 | 0 | 5 | 1000000 | 1 | lasted=300000 | call=futex | on=futex:0x7f08 | state=S
S | 6 | 3 | 2 | 0 | 8 | 28000000 | 28 | lasted=28000000 | call=epoll_wait | on=fd:5=a\\tb | state=S
S | 7 | 4 | 1 | 0 | 2 | 10 | 10
S | 8 | 4 | 1 | 0 | 3 | 5 | 5
X | 9 | 1 | times | - | wall=28000000 | cpu=6000000 | runnable=1000000 | blocked=21000000
X | 9 | 2 | times | - | wall=28000000 | cpu=0 | runnable=0 | blocked=28000000
U | 1 | main | -
U | 2 | handle | -
U | 3 | crc | -
U | 4 | lock | -
U | 5 | futex_do_wait | -
U | 6 | loop | -
U | 7 | epoll_wait | -
U | 8 | ep_poll | -
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
Y | 4 | named | 4,0,0,0
Y | 5 | named | 5,0,0,0
Y | 6 | named | 6,0,0,0
Y | 7 | named | 7,0,0,0
Y | 8 | named | 8,0,0,0
@end | reason=exit | samples=8 | records=29 | lost=0 | task_ns=6000000 | sampled_ns=6000000 | wall_ns=56000000 | runnable_ns=1000000 | blocked_ns=49000000
";

/// Returns a complete stream of two threads of 28 ms each. `worker` is in `main;handle`: 4 ms on a CPU
/// in `crc` and 2 ms in `handle` itself, 1 ms runnable in `crc`, and blocked in `lock;futex_do_wait`
/// for 20 ms on one futex and 1 ms on another. `idle` is blocked in `loop;epoll_wait;ep_poll` for
/// 28 ms. `handle` was called 10 times, and `crc` 5 times.
pub fn waits() -> Vec<u8> {
    WAITS.replace(" | ", "\t").into_bytes()
}

/// The stream of [`heap`], with ` | ` between fields.
const HEAP: &str = "\
@nprof | 1.1 | run=0x3 | command=parser
@event | id=1 | name=heap.alloc | unit=bytes | measure=bytes | period=4096
@event | id=2 | name=heap.free | unit=bytes | measure=bytes | period=4096
@event | id=3 | name=heap.live | unit=bytes | measure=bytes | period=4096
@event | id=4 | name=heap.peak | unit=bytes | measure=bytes | period=4096
@event | id=5 | name=fd.open | unit=count | period=1
@event | id=6 | name=fd.live | unit=count | period=1
I | 1 | elf | - | /bin/parser
T | 1 | 0 | 7 | 7 | 0 | parser
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u,ra
F | 3 | 1 | 0x30 | u,ra
F | 4 | 1 | 0x40 | u,ra
F | 5 | 1 | 0x50 | u,ra
N | 1 | 0 | 1 | 2
N | 3 | 1 | 3
N | 4 | 1 | 4
N | 5 | 1 | 5
S | 1 | 1 | 1 | - | 2 | 8192 | 2 | size=64
S | 2 | 1 | 1 | - | 3 | 1048576 | 256
S | 3 | 2 | 1 | - | 2 | 8192 | 2 | size=64 | age=20000
S | 4 | 1 | 1 | - | 4 | 65536 | 16
S | 5 | 1 | 1 | - | 4 | 4096 | 1 | size=32
S | 6 | 5 | 1 | - | 5 | 1 | 1 | on=fd:3=/var/log/a
S | 7 | 5 | 1 | - | 5 | 1 | 1 | on=fd:4=/var/log/b
S | 8 | 2 | 1 | - | 3 | 1048576 | 256 | age=2000000
S | 9 | 3 | 1 | - | 4 | 69632 | 17 | blocks=129
S | 9 | 4 | 1 | - | 3 | 1048576 | 256 | blocks=1
S | 9 | 4 | 1 | - | 4 | 69632 | 17 | blocks=129
S | 9 | 6 | 1 | - | 5 | 1 | 1 | on=fd:4=/var/log/b
U | 1 | main | -
U | 2 | parse | -
U | 3 | grow | -
U | 4 | cache | -
U | 5 | open_log | -
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
Y | 4 | named | 4,0,0,0
Y | 5 | named | 5,0,0,0
@end | reason=exit | samples=12 | records=29 | lost=0
";

/// Returns a complete stream of a program that allocates memory and opens files: `parse` 128 blocks of 64
/// bytes that live for 20 us, `grow` one of 1 MiB that lives for 2 ms, `cache` one of 64 KiB and 128 of 32 bytes
/// that stay. `open_log` opens two files and closes one.
pub fn heap() -> Vec<u8> {
    HEAP.replace(" | ", "\t").into_bytes()
}

/// The executable of a report.
#[derive(Debug)]
pub struct Report {
    name: &'static str,
    path: PathBuf,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("reports are UTF-8")
}

impl Report {
    /// The report with this name and path.
    pub fn new(name: &'static str, path: &str) -> Self {
        Self { name, path: path.into() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env_remove("COLUMNS").env_remove("LINES");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the tool with `input` as its standard input.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(args).spawn().expect("the tool can be started");
        // A tool that rejects its arguments exits without reading: the pipe may be closed.
        let _ = child.stdin.take().expect("it was piped").write_all(input);
        child.wait_with_output().expect("it exits")
    }

    /// Runs the tool and returns its standard output.
    ///
    /// # Panics
    ///
    /// If it does not exit with 0 or writes to standard error.
    #[track_caller]
    pub fn stdout(&self, args: &[&str], input: &[u8]) -> String {
        let output = self.run(args, input);
        assert_eq!(text(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        text(&output.stdout)
    }

    /// Runs the tool with arguments or input that it must reject, and returns its message.
    ///
    /// # Panics
    ///
    /// If it does not exit with 2, prints to standard output, or writes other than one line, which
    /// begins with its name, to standard error.
    #[track_caller]
    pub fn refusal(&self, args: &[&str], input: &[u8]) -> String {
        let output = self.run(args, input);
        let message = text(&output.stderr);
        assert_eq!(text(&output.stdout), "", "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.starts_with(&format!("{}: ", self.name)), "{args:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
        message
    }

    /// Checks the conventions that all reports share, with each of `formats` where the format
    /// matters.
    ///
    /// # Panics
    ///
    /// If the tool violates one.
    pub fn check_conventions(&self, formats: &[&str]) {
        self.check_closed_pipe();
        self.check_refusals();
        self.check_incomplete();
        self.check_hints();
        self.check_files(formats);
    }

    fn check_closed_pipe(&self) {
        let mut child = self.command(&["-"]).spawn().expect("the tool can be started");
        // The reader of the pipe exits before the report writes.
        drop(child.stdout.take());
        child.stdin.take().expect("it was piped").write_all(&odd_names()).expect("it reads");
        let output = child.wait_with_output().expect("it exits");
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }

    fn check_refusals(&self) {
        assert!(self.refusal(&[], b"hello\n").contains("standard input: "));
        for args in [
            &["--frobnicate"][..],
            &["--min-percent", "101"],
            &["--min-percent", "nan"],
            &["--confidence", "100"],
            &["--format", "svg"],
            &["--match", "function=("],
            &["--match", "colour=x"],
            &["--time", "2s..1s"],
            &["--every", "0s"],
            &["--min-percent"],
            &["/nonexistent/file"],
        ] {
            self.refusal(args, &odd_names());
        }
        // Writes to /dev/full fail with ENOSPC.
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        if let Ok(full) = full {
            let output = self.command(&["-h"]).stdout(full).output().expect("it exits");
            assert_eq!(output.status.code(), Some(2));
            assert!(text(&output.stderr).contains("No space left"));
        }
    }

    fn check_incomplete(&self) {
        let whole = odd_names();
        // Without the last bytes of the end record all samples are there, but the verdict is truncated.
        let cut = &whole[..whole.len() - 10];
        let output = self.run(&[], cut);
        assert!(text(&output.stdout).contains("incomplete input: standard input: truncated"));
        assert!(text(&output.stdout).contains("66.67"));
        assert!(text(&output.stderr).contains("truncated"));
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(self.run(&["--partial-ok"], cut).status.code(), Some(0));
    }

    fn check_hints(&self) {
        let stream = text(&odd_names());
        let lines = stream.lines().filter(|line| !line.starts_with(['U', 'Y']));
        // Without functions and locations the stream is as nprof-record writes it.
        let nameless: String = lines.map(|line| format!("{line}\n")).collect();
        let output = self.run(&[], nameless.as_bytes());
        assert!(text(&output.stderr).contains("nprof-symbolize"));
        assert!(text(&output.stdout).contains("prog+0x20"));
        assert_eq!(output.status.code(), Some(0));
        let empty = b"@nprof\t1.1\trun=0x1\n@end\tsamples=0\trecords=0\tlost=0\n";
        assert!(self.stdout(&[], empty).contains("no samples"));
    }

    fn check_files(&self, formats: &[&str]) {
        let directory = TempDir::new().expect("a scratch directory can be made");
        let file = |name: &str| directory.path().join(name);
        let string = |path: &Path| path.to_str().expect("a plain name").to_owned();
        let (stream, out) = (file("stream"), file("out"));
        std::fs::write(&stream, odd_names()).expect("a scratch file can be written");
        for format in formats {
            let args = ["--format", format];
            let first = self.run(&args, &odd_names()).stdout;
            assert_eq!(first, self.run(&args, &odd_names()).stdout, "{format}");
            // The file has the same bytes as standard output.
            self.run(&[&args[..], &["-o", &string(&out)]].concat(), &odd_names());
            assert_eq!(std::fs::read(&out).expect("it was written"), first, "{format}");
        }
        let message = self.refusal(&[&string(&stream), "-o", &string(&stream)], b"");
        assert!(message.contains("is also an input"), "{message}");
        assert_eq!(std::fs::read(&stream).expect("it is there"), odd_names());
    }
}

/// Runs a Python program with `input` as its standard input and returns its output. None, after a
/// message, if python3 is not installed.
///
/// # Panics
///
/// If the program fails.
pub fn python(program: &str, input: &[u8]) -> Option<String> {
    if !super::have(&["python3"]) {
        return None;
    }
    let mut child = Command::new("python3")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 can be started");
    child.stdin.take().expect("it was piped").write_all(input).expect("it reads");
    let output = child.wait_with_output().expect("it exits");
    assert!(output.status.success(), "{program}");
    Some(text(&output.stdout))
}
