//! uProfiler, section 8.4.4 and Figure 8.17: three call cycles, each entered by one function and
//! with one function that works below it, 1 : 2 : 3. gprof merges them into one cycle of four
//! functions.

use nprof_tests::Row;

use crate::support::{Part, assert_shares, call_graph, caller_number, callers, record_program};

#[test]
fn separates_cycles_that_share_a_function() {
    let q = "q(void (*)())";
    assert_shares("x, y and z", &[1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0], || {
        let graph = call_graph(&record_program("cycles"));
        let is_cycle = |row: &&Row| {
            row.text("kind") == "function" && row.text("function").starts_with("cycle ")
        };
        let all: f64 = graph.iter().filter(is_cycle).map(|row| row.number("total_samples")).sum();
        let works: Vec<f64> = [("a()", "d()", "x()"), ("b()", "e()", "y()"), ("c()", "f()", "z()")]
            .into_iter()
            .map(|(entered_by, member, worker)| {
                let cycle = format!("cycle {q} -> {member} -> {q}");
                let entered = callers(&graph, &cycle);
                assert_eq!(entered.len(), 1, "{entered:?}");
                assert_eq!(entered[0].text("function"), entered_by);
                let works = callers(&graph, worker);
                let below = caller_number(&works, &cycle, "total_samples");
                assert!(entered[0].number("total_samples") >= below, "{works:?}");
                below
            })
            .collect();
        let whole: f64 = works.iter().sum();
        // A few samples hit the instructions of a call between two functions of a cycle.
        assert!(whole > 500.0 && whole > 0.98 * all, "{graph:?}");
        works.into_iter().map(|part| Part { part, whole }).collect()
    });
}
