//! Shares, amounts and names as tables print them. Pure.

use nprof_report::layout::{bytes, fit};
use nprof_stream::escape::escaped;

use crate::compare::effect_size::EffectSize;
use crate::compare::fail_on::Bound;
use crate::compare::row::Row;
use crate::input::event::AmountUnit;
use crate::input::key::{KeyId, KeyTable};

/// The width of a table, in columns.
pub(super) const WIDTH: usize = 80;

/// Returns a share in per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Returns a difference of shares in points, with its sign.
pub(super) fn points(share: f64) -> String {
    let text = format!("{:+.2}", 100.0 * share);
    // A rounded negative difference is not negative any more.
    if text == "-0.00" { "+0.00".to_owned() } else { text }
}

/// Returns a q-value.
pub(super) fn q_value(q: f64) -> String {
    if q < 0.0001 { "<0.0001".to_owned() } else { format!("{q:.4}") }
}

/// Returns the confidence of the intervals, per cent.
pub(super) fn confidence(alpha: f64) -> f64 {
    // Rounded to the digits that --confidence accepts.
    (100.0 * (1.0 - alpha) * 1e7).round() / 1e7
}

/// Returns an amount with about three digits.
pub(super) fn amount(unit: AmountUnit, amount: f64) -> String {
    match unit {
        AmountUnit::Ns => seconds(amount),
        // A rounded negative difference is not negative any more.
        AmountUnit::Bytes if amount.abs() < 0.5 => bytes(0.0),
        AmountUnit::Bytes => bytes(amount),
        AmountUnit::Count => count(amount),
    }
}

/// Returns a difference of amounts, with its sign.
pub(super) fn signed_amount(unit: AmountUnit, difference: f64) -> String {
    let text = amount(unit, difference);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// Returns a number with about three digits.
fn count(number: f64) -> String {
    // The limits are those at which rounding reaches the next prefix.
    let (number, prefix) = match number.abs() {
        size if size < 999.5 => (number, ""),
        size if size < 999.5e3 => (number / 1e3, " k"),
        size if size < 999.5e6 => (number / 1e6, " M"),
        _ => (number / 1e9, " G"),
    };
    let digits = match number.abs() {
        size if size < 9.995 => format!("{number:.2}"),
        size if size < 99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    };
    // Without a prefix most means are whole numbers.
    let is_whole = prefix.is_empty() && digits.contains('.');
    let digits =
        if is_whole { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    // A rounded negative difference is not negative any more.
    let digits = if digits == "-0" { "0" } else { digits };
    format!("{digits}{prefix}")
}

/// Returns a duration with about three digits.
fn seconds(ns: f64) -> String {
    // The limits are those at which rounding reaches the next unit.
    match ns.abs() {
        size if size < 999.5e3 => format!("{:.0} µs", ns / 1e3),
        size if size < 9.995e6 => format!("{:.2} ms", ns / 1e6),
        size if size < 999.5e6 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Returns the name of a row and its image; shortened to fit a terminal of this width after an
/// indentation.
pub(super) fn row_name(
    keys: &KeyTable,
    key: KeyId,
    width: Option<usize>,
    indentation: usize,
) -> String {
    let name = keys.name(key);
    let image = match &keys.get(key).image[..] {
        b"" => String::new(),
        image => format!("  ({})", escaped(image)),
    };
    match width {
        Some(width) => fit(&name, &image, width.saturating_sub(indentation)),
        None => name + &image,
    }
}

/// Returns the lower end of a row's growth, as the end of a line. Empty for the bound `any`.
pub(super) fn min_growth(bound: &Bound, row: &Row) -> String {
    match bound.min_growth(row) {
        Some(EffectSize::Share(low)) => format!(": at least {}", points(low)),
        Some(EffectSize::Amount(unit, low)) => format!(": at least {}", signed_amount(unit, low)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::key::RowKey;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn shortens_names_on_a_terminal_only() {
        let mut keys = KeyTable::default();
        let name = format!("begin_{}_end", "x".repeat(90));
        let key = keys
            .intern(RowKey { image: b"libfoo.so"[..].into(), ..RowKey::of_name(name.as_bytes()) });
        assert_eq!(row_name(&keys, key, None, 2), format!("{name}  (libfoo.so)"));
        for width in [40, 80] {
            let short = row_name(&keys, key, Some(width), 2);
            assert_eq!(short.width(), width - 2, "{short}");
            assert!(short.starts_with("begin_") && short.ends_with("_end  (libfoo.so)"), "{short}");
        }
        assert_eq!(row_name(&keys, key, Some(0), 2).width(), 12);
    }

    #[test]
    fn bytes_have_three_digits() {
        for (number, expected) in [
            (0.0, "+0 B"),
            (-0.4, "+0 B"),
            (1000.0, "+1000 B"),
            (1023.7, "+1.00 KiB"),
            (1_048_576.0, "+1.00 MiB"),
            (-12.0 * 1024.0, "-12.0 KiB"),
            (3.5e12, "+3260 GiB"),
        ] {
            assert_eq!(signed_amount(AmountUnit::Bytes, number), expected);
        }
        assert_eq!(amount(AmountUnit::Bytes, 512.0), "512 B");
    }

    #[test]
    fn counts_have_three_digits() {
        for (number, expected) in [
            (0.0, "+0"),
            (-0.004, "+0"),
            (2.5, "+2.5"),
            (-40.0, "-40"),
            (100.0, "+100"),
            (999.6, "+1.00 k"),
            (12_345.0, "+12.3 k"),
            (-1.5e6, "-1.50 M"),
            (3.21e12, "+3210 G"),
        ] {
            assert_eq!(signed_amount(AmountUnit::Count, number), expected);
        }
    }

    #[test]
    fn durations_have_three_digits() {
        for (ns, expected) in [
            (0.0, "0 µs"),
            (1.4e6, "1.40 ms"),
            (-12.4e6, "-12 ms"),
            (999.7e6, "1.00 s"),
            (61.0e9, "61.00 s"),
        ] {
            assert_eq!(seconds(ns), expected);
        }
        assert_eq!(signed_amount(AmountUnit::Ns, 2e9), "+2.00 s");
        assert_eq!(confidence(0.05), 95.0);
        assert_eq!(confidence(0.001), 99.9);
        assert_eq!(confidence(1e-9), 99.9999999);
    }
}
