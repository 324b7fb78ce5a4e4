//! The size of a difference as the command line spells it: points of share, time, bytes or counts. Pure.

use std::fmt;
use std::str::FromStr;

use nprof_cli::time::{decimal, number_and_unit};

use crate::input::event::AmountUnit;

/// The size of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EffectSize {
    /// A difference of shares, as a fraction.
    Share(f64),
    /// An amount per run, in the unit of the event.
    Amount(AmountUnit, f64),
}

/// The units of bytes, and their bytes. Units that end in `B` come before `B`: the first suffix that
/// matches is used.
const BYTES: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl fmt::Display for EffectSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EffectSize::Share(share) => write!(f, "{} points of a run", rounded(100.0 * share)),
            EffectSize::Amount(AmountUnit::Ns, ns) => write!(f, "{} ms", rounded(ns / 1e6)),
            EffectSize::Amount(AmountUnit::Bytes, bytes) => {
                write!(f, "{} KiB", rounded(bytes / 1024.0))
            }
            EffectSize::Amount(AmountUnit::Count, count) => write!(f, "{}", rounded(*count)),
        }
    }
}

impl FromStr for EffectSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or(
            "expected P% (points of share), a time (Nns, Nus, Nms, Ns), bytes (NB, NKiB, NMiB, NGiB), or a count (N)",
        )
    }
}

/// Returns a number to three decimals, without those that are 0.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Parses a size with its unit; a count has none. None without a plain decimal number, or with an unknown unit.
fn parse(text: &str) -> Option<EffectSize> {
    if let Some(number) = text.strip_suffix('%') {
        return decimal(number).map(|percent| EffectSize::Share(percent * 0.01));
    }
    if let Some(count) = decimal(text) {
        return Some(EffectSize::Amount(AmountUnit::Count, count));
    }
    let in_bytes = BYTES.iter().find_map(|&(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    if let Some((number, bytes)) = in_bytes {
        return Some(EffectSize::Amount(AmountUnit::Bytes, decimal(number)? * bytes as f64));
    }
    let (number, unit_ns) = number_and_unit(text)?;
    Some(EffectSize::Amount(AmountUnit::Ns, number * unit_ns as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_sizes_with_known_units() {
        assert_eq!("2%".parse(), Ok(EffectSize::Share(0.02)));
        let amount = |unit, size| Ok(EffectSize::Amount(unit, size));
        assert_eq!("1.5ms".parse(), amount(AmountUnit::Ns, 1.5e6));
        assert_eq!("2s".parse(), amount(AmountUnit::Ns, 2e9));
        assert_eq!("1MiB".parse(), amount(AmountUnit::Bytes, 1_048_576.0));
        assert_eq!("0.5KiB".parse(), amount(AmountUnit::Bytes, 512.0));
        assert_eq!("3MB".parse(), amount(AmountUnit::Bytes, 3e6));
        assert_eq!("64B".parse(), amount(AmountUnit::Bytes, 64.0));
        assert_eq!("2".parse(), amount(AmountUnit::Count, 2.0));
        assert_eq!("2.5".parse::<EffectSize>().unwrap().to_string(), "2.5");
        assert_eq!("64KiB".parse::<EffectSize>().unwrap().to_string(), "64 KiB");
        for wrong in [
            "", "%", "-2%", "+2%", "2d", "1e9s", "nan%", "1.2.3ms", "2 %", "1Mi", "KiB", "-1B",
            "1 B",
        ] {
            assert!(wrong.parse::<EffectSize>().is_err(), "{wrong:?}");
        }
    }
}
