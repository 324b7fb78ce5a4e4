//! Parses times in options, and formats times in messages.

use std::time::Duration;

/// The units of time in options, and their nanoseconds.
const UNITS: [(&str, u64); 6] = [
    // Units that end in `s` come before `s`: the first suffix that matches is used.
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns the number and its unit in nanoseconds of a time with a unit, such as `1.5ms`. None if
/// the unit is unknown or missing, or the number is malformed.
pub fn number_and_unit(text: &str) -> Option<(f64, u64)> {
    let (number, ns) = UNITS.iter().find_map(|&(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    Some((decimal(number)?, ns))
}

/// Returns a number of digits and a point, without sign and exponent. None if it is malformed.
pub fn decimal(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.parse().ok().filter(|_| is_number)
}

/// Returns a time as a person reads it in a sentence: `1.5 ms`, `250 ms`, `2.00 s`.
pub fn rounded(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        0..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Parses a time such as `2s`, `0.5s`, `100ms`, `10us`, `1m`, `1h`; a number alone is seconds.
///
/// # Errors
///
/// The expected form, if the text is not a time or the time is longer than 292 years (2^63 ns).
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = || Some((decimal(text)?, 1_000_000_000));
    let time = number_and_unit(text).or_else(seconds);
    // 0.1 has no exact binary representation: without rounding, 0.1s could be 1 ns too short.
    let ns = time.map(|(number, unit_ns)| (number * unit_ns as f64).round());
    match ns.filter(|&ns| ns <= i64::MAX as f64) {
        Some(ns) => Ok(Duration::from_nanos(ns as u64)),
        None => Err("expected a time such as 2s, 0.5s, 100ms, 10us, 5m or 1h".to_owned()),
    }
}

/// Parses a time like [`duration`], and refuses 0.
///
/// # Errors
///
/// See [`duration`]; also for 0.
pub fn interval(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() { Err("expected a time longer than 0".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_parsed_with_its_unit() {
        for (text, ns) in [
            ("2s", 2_000_000_000),
            ("0.1s", 100_000_000),
            ("1.5", 1_500_000_000),
            ("10ms", 10_000_000),
            ("7us", 7_000),
            ("3ns", 3),
            ("1m", 60_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for wrong in
            ["", "s", "1d", "-1s", "1e3s", "inf", "nan", "1 s", "1..2", "1e400", "99999999999999s"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(interval("0ms").is_err());
    }

    #[test]
    fn number_without_unit_is_refused() {
        assert_eq!(number_and_unit("1.5ms"), Some((1.5, 1_000_000)));
        for wrong in ["2", "ms", "-2s", "2d", "1e9s"] {
            assert_eq!(number_and_unit(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rounded_time_has_at_least_two_digits() {
        let rounded = |ns| rounded(Duration::from_nanos(ns));
        assert_eq!(rounded(1_500_000), "1.5 ms");
        assert_eq!(rounded(100_000_000), "100 ms");
        assert_eq!(rounded(2_345_000_000), "2.35 s");
    }
}
