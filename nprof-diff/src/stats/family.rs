//! Many comparisons: the probability of any false alarm, by the step-down procedure of S. Holm
//! (Scandinavian Journal of Statistics 6:65-70, 1979) with weights.
//!
//! A weight decides which part of the level a comparison gets (C. R. Genovese, K. Roeder and
//! L. Wasserman, Biometrika 93:509-524, 2006). Weights must not depend on the differences.

/// A p-value with the weight of its comparison, which is positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WeightedP {
    pub(crate) p: f64,
    pub(crate) weight: f64,
}

/// Returns the adjusted p of each comparison: the smallest probability of any false alarm in the
/// family at which it is significant.
pub(crate) fn holm(family: &[WeightedP]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..family.len()).collect();
    let ratio = |index: usize| family[index].p / family[index].weight;
    order.sort_by(|&a, &b| ratio(a).total_cmp(&ratio(b)));
    // The sums from the end: subtracting from the whole would leave rounding errors in the last
    // ones.
    let mut left = vec![0.0; family.len()];
    let mut sum = 0.0;
    for (position, &index) in order.iter().enumerate().rev() {
        sum += family[index].weight;
        left[position] = sum;
    }
    let mut adjusted = vec![1.0; family.len()];
    let mut largest = 0.0_f64;
    for (position, &index) in order.iter().enumerate() {
        // A comparison can be significant only if those before it are.
        largest = largest.max((ratio(index) * left[position]).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::reference::{assert_close, reference_cases};
    use proptest::prelude::*;

    fn family(p: &[f64], weights: &[f64]) -> Vec<WeightedP> {
        p.iter().zip(weights).map(|(&p, &weight)| WeightedP { p, weight }).collect()
    }

    #[test]
    fn equal_weights_match_statsmodels() {
        for case in reference_cases("holm") {
            let p = case.list("p");
            let adjusted = holm(&family(&p, &vec![2.0; p.len()]));
            let expected = case.list("out");
            assert_eq!(adjusted.len(), expected.len());
            for (adjusted, expected) in adjusted.into_iter().zip(expected) {
                assert_close(adjusted, expected);
            }
        }
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn weight_is_the_part_of_the_level() {
        // The first has 9/10 of the level: 0.04 / 0.9. The second has the whole level then.
        let adjusted = holm(&family(&[0.04, 0.045], &[9.0, 1.0]));
        assert_close(adjusted[0], 0.04 / 0.9);
        assert_close(adjusted[1], 0.045);
    }

    proptest! {
        #[test]
        fn adjusted_p_is_never_below_p(
            rows in proptest::collection::vec((0.0..=1.0, 0.01..100.0), 0..50)
        ) {
            let rows: Vec<WeightedP> =
                rows.into_iter().map(|(p, weight)| WeightedP { p, weight }).collect();
            for (row, adjusted) in rows.iter().zip(holm(&rows)) {
                prop_assert!(row.p <= adjusted + 1e-12 && adjusted <= 1.0);
            }
        }
    }
}
