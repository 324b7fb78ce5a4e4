//! Whether a stream was complete: keeps the books of a reader.

use crate::codec::binary::Header;
use crate::record::Record;

/// What a stream turned out to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every segment has its end and all its records.
    #[default]
    Complete,
    /// A segment has no end; nothing before the cut is lost.
    Truncated,
    /// Something in between is missing or wrong.
    Damaged,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Complete => "complete",
            Verdict::Truncated => "truncated",
            Verdict::Damaged => "damaged",
        })
    }
}

/// A place in the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The byte.
    pub(crate) offset: u64,
    /// In text, the line; 0 in binary.
    pub(crate) line: u64,
}

/// One place where a stream is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The byte of the input where it was found.
    pub offset: u64,
    /// In text, the line; 0 in binary.
    pub line: u64,
    /// What is wrong.
    pub what: String,
    /// How many samples it cost, when that is known.
    pub samples: Option<u64>,
    /// The span of time it may have cost, ns, when that is known.
    pub span: Option<u64>,
}

/// How many places of damage are kept; more are only counted.
const DAMAGES: usize = 100;

/// What is known of the segment being read.
#[derive(Debug, Default)]
struct Segment {
    /// Between a head and its end.
    open: bool,
    /// Damage was found in it.
    damaged: bool,
    /// Its samples so far, those of missing blocks included.
    samples: u64,
    /// Its records so far that are not annotations.
    records: u64,
    /// The run of its last block, and the number of the next one.
    run: u64,
    sequence: u32,
    /// The last block's time.
    time: u64,
}

/// What was found of a stream so far.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    segment: Segment,
    /// Whether there was a head at all.
    begun: bool,
    pub(crate) verdict: Verdict,
    /// The first places of damage.
    pub(crate) damages: Vec<Damage>,
    /// How many there are.
    pub(crate) damage_count: u64,
}

impl Ledger {
    /// Notes a place of damage.
    pub(crate) fn damage(&mut self, place: Place, what: &str) {
        self.damage_that_cost(place, what, None, None);
    }

    fn damage_that_cost(
        &mut self,
        place: Place,
        what: &str,
        samples: Option<u64>,
        span: Option<u64>,
    ) {
        self.verdict = Verdict::Damaged;
        self.segment.damaged = true;
        self.damage_count += 1;
        if self.damages.len() < DAMAGES {
            let Place { offset, line } = place;
            self.damages.push(Damage { offset, line, what: what.to_owned(), samples, span });
        }
    }

    /// Notes a block that is about to be read: whether it is the one that must come.
    pub(crate) fn enter(&mut self, header: &Header, place: Place) {
        let expected = (self.segment.run, self.segment.sequence);
        if header.sequence == 0 {
            // It holds the head of another segment.
            self.close(false);
        } else if expected != (header.run, header.sequence) {
            self.gap(header, place);
        } else if !self.segment.damaged && header.samples != self.segment.samples {
            let (told, read) = (header.samples, self.segment.samples);
            self.damage(place, &format!("{told} samples should come before it, {read} were read"));
        }
        self.segment.run = header.run;
        self.segment.sequence = header.sequence.wrapping_add(1);
        self.segment.time = header.time;
    }

    /// A block is not the one that must come.
    fn gap(&mut self, header: &Header, place: Place) {
        if self.segment.run != header.run {
            self.close(false);
            self.segment = Segment::default();
        }
        let missing = header.sequence.checked_sub(self.segment.sequence);
        let what = match missing {
            Some(1) => "a block is missing before it".to_owned(),
            Some(count) if count > 0 => format!("{count} blocks are missing before it"),
            _ => "a block is out of order".to_owned(),
        };
        let samples = header.samples.checked_sub(self.segment.samples);
        let span = header.time.checked_sub(self.segment.time).filter(|_| self.segment.time > 0);
        self.damage_that_cost(place, &what, samples, span);
        self.segment.open = true;
        self.segment.samples = self.segment.samples.max(header.samples);
    }

    /// Whether samples can be counted without further ado.
    pub(crate) fn is_open(&self) -> bool {
        self.segment.open
    }

    /// Notes records in a segment that is open, none of them annotations, of which some are samples.
    pub(crate) fn count(&mut self, records: u64, samples: u64) {
        self.segment.records += records;
        self.segment.samples += samples;
    }

    /// Notes what a record means for its segment.
    pub(crate) fn note(&mut self, place: Place, meaning: Meaning) {
        match meaning {
            Meaning::Head => {
                self.close(false);
                let Segment { run, sequence, time, .. } = self.segment;
                self.segment = Segment { open: true, run, sequence, time, ..Segment::default() };
                self.begun = true;
            }
            Meaning::End { samples, records } => {
                self.check_counts(place, samples, records);
                self.close(true);
            }
            Meaning::Annotation => self.must_be_open(place),
            Meaning::Record { sample } => {
                self.must_be_open(place);
                self.segment.records += 1;
                self.segment.samples += u64::from(sample);
            }
        }
    }

    /// A record can only stand in a segment; one that does not begins one that lost its head.
    fn must_be_open(&mut self, place: Place) {
        if !self.segment.open {
            self.damage(place, "a record outside of a segment");
            self.segment.open = true;
        }
    }

    /// Whether a segment's end tells the counts that were read. Where damage was found already,
    /// they cannot agree.
    fn check_counts(&mut self, place: Place, samples: u64, records: u64) {
        let Segment { open, damaged, samples: read, records: records_read, .. } = self.segment;
        if !open {
            self.damage(place, "an end without a beginning");
        } else if !damaged && (samples, records) != (read, records_read) {
            let what = format!(
                "there should be {samples} samples in {records} records, \
                 but {read} in {records_read} were read"
            );
            self.damage_that_cost(place, &what, samples.checked_sub(read), None);
        }
    }

    /// A segment is over, with its end or without.
    fn close(&mut self, ended: bool) {
        if self.segment.open && !ended {
            self.cut();
        }
        self.segment.open = false;
    }

    /// Notes that something was cut off: a segment, a block, a line.
    pub(crate) fn cut(&mut self) {
        self.verdict = self.verdict.max(Verdict::Truncated);
    }

    /// The input is over.
    pub(crate) fn finish(&mut self) {
        self.close(false);
        if !self.begun {
            self.cut();
        }
    }
}

/// What a record means for its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meaning {
    Head,
    End { samples: u64, records: u64 },
    Annotation,
    Record { sample: bool },
}

impl Meaning {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        match record {
            Record::Head(_) => Self::Head,
            Record::End(end) => Self::End { samples: end.samples, records: end.records },
            record if record.is_annotation() => Self::Annotation,
            record => Self::Record { sample: matches!(record, Record::Sample(_)) },
        }
    }
}
