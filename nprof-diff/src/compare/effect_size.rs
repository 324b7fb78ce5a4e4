//! The size of a difference as the command line spells it: points of share, or CPU time. Pure.

use std::fmt;
use std::str::FromStr;

use nprof_cli::time::number_and_unit;

/// The size of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EffectSize {
    /// A difference of shares, as a fraction.
    Share(f64),
    /// CPU time per run, in nanoseconds.
    TimeNs(f64),
}

impl fmt::Display for EffectSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EffectSize::Share(share) => write!(f, "{} points of a run", rounded(100.0 * share)),
            EffectSize::TimeNs(ns) => write!(f, "{} ms", rounded(ns / 1e6)),
        }
    }
}

impl FromStr for EffectSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or("expected P% (points of share) or a time: Nns, Nus, Nms, Ns")
    }
}

/// Returns a number to three decimals, without those that are 0.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Parses a size with its unit. None without a plain decimal number or a known unit.
fn parse(text: &str) -> Option<EffectSize> {
    if let Some(number) = text.strip_suffix('%') {
        // Neither sign nor exponent, as in times.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        return number.parse().ok().filter(|_| is_plain).map(|p: f64| EffectSize::Share(p * 0.01));
    }
    let (number, unit_ns) = number_and_unit(text)?;
    Some(EffectSize::TimeNs(number * unit_ns as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sizes_with_units_only() {
        assert_eq!("2%".parse(), Ok(EffectSize::Share(0.02)));
        assert_eq!("1.5ms".parse(), Ok(EffectSize::TimeNs(1.5e6)));
        assert_eq!("2s".parse(), Ok(EffectSize::TimeNs(2e9)));
        for wrong in ["", "2", "%", "-2%", "+2%", "2d", "1e9s", "nan%", "1.2.3ms", "2 %"] {
            assert!(wrong.parse::<EffectSize>().is_err(), "{wrong:?}");
        }
    }
}
