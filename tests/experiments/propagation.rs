//! uProfiler, section 8.4.3 and Figure 8.16(a): samples of a function and of its callees are
//! attributed to the callers on their stacks.

use crate::support::{Part, assert_shares, call_graph, caller_number, callers, record_program};

/// The shares that the program is written for: G works 1 : 3 for D and E, its callees 2 : 1.
const EXPECTED: [f64; 4] = [0.25, 0.75, 2.0 / 3.0, 1.0 / 3.0];

/// Figure 8.16(a): share and number of samples.
const PAPER: [(f64, f64); 4] = [(0.253, 87.0), (0.747, 87.0), (0.688, 32.0), (0.313, 32.0)];

#[test]
fn paper_shares_are_within_margin() {
    for (expected, (share, whole)) in EXPECTED.into_iter().zip(PAPER) {
        let part = Part { part: share * whole, whole };
        assert!((share - expected).abs() <= part.margin(), "{share} {expected}");
    }
}

#[test]
fn attributes_samples_to_callers_on_stack() {
    assert_shares("self and descendants of G under D and E", &EXPECTED, || {
        let shell = record_program("propagation");
        let callers = callers(&call_graph(&shell), "G(int)");
        assert_eq!(callers.len(), 2, "{callers:?}");
        let number = |column| ["D()", "E()"].map(|caller| caller_number(&callers, caller, column));
        let (own, total) = (number("self_samples"), number("total_samples"));
        let below = [total[0] - own[0], total[1] - own[1]];
        let parts = |[a, b]: [f64; 2]| [a, b].map(|part| Part { part, whole: a + b });
        // With at least the paper's number of samples, the margins are at most the paper's.
        assert!(own[0] + own[1] > 87.0 && below[0] + below[1] > 32.0, "{callers:?}");
        [parts(own), parts(below)].concat()
    });
}
