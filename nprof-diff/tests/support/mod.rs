//! Creates streams and runs nprof-diff on them.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The facts of a run; [`Run::text`] returns its stream.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: u64,
    pub(crate) event: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) measure: &'static str,
    pub(crate) hertz: u64,
    pub(crate) host: &'static str,
    pub(crate) symbolized: bool,
    /// The functions that `main` of the image `demo` calls, with their samples.
    pub(crate) functions: Vec<(String, u64)>,
    /// The weight of a sample of each function; empty for the period of the rate.
    pub(crate) weights: Vec<u64>,
    /// The samples of `main` with unknown callers.
    pub(crate) truncated: u64,
}

impl Run {
    pub(crate) fn new(id: u64, functions: &[(&str, u64)]) -> Self {
        let functions = functions.iter().map(|(name, samples)| ((*name).to_owned(), *samples));
        Self {
            id,
            event: "cpu-clock",
            unit: "ns",
            measure: "cpu-time",
            hertz: 1000,
            host: "vm1",
            symbolized: true,
            functions: functions.collect(),
            weights: Vec::new(),
            truncated: 0,
        }
    }

    /// Returns the stream. No two runs have an address in common.
    pub(crate) fn text(&self) -> String {
        let Run { id, event, unit, measure, hertz, host, .. } = self;
        let mut text = format!(
            "@nprof\t1.1\trun={id:#x}\tutc=1795254245000000000\thost={host}\tos=Linux 6.18\tcommand=./demo 7\n\
             @event\tid=1\tname={event}\tunit={unit}\tmeasure={measure}\tfrequency={hertz}\tscope=user\tunwind=dwarf\n\
             I\t1\telf\t-\t/opt/demo\n"
        );
        // @event and image; names and locations do not count as records.
        let mut records = 2;
        let names = std::iter::once("main").chain(self.functions.iter().map(|(name, _)| &name[..]));
        for (frame, name) in (1..).zip(names) {
            text.push_str(&format!("F\t{frame}\t1\t{:#x}\tu\n", id * 0x1000 + frame * 16));
            if self.symbolized {
                text.push_str(&format!(
                    "U\t{frame}\t{name}\t-\nY\t{frame}\tnamed\t{frame},0,0,0\n"
                ));
            }
            // All functions are called from the first node, main.
            let parent = u64::from(frame > 1);
            text.push_str(&format!("N\t{frame}\t{parent}\t{frame}\n"));
            records += 2;
        }
        let mut samples = 0;
        for (index, (_, count)) in self.functions.iter().enumerate() {
            let node = index + 2;
            let period = 1_000_000_000 / hertz;
            let weight = count * self.weights.get(index).unwrap_or(&period);
            text.push_str(&format!("S\t5\t1\t0\t0\t{node}\t{weight}\t{count}\n"));
            samples += 1;
        }
        if self.truncated > 0 {
            let weight = self.truncated * (1_000_000_000 / hertz);
            text.push_str(&format!(
                "F\t1000\t0\t0x0\tu,stack-truncated\nN\t1000\t0\t1000\t1\n\
                 S\t6\t1\t0\t0\t1001\t{weight}\t{}\n",
                self.truncated
            ));
            records += 2;
            samples += 1;
        }
        records += samples;
        text.push_str(&format!(
            "@end\treason=exit\tsamples={samples}\trecords={records}\tlost=0\n"
        ));
        text
    }

    pub(crate) fn save(&self, directory: &Path, name: &str) {
        std::fs::write(directory.join(name), self.text()).expect("a stream is written");
    }
}

/// The output and exit status of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs nprof-diff in a directory, with arguments separated by spaces.
pub(crate) fn diff(directory: &Path, line: &str) -> Ended {
    diff_of_stdin(directory, line, "")
}

pub(crate) fn diff_of_stdin(directory: &Path, line: &str, stdin: &str) -> Ended {
    let mut child = command(directory, line).spawn().expect("nprof-diff starts");
    // A program that does not read its input may have exited already.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().expect("nprof-diff ends");
    Ended {
        status: status.code().expect("no signal"),
        stdout: String::from_utf8(stdout).expect("text"),
        stderr: String::from_utf8(stderr).expect("text"),
    }
}

pub(crate) fn command(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nprof-diff"));
    command.args(line.split_whitespace().map(OsString::from)).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
