//! `--fail-on`: what makes a comparison fail. Pure.

use std::str::FromStr;

use crate::diff::{Diff, Metric, Row, Verdict};

/// How much may change before the comparison fails.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Nothing may.
    Any,
    /// A growth of self or total.
    Growth { total: bool, limit: Growth },
}

/// How much a row grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Growth {
    /// Its share, as a fraction.
    Share(f64),
    /// Its CPU time per run, ns.
    Time(f64),
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What one unit of a limit stands for.
const UNITS: [(&str, Growth); 5] = [
    ("%", Growth::Share(0.01)),
    ("ns", Growth::Time(1.0)),
    ("us", Growth::Time(1e3)),
    ("ms", Growth::Time(1e6)),
    ("s", Growth::Time(1e9)),
];

impl FromStr for Bound {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected any, self>+P%, total>+P%, self>+Nms or total>+Nms";
        let kind = match text.split_once('>') {
            None if text == "any" => Kind::Any,
            Some((metric @ ("self" | "total"), limit)) => {
                Kind::Growth { total: metric == "total", limit: limit_of(limit).ok_or(EXPECTED)? }
            }
            _ => return Err(EXPECTED),
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

fn limit_of(text: &str) -> Option<Growth> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().ok()?;
    let (_, one) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(match one {
        Growth::Share(one) => Growth::Share(number * one),
        Growth::Time(one) => Growth::Time(number * one),
    })
}

impl Bound {
    /// Whether it is about CPU time.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self.kind, Kind::Growth { limit: Growth::Time(_), .. })
    }

    /// Whether a row is beyond the bound: it changed significantly, and the near end of the
    /// interval lies beyond as well.
    fn is_broken(&self, row: &Row, alpha: f64) -> bool {
        let Kind::Growth { limit, .. } = self.kind else {
            return row.verdict() != Verdict::Same;
        };
        let metric = self.metric(row);
        match (limit, self.growth(row)) {
            (Growth::Share(limit), Some(Growth::Share(low))) => metric.changed && low > limit,
            (Growth::Time(limit), Some(Growth::Time(low))) => {
                metric.time.is_some_and(|time| time.q <= alpha) && low > limit
            }
            _ => false,
        }
    }

    fn metric<'a>(&self, row: &'a Row) -> &'a Metric {
        if matches!(self.kind, Kind::Growth { total: true, .. }) { &row.total } else { &row.own }
    }

    /// The near end of the interval this bound is about; none where it is about any change, or
    /// where there is no CPU time.
    pub(crate) fn growth(&self, row: &Row) -> Option<Growth> {
        let metric = self.metric(row);
        match self.kind {
            Kind::Any => None,
            Kind::Growth { limit: Growth::Share(_), .. } => {
                Some(Growth::Share(metric.share.estimate.low))
            }
            Kind::Growth { limit: Growth::Time(_), .. } => {
                metric.time.map(|time| Growth::Time(time.estimate.low))
            }
        }
    }

    /// The rows beyond the bound.
    pub(crate) fn broken<'a>(&self, diff: &'a Diff) -> impl Iterator<Item = &'a Row> {
        diff.rows.iter().filter(move |row| self.is_broken(row, diff.question.alpha))
    }
}

/// What came out of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A side has too few samples.
    Undecided,
    /// A row is beyond a bound.
    Failed,
    /// Rows changed, none beyond a bound.
    Changed,
    /// Nothing changed significantly.
    Same,
}

impl Answer {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Answer::Undecided => "undecided",
            Answer::Failed => "failed",
            Answer::Changed => "changed",
            Answer::Same => "same",
        }
    }
}

/// What came out of a comparison, with these bounds.
pub(crate) fn answer(diff: &Diff, bounds: &[Bound]) -> Answer {
    if !diff.is_decided() {
        Answer::Undecided
    } else if bounds.iter().any(|bound| bound.broken(diff).next().is_some()) {
        Answer::Failed
    } else if diff.rows.iter().any(|row| row.verdict() != Verdict::Same) {
        Answer::Changed
    } else {
        Answer::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        let growth = |text: &str| text.parse::<Bound>().unwrap().kind;
        assert_eq!(growth("any"), Kind::Any);
        let share = Kind::Growth { total: false, limit: Growth::Share(0.02) };
        assert_eq!(growth("self>+2%"), share);
        assert_eq!(growth("self>2%"), share);
        assert_eq!(
            growth("total>+1.5ms"),
            Kind::Growth { total: true, limit: Growth::Time(1.5e6) }
        );
        assert_eq!(growth("self>+2s"), Kind::Growth { total: false, limit: Growth::Time(2e9) });
        for wrong in [
            "", "self", "self>", "self>%", "self>+2", "self>-2%", "self<+2%", "both>+2%", "self>2h",
        ] {
            assert!(wrong.parse::<Bound>().is_err(), "{wrong:?}");
        }
    }
}
