//! The measure of an event: the quantity of its samples' weights.

/// The quantity that the weight of a sample measures. It decides on the words of a report, and on the unit that
/// it scales weights to; the name of the unit decides on neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Measure {
    /// Occurrences of the event; of an `@event` without the key.
    #[default]
    Count,
    /// CPU time, in nanoseconds.
    CpuTime,
    /// Elapsed time, in nanoseconds.
    WallTime,
    /// Time that a thread waited without running, in nanoseconds.
    WaitTime,
    /// Cycles of a CPU.
    Cycles,
    /// Bytes, such as of allocated memory.
    Bytes,
    /// A word that a later minor version added.
    Other(Box<[u8]>),
}

/// Every measure that this version knows, with its word and the unit of its weights.
const KNOWN: [(Measure, &str, &str); 6] = [
    (Measure::Count, "count", "count"),
    (Measure::CpuTime, "cpu-time", "ns"),
    (Measure::WallTime, "wall-time", "ns"),
    (Measure::WaitTime, "wait-time", "ns"),
    (Measure::Cycles, "cycles", "cycles"),
    (Measure::Bytes, "bytes", "bytes"),
];

impl Measure {
    /// Every measure that this version knows.
    pub fn all() -> impl Iterator<Item = Self> {
        KNOWN.into_iter().map(|(measure, ..)| measure)
    }

    /// Returns the measure of a word; never fails.
    pub fn from_word(word: &[u8]) -> Self {
        let known = KNOWN.into_iter().find(|(_, known, _)| known.as_bytes() == word);
        known.map_or_else(|| Self::Other(word.into()), |(measure, ..)| measure)
    }

    /// Returns its word.
    pub fn word(&self) -> &[u8] {
        match self {
            Self::Other(word) => word,
            known => {
                KNOWN.iter().find(|(measure, ..)| measure == known).map_or(b"", |m| m.1.as_bytes())
            }
        }
    }

    /// Returns the unit of its weights; `count` for one of a later version.
    pub fn unit(&self) -> &'static str {
        KNOWN.iter().find(|(measure, ..)| measure == self).map_or("count", |(_, _, unit)| unit)
    }

    /// True if weights are times, in nanoseconds.
    pub fn is_time(&self) -> bool {
        matches!(self, Self::CpuTime | Self::WallTime | Self::WaitTime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_and_words_are_inverse() {
        for (measure, word, unit) in KNOWN {
            assert_eq!(Measure::from_word(word.as_bytes()), measure);
            assert_eq!((measure.word(), measure.unit()), (word.as_bytes(), unit));
            assert_eq!(measure.is_time(), unit == "ns");
        }
        let later = Measure::from_word(b"energy");
        assert_eq!((later.word(), later.unit()), (&b"energy"[..], "count"));
    }
}
