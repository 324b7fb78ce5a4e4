//! Many comparisons: the false discovery rate of Y. Benjamini and Y. Hochberg (JRSS B 57:289-300,
//! 1995).

/// Returns the q-value of each p-value: the smallest false discovery rate at which its comparison
/// is a discovery.
pub(crate) fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut q = vec![1.0; p.len()];
    let mut smallest = 1.0_f64;
    // From the largest p-value down: a q-value is at most that of any larger p-value (step-up).
    for (rank, &index) in order.iter().enumerate().rev() {
        smallest = smallest.min(p[index] * (p.len() as f64 / (rank + 1) as f64));
        q[index] = smallest;
    }
    q
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};
    use proptest::prelude::*;

    #[test]
    fn q_values_match_scipy() {
        for case in reference_cases("benjamini-hochberg") {
            let q = benjamini_hochberg(&case.list("p"));
            let expected = case.list("out");
            assert_eq!(q.len(), expected.len());
            for (q, expected) in q.into_iter().zip(expected) {
                assert_close(q, expected);
            }
        }
        assert_eq!(benjamini_hochberg(&[]), [0.0; 0]);
    }

    proptest! {
        #[test]
        fn q_is_never_below_p(p in proptest::collection::vec(0.0..=1.0, 0..50)) {
            let q = benjamini_hochberg(&p);
            for (p, q) in p.iter().zip(&q) {
                prop_assert!(p <= q && *q <= 1.0);
            }
        }
    }
}
