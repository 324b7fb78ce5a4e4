//! Times as a user writes them in options.

use std::time::Duration;

/// The units a time can be given in, and how many nanoseconds they have.
const UNITS: [(&str, u64); 5] = [
    // What ends in `s` as well stands before it.
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
];

/// Returns the number and its unit in nanoseconds of a time with a unit, such as `1.5ms`. None if
/// the unit is unknown or missing, or the number is none.
pub fn number_and_unit(text: &str) -> Option<(f64, u64)> {
    let (number, ns) = UNITS.iter().find_map(|&(unit, ns)| Some((text.strip_suffix(unit)?, ns)))?;
    Some((decimal(number)?, ns))
}

/// Returns a number of digits and a point, without sign and exponent.
fn decimal(text: &str) -> Option<f64> {
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

/// Reads a time such as `2s`, `0.5s`, `100ms`, `10us`, `1m`; a number alone is seconds.
///
/// # Errors
///
/// What a time looks like, for what is none, or is longer than 292 years.
pub fn duration(text: &str) -> Result<Duration, String> {
    let seconds = || Some((decimal(text)?, 1_000_000_000));
    let time = number_and_unit(text).or_else(seconds);
    // Rounded, so that 0.1s is 100 ms and not a nanosecond less.
    let ns = time.map(|(number, unit_ns)| (number * unit_ns as f64).round());
    match ns.filter(|&ns| ns <= i64::MAX as f64) {
        Some(ns) => Ok(Duration::from_nanos(ns as u64)),
        None => Err("expected a time such as 2s, 0.5s, 100ms or 10us".to_owned()),
    }
}

/// As [`duration`], for a time that must be longer than nothing.
///
/// # Errors
///
/// As there, and for 0.
pub fn interval(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() { Err("expected a time longer than 0".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [
            ("2s", 2_000_000_000),
            ("0.1s", 100_000_000),
            ("1.5", 1_500_000_000),
            ("10ms", 10_000_000),
            ("7us", 7_000),
            ("3ns", 3),
            ("1m", 60_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for wrong in
            ["", "s", "1h", "-1s", "1e3s", "inf", "nan", "1 s", "1..2", "1e400", "99999999999999s"]
        {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(interval("0ms").is_err());
    }

    #[test]
    fn unit_is_required_where_a_number_alone_means_nothing() {
        assert_eq!(number_and_unit("1.5ms"), Some((1.5, 1_000_000)));
        for wrong in ["2", "ms", "-2s", "2h", "1e9s"] {
            assert_eq!(number_and_unit(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rounded_times_have_three_digits_or_more() {
        let rounded = |ns| rounded(Duration::from_nanos(ns));
        assert_eq!(rounded(1_500_000), "1.5 ms");
        assert_eq!(rounded(100_000_000), "100 ms");
        assert_eq!(rounded(2_345_000_000), "2.35 s");
    }
}
