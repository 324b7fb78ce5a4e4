//! Figures of other programs that the statistics are held against: `reference.tsv`, which
//! `reference.py` has written. Tests only.

use std::collections::BTreeMap;

/// A line of the file: what went in, and what came out.
#[derive(Debug)]
pub(super) struct ReferenceCase(BTreeMap<&'static str, Vec<f64>>);

impl ReferenceCase {
    /// The numbers of a field.
    pub(super) fn list(&self, field: &str) -> Vec<f64> {
        self.0.get(field).unwrap_or_else(|| panic!("no {field} in {self:?}")).clone()
    }

    /// So many numbers of a field.
    pub(super) fn numbers<const N: usize>(&self, field: &str) -> [f64; N] {
        self.list(field).try_into().expect("as many numbers as the test takes")
    }
}

/// The figures of a kind.
pub(super) fn reference_cases(kind: &str) -> Vec<ReferenceCase> {
    let lines = include_str!("reference.tsv").lines().filter(|line| !line.starts_with('#'));
    let of_kind = lines.filter_map(|line| line.strip_prefix(kind)?.strip_prefix('\t'));
    let reference_cases: Vec<ReferenceCase> = of_kind.map(figure).collect();
    assert!(!reference_cases.is_empty(), "no figures of {kind}");
    reference_cases
}

fn figure(line: &'static str) -> ReferenceCase {
    let field = |field: &'static str| {
        let (name, numbers) = field.split_once('=').expect("name=numbers");
        let numbers = numbers.split(' ').filter(|number| !number.is_empty());
        (name, numbers.map(|number| number.parse().expect("a number")).collect())
    };
    ReferenceCase(line.split('\t').map(field).collect())
}

/// Checks that a value is that of the figure, to eight digits.
#[track_caller]
pub(super) fn assert_close(value: f64, reference: f64) {
    let scale = reference.abs().max(1e-3);
    assert!((value - reference).abs() <= 1e-8 * scale, "{value} is not {reference}");
}
