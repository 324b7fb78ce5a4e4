//! Recordings of the papers' programs, call graph rows, and comparison within margins of error.

use nprof_report::margin::Confidence;
use nprof_report::profile::Sum;
use nprof_tests::{Row, Shell, compile, repository};

/// Compiles and records a program of tests/experiments/programs; returns a shell with the
/// recording `x.nprof`.
pub(crate) fn record_program(program: &str) -> Shell {
    let shell = Shell::new();
    let programs = repository().join("tests/experiments/programs");
    // The papers' results need the calls as written: -O2 inlines these small functions.
    compile(&[&programs.join(program).with_extension("cpp")], &["-O0"], &shell.path("prog"));
    let run = shell.run("nprof-record -q -F 3989 -o - -- ./prog | nprof-symbolize > x.nprof");
    assert_eq!(run.stages, [0, 0], "{run:?}");
    shell
}

/// A share of samples: `part` of `whole`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) part: f64,
    pub(crate) whole: f64,
}

impl Part {
    /// Returns the share as a fraction.
    pub(crate) fn share(self) -> f64 {
        self.part / self.whole
    }

    /// Returns the distance to the farther end of the interval that contains the true share in 999 of 1,000 runs.
    pub(crate) fn margin(self) -> f64 {
        let confidence = Confidence::from_percent(99.9).expect("99.9 is a valid level");
        let sum = |samples: f64| Sum::of(samples as u64, samples as u64);
        confidence.margin(sum(self.part), sum(self.whole))
    }
}

/// Checks that measured shares equal the expected ones within their margins, in one of three
/// attempts: on a shared machine a program's own speed drifts during a run, which the margin of
/// error does not cover.
///
/// # Panics
///
/// If no attempt is within the margins.
#[track_caller]
pub(crate) fn assert_shares(name: &str, expected: &[f64], measure: impl Fn() -> Vec<Part>) {
    let mut attempts = Vec::new();
    for _ in 0..3 {
        let parts = measure();
        assert_eq!(parts.len(), expected.len());
        let is_close =
            |(part, expected): (&Part, &f64)| (part.share() - expected).abs() <= part.margin();
        if parts.iter().zip(expected).all(is_close) {
            return;
        }
        attempts.push(parts);
    }
    panic!("{name}: {expected:?} expected, measured {attempts:?}");
}

/// Returns the call graph of the recording.
pub(crate) fn call_graph(shell: &Shell) -> Vec<Row> {
    nprof_tests::rows(&shell.run("nprof-paths --view graph --format tsv x.nprof").quiet())
}

/// Returns the rows of a call graph with the callers of a function.
pub(crate) fn callers(graph: &[Row], function: &str) -> Vec<Row> {
    let is_entry = |row: &&Row| row.text("kind") == "function" && row.text("function") == function;
    let entry = graph.iter().find(is_entry).expect("the function is in the graph");
    let index = entry.text("index");
    let is_caller = |row: &&Row| row.text("kind") == "caller" && row.text("index") == index;
    graph.iter().filter(is_caller).cloned().collect()
}

/// Returns the number in a column of one caller.
#[track_caller]
pub(crate) fn caller_number(callers: &[Row], caller: &str, column: &str) -> f64 {
    let found = callers.iter().find(|row| row.text("function") == caller);
    found.unwrap_or_else(|| panic!("{caller} is not among the callers {callers:?}")).number(column)
}
