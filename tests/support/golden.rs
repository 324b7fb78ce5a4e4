//! Golden files: complete expected outputs in tests/golden.

use super::repository;

/// Checks that `actual` equals the file tests/golden/NAME. If the variable `NPROF_BLESS` is 1, writes
/// the file instead.
///
/// # Panics
///
/// If they differ, with the first line that does, or if the file cannot be read or written.
#[track_caller]
pub fn assert_golden(name: &str, actual: &str) {
    let path = repository().join("tests/golden").join(name);
    if std::env::var_os("NPROF_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, actual).expect("a golden file can be written");
        return;
    }
    // A missing file is reported like an empty one: the message explains how to create it.
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if actual == expected {
        return;
    }
    let line = first_difference(&expected, actual);
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end of the output)").to_owned();
    panic!(
        "{}, line {}:\n  expected: {}\n  actual:   {}\nIf the new output is right: \
         NPROF_BLESS=1 cargo test -p nprof-tests, then review git diff tests/golden",
        path.display(),
        line + 1,
        at(&expected),
        at(actual)
    );
}

/// Returns the index of the first line in which two texts differ.
fn first_difference(expected: &str, actual: &str) -> usize {
    let same =
        expected.lines().zip(actual.lines()).take_while(|(expected, actual)| expected == actual);
    same.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_difference_is_first_unequal_or_missing_line() {
        assert_eq!(first_difference("a\nb\nc\n", "a\nx\nc\n"), 1);
        assert_eq!(first_difference("a\nb\n", "a\n"), 1);
    }
}
