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

/// Reads a time such as `2s`, `0.5s`, `100ms`, `10us`, `1m`; a number alone is seconds.
///
/// # Errors
///
/// What a time looks like, for what is none, or is longer than 292 years.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unit = UNITS.iter().find_map(|&(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let (number, unit_ns) = unit.unwrap_or((text, 1_000_000_000));
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = number.parse().ok().filter(|_| is_number);
    // Rounded, so that 0.1s is 100 ms and not a nanosecond less.
    let ns = number.map(|number| (number * unit_ns as f64).round());
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
    match duration.is_zero() {
        true => Err("expected a time longer than 0".to_owned()),
        false => Ok(duration),
    }
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
}
