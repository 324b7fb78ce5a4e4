//! Time spans and time slices of a run. Times count from the beginning of the run, so that several
//! runs can be compared.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use nprof_cli::time::duration;

/// A part of a run in nanoseconds since its beginning; includes `from`, excludes `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First nanosecond.
    pub from: u64,
    /// First nanosecond after it.
    pub to: u64,
}

impl Span {
    /// True if a time in nanoseconds lies in it.
    pub fn contains(self, ns: u64) -> bool {
        (self.from..self.to).contains(&ns)
    }
}

impl FromStr for Span {
    type Err = String;

    /// Parses `FROM..TO`; either may be missing.
    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) =
            text.split_once("..").ok_or("expected FROM..TO, such as 1s..2.5s or 500ms..")?;
        let ns = |text| duration(text).map(|time| time.as_nanos() as u64);
        let from = if from.is_empty() { 0 } else { ns(from)? };
        let to = if to.is_empty() { u64::MAX } else { ns(to)? };
        // Likely a mistake: no sample could count.
        if from == to {
            return Err("the span is empty".to_owned());
        }
        if from > to {
            return Err("the span ends before it begins".to_owned());
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for Span {
    /// Writes the form that `from_str` parses, in seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let to = if self.to == u64::MAX { String::new() } else { format!("{}s", seconds(self.to)) };
        write!(f, "{}s..{to}", seconds(self.from))
    }
}

/// The division of samples by their time within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// Length of a slice in nanoseconds; without one, all time is one slice.
    pub slice: Option<NonZeroU64>,
    /// The part that counts; without one, the whole run.
    pub span: Option<Span>,
}

impl TimeSplit {
    /// True if the time of a sample makes no difference.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Returns the number of the slice that contains `time`, in nanoseconds since the beginning of
    /// the run. None outside of the span.
    pub fn slice_of(self, time: u64) -> Option<u64> {
        if self.span.is_some_and(|span| !span.contains(time)) {
            return None;
        }
        Some(self.slice.map_or(0, |slice| time / slice))
    }

    /// True if it divides no slice of `length` nanoseconds.
    pub fn keeps_whole(self, length: u64) -> bool {
        let is_whole = |time: u64| time == u64::MAX || time.checked_rem(length) == Some(0);
        let slice = self.slice.is_none_or(|slice| is_whole(slice.get()));
        slice && self.span.is_none_or(|span| is_whole(span.from) && is_whole(span.to))
    }

    /// Returns the start of a slice in seconds, with the digits that slices of this length need.
    pub fn label(self, number: u64) -> String {
        let length = self.slice.map_or(1, NonZeroU64::get);
        // The product of two 64-bit numbers: a damaged time may lie far in the future.
        let start = u128::from(number) * u128::from(length);
        // Nanoseconds have nine digits; trailing zeros of the length are zero in every start.
        let mut digits = 9;
        let mut rest = length;
        while digits > 0 && rest.is_multiple_of(10) {
            rest /= 10;
            digits -= 1;
        }
        let (seconds, fraction) = (start / 1_000_000_000, start % 1_000_000_000);
        match digits {
            0 => seconds.to_string(),
            _ => format!("{seconds}.{}", &format!("{fraction:09}")[..digits]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_includes_its_beginning_and_excludes_its_end() {
        let span: Span = "1s..2s".parse().unwrap();
        let split = TimeSplit { span: Some(span), slice: NonZeroU64::new(250_000_000) };
        let at = |ns| split.slice_of(ns);
        assert_eq!(at(999_999_999), None);
        assert_eq!(at(1_000_000_000), Some(4));
        assert_eq!(at(1_999_999_999), Some(7));
        assert_eq!(at(2_000_000_000), None);
        assert_eq!("..3s".parse(), Ok(Span { from: 0, to: 3_000_000_000 }));
        assert_eq!("3..".parse(), Ok(Span { from: 3_000_000_000, to: u64::MAX }));
        for wrong in ["1s", "2s..1s", "1s..1s", "a..b"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn slices_of_a_multiple_keep_slices_whole() {
        let split = |slice, span: Option<&str>| TimeSplit {
            slice: NonZeroU64::new(slice),
            span: span.map(|span| span.parse().unwrap()),
        };
        assert!(split(0, None).keeps_whole(1_000_000_000));
        assert!(split(3_000_000_000, Some("1s..4s")).keeps_whole(1_000_000_000));
        assert!(split(0, Some("2s..")).keeps_whole(1_000_000_000));
        assert!(!split(1_500_000_000, None).keeps_whole(1_000_000_000));
        assert!(!split(0, Some("..500ms")).keeps_whole(1_000_000_000));
        assert!(!split(1_000_000_000, None).keeps_whole(0), "a damaged length");
    }

    #[test]
    fn slice_label_is_its_start_in_seconds() {
        let label =
            |slice, number| TimeSplit { slice: NonZeroU64::new(slice), span: None }.label(number);
        assert_eq!(label(1_000_000_000, 12), "12");
        assert_eq!(label(60_000_000_000, 2), "120");
        assert_eq!(label(250_000_000, 5), "1.25");
        assert_eq!(label(100_000_000, 10), "1.0");
        assert_eq!(label(1, 1), "0.000000001");
        assert_eq!(label(u64::MAX, u64::MAX).len(), 40);
    }
}
