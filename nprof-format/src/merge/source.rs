//! One of the streams that are merged: what comes next of it, with the time of day.

use std::collections::VecDeque;
use std::io::{self, Read};

use nprof_stream::*;
use rustc_hash::FxHashSet;

use super::Error;
use super::meanings::{Body, Known, Meanings, Of, body};

/// What of an input is to be written.
#[derive(Debug)]
pub(super) enum Item {
    Step(Box<Step>),
    Naming(Box<Naming>),
    Run(Box<Head>),
    RunEnd(Box<RunEnd>),
    /// What it is, the input's tables tell.
    Event(EventId),
    /// As [`Item::Event`].
    Task(TaskId),
    /// As [`Item::Event`]: a frame that has been written is located anew.
    Location(FrameId),
    /// Without its extras, which follow in their spelling.
    Sample(Sample<'static>, Body),
    Change(Body),
    Lost(Body),
    /// Damage was found. How many samples that cost, as far as is known, and of which run.
    Damage(u64, Option<RunId>),
}

/// An item, and when it is due: its time, or 0 for at once.
pub(super) type Due = (u64, Item);

/// A stream that is merged.
#[derive(Debug)]
pub(super) struct Source<R> {
    name: String,
    reader: Reader<R>,
    /// How many places of damage have been taken notice of.
    damages: u64,
    is_over: bool,
    pub(super) intake: Intake,
}

impl<R: Read> Source<R> {
    pub(super) fn new(name: String, input: R) -> Self {
        let (reader, intake) = (Reader::new(input), Intake::default());
        Self { name, reader, damages: 0, is_over: false, intake }
    }

    /// What comes next; `None` when the stream is over. Calls `wait` before it waits for more.
    pub(super) fn next(
        &mut self,
        mut wait: impl FnMut() -> io::Result<()>,
    ) -> Result<Option<Due>, Error> {
        while self.intake.queue.is_empty() && !self.is_over {
            if self.reader.drained() {
                wait()?;
            }
            match self.reader.next() {
                Ok(Some(record)) => self.intake.take(&record).map_err(|run| {
                    let input = self.name.clone();
                    Error::NoTimeOfDay { input, run }
                })?,
                Ok(None) => {
                    self.is_over = true;
                    self.intake.settle();
                }
                Err(source) => return Err(Error::Read { input: self.name.clone(), source }),
            }
            self.note_damage();
        }
        Ok(self.intake.queue.pop_front())
    }

    /// Puts what has just been taken back in its place.
    pub(super) fn put_back(&mut self, due: Due) {
        self.intake.queue.push_front(due);
    }

    fn note_damage(&mut self) {
        let count = self.reader.damage_count();
        if count > self.damages {
            let found = self.reader.damages().iter().skip(self.damages as usize);
            self.intake
                .cost(nprof_stream::number::total(found.filter_map(|damage| damage.samples)));
            self.damages = count;
        }
        self.intake.tell_cost();
    }

    /// What was wrong with the stream, once it is over.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        (self.reader.verdict() != Verdict::Complete).then(|| Trouble::of(&self.name, &self.reader))
    }
}

/// The segment at hand.
#[derive(Debug)]
struct Segment {
    head: Box<Head>,
    /// What makes its times times of day, modulo 2^64.
    offset: u64,
    /// Whether it has told of runs that were merged into it.
    is_merged: bool,
    /// The runs that are known: these, or its own one.
    runs: FxHashSet<RunId>,
}

/// Takes in a stream's records: what its ids mean, and what is to be written.
#[derive(Debug, Default)]
pub(super) struct Intake {
    pub(super) meanings: Meanings,
    pub(super) known: Known,
    queue: VecDeque<Due>,
    /// `None` outside of segments, also where damage took the head.
    segment: Option<Segment>,
    /// What damage has cost and has not been told yet.
    cost: Option<u64>,
    /// How many records were dropped because nobody knows which ids they hold.
    pub(super) unknown: u64,
}

impl Intake {
    /// Takes in the next record. Fails with the run whose time of day is not known.
    fn take(&mut self, record: &Record<'_>) -> Result<(), RunId> {
        match record {
            Record::Head(head) => return self.begin(head),
            Record::Step(step) => self.queue.push_back((0, Item::Step(step.clone()))),
            // It holds no ids and no time.
            Record::Naming(naming) => self.queue.push_back((0, Item::Naming(naming.clone()))),
            Record::Unknown(_) => self.unknown += 1,
            Record::Run(head) => {
                if let Some(segment) = &mut self.segment {
                    segment.is_merged = true;
                }
                self.declare(head);
            }
            Record::RunEnd(ran) => self.queue.push_back((0, Item::RunEnd(ran.clone()))),
            record => {
                self.settle();
                self.take_content(record);
            }
        }
        Ok(())
    }

    /// Takes in a record that is not about the segment as a whole.
    fn take_content(&mut self, record: &Record<'_>) {
        let Some(offset) = self.segment.as_ref().map(|segment| segment.offset) else {
            // Neither its time nor its run can be told.
            if let Record::Sample(sample) = record {
                self.cost(sample.count);
            }
            return;
        };
        let on_day = |time: u64| time.wrapping_add(offset);
        match record {
            Record::End(end) => self.end(end),
            Record::Epoch(_) => self.forget(),
            Record::Sample(sample) => self.sample(sample, on_day(sample.time)),
            Record::Task(task) => {
                let run = self.owner(task.extras);
                let extras = with_run(task.extras, run);
                let time = on_day(task.time);
                let task = Task { time, extras: extras.extras(), ..*task };
                self.meanings.take(&Record::Task(task), &mut self.known);
                self.queue.push_back((time, Item::Task(task.id)));
            }
            Record::Event(event) => {
                self.meanings.take(record, &mut self.known);
                self.queue.push_back((0, Item::Event(event.id)));
            }
            Record::Change(change) => {
                if matches!(change.kind, ChangeKind::Comm | ChangeKind::Exec) {
                    self.meanings.rename(change.task, change.value);
                }
                let time = on_day(change.time);
                let body = body(&Record::Change(Change { time, ..*change }));
                self.queue.push_back((time, Item::Change(body)));
            }
            Record::Lost(lost) => {
                let time = on_day(lost.time);
                let run = self.told(lost.extras).or(self.only_run());
                let run = run.filter(|_| !self.meanings.has_task(lost.task));
                let extras = run.map(|run| with_run(lost.extras, run));
                let extras = extras.as_ref().map_or(lost.extras, ExtrasBuilder::extras);
                let body = body(&Record::Lost(Lost { time, extras, ..*lost }));
                self.queue.push_back((time, Item::Lost(body)));
            }
            definition => {
                self.meanings.take(definition, &mut self.known);
                if let Record::Location(location) = definition
                    && self.known.get(Of::Frame, location.frame.0).is_some()
                {
                    self.queue.push_back((0, Item::Location(location.frame)));
                }
            }
        }
    }

    fn begin(&mut self, head: &Head) -> Result<(), RunId> {
        self.settle();
        self.forget();
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
        // A segment that others were merged into has told the ends of their runs.
        if !segment.is_merged {
            let mut end = end.clone();
            end.more.retain(|(key, _)| key != "run");
            let ran = RunEnd { run: segment.head.run, end };
            self.queue.push_back((0, Item::RunEnd(Box::new(ran))));
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, time: u64) {
        let extras = (!self.meanings.has_task(sample.task)).then(|| {
            let run = self.owner(sample.extras);
            with_run(sample.extras, run)
        });
        let extras = extras.as_ref().map_or(sample.extras, ExtrasBuilder::extras);
        let spelling = extras.spelling().into();
        let sample = Sample { time, extras: Extras::NONE, ..*sample };
        self.queue.push_back((time, Item::Sample(sample, spelling)));
    }

    /// The run of a record: the one it tells, or the segment's own one.
    fn owner(&mut self, extras: Extras<'_>) -> RunId {
        if let Some(run) = self.told(extras) {
            return run;
        }
        let Some(head) = self.segment.as_ref().map(|segment| segment.head.clone()) else {
            return RunId::default();
        };
        self.declare(&head);
        head.run
    }

    /// The run that extras tell, if the segment has told of it.
    fn told(&self, extras: Extras<'_>) -> Option<RunId> {
        let run = RunId(extras.number("run")?);
        self.segment.as_ref()?.runs.contains(&run).then_some(run)
    }

    /// The segment's own run, if no others were merged into it.
    fn only_run(&self) -> Option<RunId> {
        let segment = self.segment.as_ref().filter(|segment| !segment.is_merged)?;
        segment.runs.contains(&segment.head.run).then_some(segment.head.run)
    }

    /// The segment's own run is the only one, unless it has told of others.
    fn settle(&mut self) {
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
        self.meanings.forget();
        self.known.forget();
    }

    /// Damage has cost this many samples at least.
    fn cost(&mut self, samples: u64) {
        self.cost = Some(self.cost.unwrap_or(0).saturating_add(samples));
    }

    /// Lets what damage has cost be written.
    fn tell_cost(&mut self) {
        if let Some(samples) = self.cost.take() {
            self.queue.push_back((0, Item::Damage(samples, self.only_run())));
        }
    }
}

/// The extras, with the run they are of.
pub(super) fn with_run(extras: Extras<'_>, run: RunId) -> ExtrasBuilder {
    ExtrasBuilder::replacing(extras, "run", run.to_string().as_bytes())
}
