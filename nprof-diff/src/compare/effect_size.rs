//! How large a difference is, as the command line says it: points of share, or CPU time. Pure.

use std::str::FromStr;

/// The size of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum EffectSize {
    /// Of a share, as a fraction.
    Share(f64),
    /// Of CPU time per run, ns.
    Time(f64),
}

/// What one unit stands for.
const UNITS: [(&str, EffectSize); 5] = [
    ("%", EffectSize::Share(0.01)),
    ("ns", EffectSize::Time(1.0)),
    ("us", EffectSize::Time(1e3)),
    ("ms", EffectSize::Time(1e6)),
    ("s", EffectSize::Time(1e9)),
];

impl FromStr for EffectSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        size_of(text).ok_or("expected P% (points of share) or a time: Nns, Nus, Nms, Ns")
    }
}

fn size_of(text: &str) -> Option<EffectSize> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    let (_, one) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(match one {
        EffectSize::Share(one) => EffectSize::Share(number * one),
        EffectSize::Time(one) => EffectSize::Time(number * one),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!("2%".parse(), Ok(EffectSize::Share(0.02)));
        assert_eq!("1.5ms".parse(), Ok(EffectSize::Time(1.5e6)));
        assert_eq!("2s".parse(), Ok(EffectSize::Time(2e9)));
        for wrong in ["", "2", "%", "-2%", "+2%", "2h", "1e9s", "nan%", "1.2.3ms", "2 %"] {
            assert!(wrong.parse::<EffectSize>().is_err(), "{wrong:?}");
        }
    }
}
