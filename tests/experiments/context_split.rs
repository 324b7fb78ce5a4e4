//! csprof, Figure 1: `c` takes as long under `a` as under `b`, in half as many calls.

use nprof_tests::{Row, Shell, compile, have, repository, rows};

use crate::support::{Part, assert_shares, call_graph, caller_number, callers, record_program};

/// Adds a column of the rows that satisfy a condition.
fn sum(rows: &[Row], column: &str, condition: impl Fn(&Row) -> bool) -> f64 {
    rows.iter().filter(|row| condition(row)).map(|row| row.number(column)).sum()
}

#[test]
fn splits_cost_of_function_evenly_between_callers() {
    assert_shares("c under a and under b", &[0.5, 0.5], || {
        let shell = record_program("contexts");
        let paths = rows(&shell.run("nprof-paths --format tsv x.nprof").quiet());
        let under = |call: &str| sum(&paths, "samples", |row| row.text("path").contains(call));
        let (a, b) = (under("a(void (*)(int));c(int)"), under("b(void (*)(int));c(int)"));
        assert!(a + b > 500.0, "{paths:?}");
        // The call graph is computed separately from the paths and has to give the same sums.
        let callers = callers(&call_graph(&shell), "c(int)");
        assert_eq!(caller_number(&callers, "a(void (*)(int))", "total_samples"), a);
        assert_eq!(caller_number(&callers, "b(void (*)(int))", "total_samples"), b);
        [a, b].map(|part| Part { part, whole: a + b }).to_vec()
    });
}

/// Checks the control: gprof divides the time of `c` by the number of calls.
#[test]
fn gprof_splits_cost_by_number_of_calls() {
    if !have(&["gprof"]) {
        return;
    }
    let shell = Shell::new();
    let source = repository().join("tests/experiments/programs/contexts.cpp");
    compile(&[&source], &["-O0", "-fno-omit-frame-pointer", "-pg"], &shell.path("prog"));
    let report = shell.run("./prog && gprof -b -q ./prog gmon.out").quiet();
    // The seconds of a caller's row: those of `c` itself, and those of the functions it calls.
    let seconds = |calls: &str| -> f64 {
        let line = report.lines().find(|line| line.contains(calls)).expect(&report);
        let columns = line.split_whitespace().take(2);
        columns.map(|column| column.parse::<f64>().expect(&report)).sum()
    };
    // gprof prints each caller of c with its calls of all calls: a makes 2 of 6, b makes 4 of 6.
    let (a, b) = (seconds("2/6"), seconds("4/6"));
    // It rounds each of the four numbers to hundredths of a second.
    assert!(a > 0.0 && (2.0 * a - b).abs() < 0.031, "{report}");
}
