//! Reads streams into one profile.

use std::io::Read;

use nprof_stream::escape::escaped;
use nprof_stream::tables::{NameId, Tables};
use nprof_stream::*;
use rustc_hash::FxHashMap;

use super::definitions::Definitions;
use super::pending::{Pending, PendingKey, PendingSample};
use super::runs::Runs;
use crate::model::{self, Begun, Loss, Programs};

/// The choice between all samples and their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampling {
    /// Every sample with its time.
    Each,
    /// Sums of samples with equal properties.
    Sums,
    /// Sums of the threads of a run, for each window of this length, ns.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "for Parquet"))]
    Windows(i64),
}

/// Samples and sums of an epoch that are kept before they are resolved: about 40 MB.
const MAX_PENDING: usize = 1 << 19;

/// Most samples with a time: 800 MB.
const MAX_SAMPLES: usize = 1 << 24;

/// Most sums of windows: 400 MB.
const MAX_SUMS: usize = 1 << 22;

/// The memory of the definitions of an epoch, as in reports.
const MAX_TABLE_BYTES: usize = 96 << 20;

/// Most losses with a time of their own; the number of lost samples is exact.
const MAX_LOSSES: usize = 10_000;

/// The error of [`ProfileReader::read`].
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream cannot be read.
    Stream(Error),
    /// There are too many samples for a format with times.
    TooManySamples,
    /// There are too many sums of windows.
    TooManySums,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream(error) => error.fmt(f),
            Self::TooManySums => write!(
                f,
                "more than {MAX_SUMS} rows of samples; use a longer --window, or export shorter recordings"
            ),
            Self::TooManySamples => write!(
                f,
                "more than {MAX_SAMPLES} samples, which this format stores one by one; use --to pprof"
            ),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stream(error) => error.source(),
            Self::TooManySamples | Self::TooManySums => None,
        }
    }
}

/// Time, run, event, thread, name and stack.
type SumKey = (i64, u32, u32, u32, u32, Option<u32>);

/// Reads streams into a profile.
#[derive(Debug)]
pub(crate) struct ProfileReader {
    tables: Tables,
    definitions: Definitions,
    pending: Pending,
    events: Vec<Event>,
    samples: Vec<model::Sample>,
    /// By its properties, the index in `samples` of a sum.
    sums: FxHashMap<SumKey, usize>,
    runs: Runs,
    losses: Vec<Loss>,
    facts: model::Facts,
    /// The span of all times. None before the first.
    span: Option<(i64, i64)>,
    segment: u32,
    /// The difference of the time of day and the clock of the segment.
    to_utc: i64,
    programs: Programs,
    sampling: Sampling,
}

impl ProfileReader {
    /// Creates a reader.
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self {
            tables: Tables::within(MAX_TABLE_BYTES),
            definitions: Definitions::default(),
            pending: match sampling {
                Sampling::Each => Pending::Each(Vec::new()),
                Sampling::Sums | Sampling::Windows(_) => Pending::Sums(FxHashMap::default()),
            },
            events: Vec::new(),
            samples: Vec::new(),
            sums: FxHashMap::default(),
            runs: Runs::default(),
            losses: Vec::new(),
            facts: model::Facts::default(),
            span: None,
            segment: 0,
            to_utc: 0,
            programs: Programs::default(),
            sampling,
        }
    }

    /// Reads a stream, which messages call `name`, to its end. Returns its findings if it is not
    /// complete.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn read(
        &mut self,
        name: &str,
        input: impl Read,
    ) -> Result<Option<IncompleteInput>, Failure> {
        let mut reader = Reader::new(input);
        // Ids of the stream before are invalid, even if damage hides the head of this one.
        self.begin_segment();
        while let Some(record) = reader.next().map_err(Failure::Stream)? {
            self.take(&record)?;
        }
        // The samples of a truncated stream, too.
        self.resolve();
        // Final only after the last record.
        let is_complete = reader.verdict() == Verdict::Complete;
        self.runs.end_input(is_complete);
        Ok((!is_complete).then(|| IncompleteInput::of(name, &reader)))
    }

    fn begin_segment(&mut self) {
        self.tables.forget();
        self.segment += 1;
        self.to_utc = 0;
    }

    fn take(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        match record {
            Record::Sample(sample) => return self.add(sample),
            Record::Head(_) | Record::Epoch(_) => self.resolve(),
            _ => {}
        }
        if let Record::Head(head) = record {
            self.begin_segment();
            self.note_head(head);
        }
        self.runs.take(record);
        self.tables.apply(record);
        match record {
            Record::Run(head) => self.note_command(&head.command),
            Record::Lost(lost) => {
                // Other formats have no losses by event. A count of 0 is unknown.
                if let Sampling::Windows(length) = self.sampling
                    && lost.count > 0
                {
                    let event = self.event_of_loss(lost.event);
                    self.runs.note_lost(lost, event, self.window(lost.time, length));
                }
                self.note_lost(lost);
            }
            Record::End(end) => self.note_time(end.time),
            Record::Change(change) if change.kind == ChangeKind::Exec => {
                let exe = change.extras.get("exe").map(|exe| escaped(&exe));
                let pid = self.tables.task(change.task).map_or(0, |task| task.pid);
                self.programs.add(exe, Begun::Recorded((self.segment, pid)));
            }
            Record::Task(task) => {
                let exe = task.extras.get("exe").map(|exe| escaped(&exe));
                self.programs.add(exe, Begun::Before);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_head(&mut self, head: &Head) {
        if let (Some(time), Some(utc)) = (head.time, head.utc) {
            self.to_utc = (utc as i64).saturating_sub(time as i64);
        }
        self.note_time(head.time);
        // Later streams may be from other machines; the formats have room for one.
        if self.facts.commands.is_empty() {
            self.facts.host = escaped(&head.host);
            self.facts.os = escaped(&head.os);
            self.facts.cpu = escaped(&head.cpu);
            self.facts.cpus = head.cpus;
        }
        self.note_command(&head.command);
    }

    fn note_command(&mut self, command: &[u8]) {
        let command = escaped(command);
        if !command.is_empty() && !self.facts.commands.contains(&command) {
            self.facts.commands.push(command);
        }
    }

    fn utc(&self, time: u64) -> i64 {
        i64::try_from(time).unwrap_or(i64::MAX).saturating_add(self.to_utc)
    }

    /// Returns the beginning of the window of a time.
    fn window(&self, time: u64, length: i64) -> i64 {
        self.utc(time).div_euclid(length).saturating_mul(length)
    }

    fn note_time(&mut self, time: Option<u64>) {
        let Some(time) = time.map(|time| self.utc(time)) else { return };
        let (first, last) = self.span.get_or_insert((time, time));
        (*first, *last) = ((*first).min(time), (*last).max(time));
    }

    fn note_lost(&mut self, lost: &Lost<'_>) {
        self.facts.lost = self.facts.lost.saturating_add(lost.count);
        // Lost records of processes are no samples.
        if lost.count == 0 && lost.records() > 0 {
            return;
        }
        if self.losses.len() < MAX_LOSSES {
            let time = self.utc(lost.time);
            self.losses.push(Loss { time, count: lost.count, cause: lost.cause.to_string() });
        }
    }

    fn add(&mut self, sample: &Sample<'_>) -> Result<(), Failure> {
        self.note_time(Some(sample.time));
        let comm = self.tables.task(sample.task).map_or(NameId::default(), |task| task.comm);
        let &Sample { event, task, node, time, count, weight, .. } = sample;
        let window = match self.sampling {
            Sampling::Windows(length) => self.window(time, length),
            Sampling::Each | Sampling::Sums => 0,
        };
        let key = PendingKey { event, task, comm, node, window };
        self.pending.add(PendingSample { key, time, count, weight });
        if self.sampling == Sampling::Each && self.samples.len() + self.pending.len() > MAX_SAMPLES
        {
            return Err(Failure::TooManySamples);
        }
        if self.pending.len() >= MAX_PENDING {
            self.resolve();
            // Only windows make more sums than there are stacks.
            if matches!(self.sampling, Sampling::Windows(_)) && self.samples.len() > MAX_SUMS {
                return Err(Failure::TooManySums);
            }
        }
        Ok(())
    }

    /// Replaces the ids of pending samples by numbers that are valid in all epochs.
    fn resolve(&mut self) {
        let to_utc = self.to_utc;
        for PendingSample { key, time, count, weight } in self.pending.take() {
            let event = self.event(key.event);
            let start = |time| i64::try_from(time).unwrap_or(i64::MAX).saturating_add(to_utc);
            let run = self.runs.of_task(key.task);
            let thread = match self.sampling {
                Sampling::Windows(_) => 0,
                _ => self.definitions.thread(&self.tables, key.task, self.segment, start),
            };
            let name = self.definitions.thread_name(&self.tables, key.task, key.comm);
            let (stack, is_other) = self.definitions.stack(&self.tables, key.node);
            // Left out to save memory.
            if is_other {
                self.facts.folded = self.facts.folded.saturating_add(count);
            }
            let stack = match self.sampling {
                // Parquet files have their own id.
                Sampling::Windows(_) => stack,
                _ => stack.or_else(|| Some(self.definitions.no_stack())),
            };
            let time = if self.sampling == Sampling::Each { self.utc(time) } else { key.window };
            self.runs.note_time(run, time);
            let sample = model::Sample { time, run, event, thread, name, stack, count, weight };
            if self.sampling == Sampling::Each {
                self.samples.push(sample);
                continue;
            }
            let next = self.samples.len();
            let sum_key = (time, run, event, thread, name, stack);
            let index = *self.sums.entry(sum_key).or_insert(next);
            match self.samples.get_mut(index) {
                None => self.samples.push(sample),
                Some(sum) => {
                    sum.count = sum.count.saturating_add(count);
                    sum.weight = sum.weight.saturating_add(weight);
                }
            }
        }
    }

    /// Returns the index of the event of a sample.
    fn event(&mut self, id: EventId) -> u32 {
        let damaged = || Event { name: b"[damaged]".to_vec(), ..Event::default() };
        let event = self.tables.event(id).cloned().unwrap_or_else(damaged);
        self.event_number(event)
    }

    /// Returns the index of the event of a loss: one without a name, if the stream does not have it.
    fn event_of_loss(&mut self, id: EventId) -> u32 {
        let event = self.tables.event(id).cloned().unwrap_or_default();
        self.event_number(event)
    }

    /// Returns the index of an event; runs of the same event share one.
    fn event_number(&mut self, event: Event) -> u32 {
        // Parquet files have the period and the frequency of each run.
        let has_periods = matches!(self.sampling, Sampling::Windows(_));
        let same = |other: &Event| {
            (&other.name, &other.unit, &other.measure, &other.scope, &other.scaled)
                == (&event.name, &event.unit, &event.measure, &event.scope, &event.scaled)
                && (!has_periods
                    || (other.period, other.frequency) == (event.period, event.frequency))
        };
        if let Some(index) = self.events.iter().position(same) {
            return index as u32;
        }
        self.events.push(event);
        self.events.len() as u32 - 1
    }

    /// Returns the profile of all streams.
    pub(crate) fn finish(self) -> model::Profile {
        // The definitions are added below.
        let mut profile = model::Profile {
            facts: self.facts,
            runs: self.runs.finish(),
            events: self.events,
            samples: self.samples,
            losses: self.losses,
            ..model::Profile::default()
        };
        (profile.facts.start, profile.facts.end) = self.span.unwrap_or_default();
        self.definitions.finish(&mut profile);
        // Streams of one time, and samples that came late.
        profile.samples.sort_by_key(|sample| sample.time);
        profile.put_program_first(&self.programs);
        profile
    }
}
