//! Results of other programs that the tests compare with: `reference.tsv`, written by
//! `reference.py`. Tests only.

use std::collections::BTreeMap;

/// A line of the file: inputs and results by name.
#[derive(Debug)]
pub(super) struct ReferenceCase(BTreeMap<&'static str, Vec<f64>>);

impl ReferenceCase {
    /// Returns the numbers of a field.
    pub(super) fn list(&self, field: &str) -> Vec<f64> {
        self.0.get(field).unwrap_or_else(|| panic!("no {field} in {self:?}")).clone()
    }

    /// Returns exactly `N` numbers of a field.
    pub(super) fn numbers<const N: usize>(&self, field: &str) -> [f64; N] {
        self.list(field).try_into().expect("as many numbers as the test takes")
    }
}

/// Returns the cases of one statistic.
pub(super) fn reference_cases(kind: &str) -> Vec<ReferenceCase> {
    let lines = include_str!("reference.tsv").lines().filter(|line| !line.starts_with('#'));
    let of_kind = lines.filter_map(|line| line.strip_prefix(kind)?.strip_prefix('\t'));
    let cases: Vec<ReferenceCase> = of_kind.map(parse_case).collect();
    assert!(!cases.is_empty(), "no reference cases of {kind}");
    cases
}

fn parse_case(line: &'static str) -> ReferenceCase {
    ReferenceCase(line.split('\t').map(parse_field).collect())
}

fn parse_field(field: &'static str) -> (&'static str, Vec<f64>) {
    let (name, numbers) = field.split_once('=').expect("name=numbers");
    let numbers = numbers.split(' ').filter(|number| !number.is_empty());
    (name, numbers.map(|number| number.parse().expect("a number")).collect())
}

/// Asserts that a value equals the reference to eight digits.
#[track_caller]
pub(super) fn assert_close(value: f64, reference: f64) {
    // References near 0 are compared absolutely: their relative error has no meaning.
    let scale = reference.abs().max(1e-3);
    assert!((value - reference).abs() <= 1e-8 * scale, "{value} is not {reference}");
}
