//! An input of a merge: its next item, with the time of day.

use std::collections::VecDeque;
use std::io::{self, Read};

use nprof_stream::*;
use rustc_hash::FxHashSet;

use super::definitions::{Body, Definitions, IdKind, IdMap, body};
use super::error::Error;

/// An item of an input to be written.
#[derive(Debug)]
pub(super) enum Item {
    Step(Box<Step>),
    Naming(Box<Naming>),
    Run(Box<Head>),
    RunEnd(Box<RunEnd>),
    /// Defined in the input's definitions.
    Event(EventId),
    /// Like [`Item::Event`].
    Task(TaskId),
    /// Another location of a frame that has been written.
    Location(FrameId),
    /// Code around a frame that has been written, at this offset.
    Code(FrameId, u64),
    /// The sample without its extras, and its encoded extras.
    Sample(Sample<'static>, Body),
    Change(Body),
    Lost(Body),
    /// Damage: the number of samples it cost, as far as known, and their run.
    Damage(u64, Option<RunId>),
}

/// An item with its time; 0 for items without a time, which come at once.
pub(super) type TimedItem = (u64, Item);

/// An input of a merge.
#[derive(Debug)]
pub(super) struct Source<R> {
    name: String,
    reader: Reader<R>,
    /// Number of places of damage that were counted.
    damages: u64,
    is_over: bool,
    pub(super) state: InputState,
}

impl<R: Read> Source<R> {
    pub(super) fn new(name: String, input: R) -> Self {
        let (reader, state) = (Reader::new(input), InputState::default());
        Self { name, reader, damages: 0, is_over: false, state }
    }

    /// Returns the next item. None at the end. Calls `wait` before a read that may block.
    pub(super) fn next(
        &mut self,
        mut wait: impl FnMut() -> io::Result<()>,
    ) -> Result<Option<TimedItem>, Error> {
        while self.state.queue.is_empty() && !self.is_over {
            // Other inputs may have items that are due; they must be visible before this read blocks.
            if self.reader.would_block() {
                wait()?;
            }
            match self.reader.next() {
                Ok(Some(record)) => self.state.process(&record).map_err(|run| {
                    let input = self.name.clone();
                    Error::NoTimeOfDay { input, run }
                })?,
                // A segment without @end still owns the losses counted so far.
                Ok(None) => {
                    self.is_over = true;
                    self.state.ensure_run_declared();
                }
                Err(source) => return Err(Error::Read { input: self.name.clone(), source }),
            }
            self.note_damage();
        }
        Ok(self.state.queue.pop_front())
    }

    /// Puts back the item that was returned last.
    pub(super) fn put_back(&mut self, item: TimedItem) {
        self.state.queue.push_front(item);
    }

    fn note_damage(&mut self) {
        let count = self.reader.damage_count();
        if count > self.damages {
            // Only places found since the last call.
            let found = self.reader.damages().iter().skip(self.damages as usize);
            self.state.add_damage_cost(nprof_stream::number::total(
                found.filter_map(|damage| damage.samples),
            ));
            self.damages = count;
        }
        self.state.queue_damage_cost();
    }

    /// Returns the defect of the stream after its end. None if it is complete.
    pub(super) fn incomplete_input(&self) -> Option<IncompleteInput> {
        (self.reader.verdict() != Verdict::Complete)
            .then(|| IncompleteInput::of(&self.name, &self.reader))
    }
}

/// The current segment.
#[derive(Debug)]
struct Segment {
    head: Box<Head>,
    /// The difference between times of day and its times, modulo 2^64.
    offset: u64,
    /// True if other runs were merged into it.
    is_merged: bool,
    /// Its declared runs: the merged ones, or its own.
    runs: FxHashSet<RunId>,
}

/// Sorts the records of a stream into definitions and items to be written.
#[derive(Debug, Default)]
pub(super) struct InputState {
    pub(super) definitions: Definitions,
    pub(super) known: IdMap,
    queue: VecDeque<TimedItem>,
    /// None outside of segments, and after damage that hid a head.
    segment: Option<Segment>,
    /// Samples lost to damage that have not been queued yet.
    damage_cost: Option<u64>,
    /// Number of unknown records that were dropped, since they may contain ids.
    pub(super) unknown: u64,
}

impl InputState {
    /// Processes the next record. Fails with the run that has no time of day.
    fn process(&mut self, record: &Record<'_>) -> Result<(), RunId> {
        match record {
            Record::Head(head) => return self.begin(head),
            Record::Step(step) => self.queue.push_back((0, Item::Step(step.clone()))),
            // Contains neither ids nor times: forwarded unchanged.
            Record::Naming(naming) => self.queue.push_back((0, Item::Naming(naming.clone()))),
            // Its layout is unknown, so ids in it cannot be translated.
            Record::Unknown(_) => self.unknown += 1,
            Record::Run(head) => {
                if let Some(segment) = &mut self.segment {
                    segment.is_merged = true;
                }
                self.declare(head);
            }
            Record::RunEnd(ran) => self.queue.push_back((0, Item::RunEnd(ran.clone()))),
            record => {
                self.ensure_run_declared();
                self.process_content(record);
            }
        }
        Ok(())
    }

    /// Processes a record inside a segment.
    fn process_content(&mut self, record: &Record<'_>) {
        let Some(offset) = self.segment.as_ref().map(|segment| segment.offset) else {
            // Without a head, the time of day and the run of a sample are unknown.
            if let Record::Sample(sample) = record {
                self.add_damage_cost(sample.count);
            }
            return;
        };
        let time_of_day = |time: u64| time.wrapping_add(offset);
        match record {
            Record::End(end) => self.end(end),
            // The output has its own epochs: this one only ends the ids of the input.
            Record::Epoch(_) => self.forget(),
            Record::Sample(sample) => self.sample(sample, time_of_day(sample.time)),
            Record::Task(task) => {
                // Every task of a merged segment names its run (nprof-format(5), Merged segments).
                let run = self.owner(task.extras);
                let extras = with_run(task.extras, run);
                let time = time_of_day(task.time);
                let task = Task { time, extras: extras.extras(), ..*task };
                self.definitions.take(&Record::Task(task), &mut self.known);
                self.queue.push_back((time, Item::Task(task.id)));
            }
            Record::Event(event) => {
                self.definitions.take(record, &mut self.known);
                self.queue.push_back((0, Item::Event(event.id)));
            }
            Record::Change(change) => {
                // The definition must be the current one, if the task is defined again in a later epoch.
                self.definitions.change(change);
                let time = time_of_day(change.time);
                let body = body(&Record::Change(Change { time, ..*change }));
                self.queue.push_back((time, Item::Change(body)));
            }
            Record::Lost(lost) => {
                let time = time_of_day(lost.time);
                let run = self.declared_run(lost.extras).or(self.only_run());
                // A defined task names its run; the extra is needed only without one.
                let run = run.filter(|_| !self.definitions.has_task(lost.task));
                let extras = run.map(|run| with_run(lost.extras, run));
                let extras = extras.as_ref().map_or(lost.extras, ExtrasBuilder::extras);
                let body = body(&Record::Lost(Lost { time, extras, ..*lost }));
                self.queue.push_back((time, Item::Lost(body)));
            }
            definition => {
                self.definitions.take(definition, &mut self.known);
                if let Record::Location(location) = definition
                    && self.known.get(IdKind::Frame, location.frame.0).is_some()
                {
                    self.queue.push_back((0, Item::Location(location.frame)));
                }
                if let Record::Code(code) = definition
                    && self.known.get(IdKind::Frame, code.frame.0).is_some()
                {
                    self.queue.push_back((0, Item::Code(code.frame, code.offset)));
                }
            }
        }
    }

    fn begin(&mut self, head: &Head) -> Result<(), RunId> {
        self.ensure_run_declared();
        self.forget();
        // Without both, its times cannot be converted to times of day.
        let (Some(time), Some(utc)) = (head.time, head.utc) else {
            return Err(head.run);
        };
        self.segment = Some(Segment {
            head: Box::new(head.clone()),
            offset: utc.wrapping_sub(time),
            is_merged: false,
            runs: FxHashSet::default(),
        });
        Ok(())
    }

    fn end(&mut self, end: &End) {
        let Some(segment) = self.segment.take() else { return };
        // A merged segment already has an end record for each run.
        if !segment.is_merged {
            let mut end = end.clone();
            // `@run_end` has this key already, and a second one is malformed.
            end.more.retain(|(key, _)| key != "run");
            let run_end = RunEnd { run: segment.head.run, end };
            self.queue.push_back((0, Item::RunEnd(Box::new(run_end))));
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, time: u64) {
        // A defined task names the run: only a sample without one needs the extra.
        let extras = (!self.definitions.has_task(sample.task)).then(|| {
            let run = self.owner(sample.extras);
            with_run(sample.extras, run)
        });
        let extras = extras.as_ref().map_or(sample.extras, ExtrasBuilder::extras);
        let encoding = extras.encoded().into();
        let sample = Sample { time, extras: Extras::NONE, ..*sample };
        self.queue.push_back((time, Item::Sample(sample, encoding)));
    }

    /// Returns the run of a record: the run in its extras, or else the segment's own.
    fn owner(&mut self, extras: Extras<'_>) -> RunId {
        if let Some(run) = self.declared_run(extras) {
            return run;
        }
        let Some(head) = self.segment.as_ref().map(|segment| segment.head.clone()) else {
            return RunId::default();
        };
        self.declare(&head);
        head.run
    }

    /// Returns the run in extras. None if the segment has not declared it.
    fn declared_run(&self, extras: Extras<'_>) -> Option<RunId> {
        let run = RunId(extras.number("run")?);
        self.segment.as_ref()?.runs.contains(&run).then_some(run)
    }

    /// Returns the segment's own run. None if other runs were merged into the segment.
    fn only_run(&self) -> Option<RunId> {
        let segment = self.segment.as_ref().filter(|segment| !segment.is_merged)?;
        segment.runs.contains(&segment.head.run).then_some(segment.head.run)
    }

    /// Declares the segment's own run, unless runs have been declared.
    fn ensure_run_declared(&mut self) {
        let alone = self.segment.as_ref().filter(|segment| segment.runs.is_empty());
        if let Some(head) = alone.map(|segment| segment.head.clone()) {
            self.declare(&head);
        }
    }

    fn declare(&mut self, head: &Head) {
        if let Some(segment) = &mut self.segment
            && segment.runs.insert(head.run)
        {
            self.queue.push_back((0, Item::Run(Box::new(head.clone()))));
        }
    }

    fn forget(&mut self) {
        self.definitions.forget();
        self.known.forget();
    }

    /// Adds samples that were lost to damage.
    fn add_damage_cost(&mut self, samples: u64) {
        self.damage_cost = Some(self.damage_cost.unwrap_or(0).saturating_add(samples));
    }

    /// Queues the samples that were lost to damage.
    fn queue_damage_cost(&mut self) {
        if let Some(samples) = self.damage_cost.take() {
            self.queue.push_back((0, Item::Damage(samples, self.only_run())));
        }
    }
}

/// Returns the extras with their run.
pub(super) fn with_run(extras: Extras<'_>, run: RunId) -> ExtrasBuilder {
    ExtrasBuilder::replacing(extras, "run", run.to_string().as_bytes())
}
