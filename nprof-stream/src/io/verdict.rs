//! Tracks losses and damage during reading, and decides whether a stream is complete.

use crate::codec::binary::Header;
use crate::record::Record;

/// The completeness of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every segment has its end and all its records.
    #[default]
    Complete,
    /// A segment has no end; nothing before the cut is lost.
    Truncated,
    /// Bytes in between are missing or wrong.
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
    /// The problem.
    pub what: String,
    /// The number of lost samples. None if unknown.
    pub samples: Option<u64>,
    /// The span of time of the loss, ns. None if unknown.
    pub span: Option<u64>,
}

/// The number of places of damage that are kept; further ones are only counted.
const DAMAGES: usize = 100;

/// The state of the segment that is read.
#[derive(Debug, Default)]
struct Segment {
    /// True between a head and its end.
    open: bool,
    /// True if damage was found in it.
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

/// The findings in a stream so far.
#[derive(Debug, Default)]
pub(crate) struct VerdictTracker {
    segment: Segment,
    /// True if there was a head.
    begun: bool,
    pub(crate) verdict: Verdict,
    /// The first places of damage.
    pub(crate) damages: Vec<Damage>,
    /// Their number.
    pub(crate) damage_count: u64,
}

impl VerdictTracker {
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
        // Hostile input may be damaged everywhere: the list is bounded, the count exact.
        if self.damages.len() < DAMAGES {
            let Place { offset, line } = place;
            self.damages.push(Damage { offset, line, what: what.to_owned(), samples, span });
        }
    }

    /// Records the header of the next block: checks that it is the expected one.
    pub(crate) fn enter(&mut self, header: &Header, place: Place) {
        let expected = (self.segment.run, self.segment.sequence);
        if header.sequence == 0 {
            // Block 0 holds the head of another segment.
            self.close(false);
        } else if expected != (header.run, header.sequence) {
            self.gap(header, place);
        } else if !self.segment.damaged && header.samples != self.segment.samples {
            let (announced, read) = (header.samples, self.segment.samples);
            self.damage(
                place,
                &format!("{announced} samples should come before it, {read} were read"),
            );
        }
        self.segment.run = header.run;
        // A header may have any number: the sum must not overflow.
        self.segment.sequence = header.sequence.wrapping_add(1);
        self.segment.time = header.time;
    }

    /// Records that a block is not the expected one.
    fn gap(&mut self, header: &Header, place: Place) {
        // Of another run: that segment lost its beginning, and the one before it its end.
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
        // Without a block before it, the loss has no known beginning.
        let span = header.time.checked_sub(self.segment.time).filter(|_| self.segment.time > 0);
        self.damage_that_cost(place, &what, samples, span);
        // The gap is the damage: records after a lost head must not count as damage again.
        self.segment.open = true;
        // With the missing ones, so that the next gap counts only its own.
        self.segment.samples = self.segment.samples.max(header.samples);
    }

    /// True if samples can be counted without further checks.
    pub(crate) fn is_open(&self) -> bool {
        self.segment.open
    }

    /// Counts records of an open segment, none of them annotations, and the samples among them.
    pub(crate) fn count(&mut self, records: u64, samples: u64) {
        self.segment.records += records;
        self.segment.samples += samples;
    }

    /// Records the effect of a record on its segment.
    pub(crate) fn note(&mut self, place: Place, meaning: RecordEffect) {
        match meaning {
            RecordEffect::Head => {
                self.close(false);
                // These belong to the block around the head, whose header came first.
                let Segment { run, sequence, time, .. } = self.segment;
                self.segment = Segment { open: true, run, sequence, time, ..Segment::default() };
                self.begun = true;
            }
            RecordEffect::End { samples, records } => {
                self.check_counts(place, samples, records);
                self.close(true);
            }
            RecordEffect::Annotation => self.must_be_open(place),
            RecordEffect::Record { sample } => {
                self.must_be_open(place);
                self.segment.records += 1;
                self.segment.samples += u64::from(sample);
            }
        }
    }

    /// Records outside of a segment are damage; they begin a segment that lost its head.
    fn must_be_open(&mut self, place: Place) {
        if !self.segment.open {
            self.damage(place, "a record outside of a segment");
            self.segment.open = true;
        }
    }

    /// Compares the counts of a segment's end with those that were read. After damage they cannot
    /// agree.
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

    /// Closes a segment, with its end or without.
    fn close(&mut self, ended: bool) {
        if self.segment.open && !ended {
            self.cut();
        }
        self.segment.open = false;
    }

    /// Records that something was cut off: a segment, a block, a line.
    pub(crate) fn cut(&mut self) {
        self.verdict = self.verdict.max(Verdict::Truncated);
    }

    /// Records the end of the input.
    pub(crate) fn finish(&mut self) {
        self.close(false);
        // The input ended before its first head was whole.
        if !self.begun {
            self.cut();
        }
    }
}

/// The effect of a record on its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RecordEffect {
    Head,
    End { samples: u64, records: u64 },
    Annotation,
    Record { sample: bool },
}

impl RecordEffect {
    pub(crate) fn of(record: &Record<'_>) -> Self {
        match record {
            Record::Head(_) => Self::Head,
            Record::End(end) => Self::End { samples: end.samples, records: end.records },
            record if record.is_annotation() => Self::Annotation,
            record => Self::Record { sample: matches!(record, Record::Sample(_)) },
        }
    }
}
