//! Experiments of the papers nprof comes from, on programs written as they print them, recorded
//! here and now. What is expected is what the programs do; what the papers measured is held
//! against it, each within the margin of error of its samples.

use nprof_format::margin::Confidence;
use nprof_tests::{Row, Shell, compile, have, repository, rows};

/// A shell with a recording `x.nprof` of a program of tests/experiments/programs. Without optimization,
/// as the programs call functions for the sake of calling.
fn recorded(program: &str) -> Shell {
    let shell = Shell::new();
    let source =
        repository().join("tests/experiments/programs").join(program).with_extension("cpp");
    compile(&[&source], &["-O0"], &shell.path("prog"));
    let run = shell.run("nprof-record -q -F 3989 -o - -- ./prog | nprof-symbolize > x.nprof");
    assert_eq!(run.stages, [0, 0], "{run:?}");
    shell
}

/// A part of a whole, in samples.
#[derive(Clone, Copy, Debug)]
struct Part {
    part: f64,
    whole: f64,
}

impl Part {
    fn share(self) -> f64 {
        self.part / self.whole
    }

    /// Half the width of the interval that holds the true share, but for 1 run in 1000.
    fn margin(self) -> f64 {
        let confidence = Confidence::from_percent(99.9).expect("a level");
        confidence.margin(self.part as u64, self.whole as u64)
    }
}

/// Whether a share is what it should be. Programs drift while they run on a machine that others use
/// as well, which is no matter of samples: hence three attempts.
#[track_caller]
fn within_margins(what: &str, wanted: &[f64], measure: impl Fn() -> Vec<Part>) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let parts = measure();
        assert_eq!(parts.len(), wanted.len());
        let is_close =
            |(part, wanted): (&Part, &f64)| (part.share() - wanted).abs() <= part.margin();
        if parts.iter().zip(wanted).all(is_close) {
            return;
        }
        seen.push(parts);
    }
    panic!("{what}: {wanted:?} expected, seen {seen:?}");
}

fn sum(rows: &[Row], column: &str, of: impl Fn(&Row) -> bool) -> f64 {
    rows.iter().filter(|row| of(row)).map(|row| row.number(column)).sum()
}

/// csprof, Figure 1: `c` takes as long under `a` as under `b`.
#[test]
fn what_a_function_costs_is_told_by_caller() {
    within_margins("c under a and under b", &[0.5, 0.5], || {
        let shell = recorded("contexts");
        let paths = rows(&shell.run("nprof-paths --format tsv x.nprof").quiet());
        let under = |call: &str| sum(&paths, "samples", |row| row.text("path").contains(call));
        let (a, b) = (under("a(void (*)(int));c(int)"), under("b(void (*)(int));c(int)"));
        assert!(a + b > 500.0, "{paths:?}");
        // The graph says the same.
        let graph = shell.run("nprof-paths --view graph --format tsv x.nprof").quiet();
        let callers = callers(&rows(&graph), "c(int)");
        assert_eq!(of(&callers, "a(void (*)(int))", "total_samples"), a);
        assert_eq!(of(&callers, "b(void (*)(int))", "total_samples"), b);
        [a, b].map(|part| Part { part, whole: a + b }).to_vec()
    });
}

/// The same program under gprof, which parts what `c` took by how often it was called.
#[test]
fn gprof_says_one_third_and_two_thirds() {
    if !have(&["gprof"]) {
        return;
    }
    let shell = Shell::new();
    let source = repository().join("tests/experiments/programs/contexts.cpp");
    compile(&[&source], &["-O0", "-fno-omit-frame-pointer", "-pg"], &shell.path("prog"));
    let said = shell.run("./prog && gprof -b -q ./prog gmon.out").quiet();
    let self_seconds = |calls: &str| -> f64 {
        let line = said.lines().find(|line| line.contains(calls)).expect(&said);
        let first = line.split_whitespace().next().and_then(|word| word.parse().ok());
        first.expect(&said)
    };
    // Callers of c, with their calls of all its calls: a made 2 of 6.
    let (a, b) = (self_seconds("2/6"), self_seconds("4/6"));
    assert!(a > 0.0 && (a / (a + b) - 1.0 / 3.0).abs() < 0.05, "{said}");
}

/// The lines of the callers of a function.
fn callers(graph: &[Row], function: &str) -> Vec<Row> {
    let is_entry = |row: &&Row| row.text("kind") == "function" && row.text("function") == function;
    let index =
        graph.iter().find(is_entry).expect("the function is there").text("index").to_owned();
    let is_caller = |row: &&Row| row.text("kind") == "caller" && row.text("index") == index;
    graph.iter().filter(is_caller).cloned().collect()
}

/// The number of a caller.
#[track_caller]
fn of(callers: &[Row], caller: &str, column: &str) -> f64 {
    let found = callers.iter().find(|row| row.text("function") == caller);
    found.unwrap_or_else(|| panic!("{caller} calls it: {callers:?}")).number(column)
}

/// uProfiler, section 8.4.3: G works 1 : 3 for D and E, and what it calls 2 : 1. Figure 8.16(a) has
/// 25.3 % and 74.7 %, 68.8 % and 31.3 %, of 87 and 32 samples.
#[test]
fn samples_are_propagated_along_the_stacks_they_were_seen_on() {
    let wanted = [0.25, 0.75, 2.0 / 3.0, 1.0 / 3.0];
    let paper = [(0.253, 87.0), (0.747, 87.0), (0.688, 32.0), (0.313, 32.0)];
    for (wanted, (share, whole)) in wanted.into_iter().zip(paper) {
        let part = Part { part: share * whole, whole };
        assert!((share - wanted).abs() <= part.margin(), "{share} {wanted}");
    }
    within_margins("self and descendants of G under D and E", &wanted, || {
        let shell = recorded("propagation");
        let graph = shell.run("nprof-paths --view graph --format tsv x.nprof").quiet();
        let callers = callers(&rows(&graph), "G(int)");
        assert_eq!(callers.len(), 2, "{callers:?}");
        let own = ["D()", "E()"].map(|caller| of(&callers, caller, "self_samples"));
        let total = ["D()", "E()"].map(|caller| of(&callers, caller, "total_samples"));
        let below = [total[0] - own[0], total[1] - own[1]];
        let parts = |[a, b]: [f64; 2]| [a, b].map(|part| Part { part, whole: a + b });
        assert!(own[0] + own[1] > 87.0 && below[0] + below[1] > 32.0, "{callers:?}");
        [parts(own), parts(below)].concat()
    });
}

/// uProfiler, section 8.4.4 and Figure 8.17: three cycles, each entered by one function and with
/// one that works below it, 1 : 2 : 3. gprof finds one cycle of four functions.
#[test]
fn cycles_are_those_of_single_stacks() {
    let q = "q(void (*)())";
    within_margins("x, y and z", &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0], || {
        let shell = recorded("cycles");
        let graph = rows(&shell.run("nprof-paths --view graph --format tsv x.nprof").quiet());
        let is_cycle = |row: &&Row| {
            row.text("kind") == "function" && row.text("function").starts_with("cycle ")
        };
        // What else is in a cycle is a sample or two, between the instructions of a call.
        let all: f64 = graph.iter().filter(is_cycle).map(|row| row.number("total_samples")).sum();
        let works: Vec<f64> = [("a()", "d()", "x()"), ("b()", "e()", "y()"), ("c()", "f()", "z()")]
            .into_iter()
            .map(|(entered_by, member, worker)| {
                let cycle = format!("cycle {q} -> {member} -> {q}");
                let entered = callers(&graph, &cycle);
                assert_eq!(entered.len(), 1, "{entered:?}");
                assert_eq!(entered[0].text("function"), entered_by);
                let works = callers(&graph, worker);
                let below = of(&works, &cycle, "total_samples");
                assert!(entered[0].number("total_samples") >= below, "{works:?}");
                below
            })
            .collect();
        let whole: f64 = works.iter().sum();
        assert!(whole > 500.0 && whole > 0.98 * all, "{graph:?}");
        works.into_iter().map(|part| Part { part, whole }).collect()
    });
}
