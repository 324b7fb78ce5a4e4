//! Sums of samples per stack: the first step of every report.
//!
//! Samples are many, stacks are few. A [`Profile`] reads streams, adds up the samples that have
//! run, event and stack in common (and task or CPU, where the report keeps these apart), and
//! hands each sum to the report while the ids in it can still be looked up: at the end of an
//! epoch, or when enough distinct sums have gathered. A report that keeps its own sums by name
//! therefore runs in memory that grows with distinct names and not with the length of the
//! recording.

use std::io::Read;
use std::ops::Deref;

use nprof_stream::tables::{NameId, Tables};
use nprof_stream::*;
use rustc_hash::FxHashMap;

use crate::profile::cell::{Cell, Sum};
use crate::profile::runs::Runs;
use crate::profile::summary::{Run, Summary};
use crate::profile::time::TimeSplit;

/// What keeps samples apart beside run, event and stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    /// Task and the name it had.
    pub task: bool,
    /// CPU.
    pub cpu: bool,
    /// When it was taken.
    pub time: TimeSplit,
}

/// What is known while sums are handed on. Its ids are looked up in the tables.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What ids stand for.
    pub tables: &'a Tables,
    /// The runs and events that cells name by index. What is handed on is in its sums already.
    pub summary: &'a Summary,
}

impl Deref for Context<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        self.tables
    }
}

/// Sums are handed on when this many have gathered.
const CELLS: usize = 1 << 20;

/// Reads streams and sums their samples.
#[derive(Debug, Default)]
pub struct Profile {
    /// What is known of the streams read so far.
    pub summary: Summary,
    tables: Tables,
    split: Split,
    /// The sums by stack, in groups that have all else in common.
    groups: Vec<Group>,
    group_index: FxHashMap<Cell, usize>,
    /// The index into `groups` of the last sample's group, and what it was found by. Forgotten
    /// at every record that is no sample.
    last: Option<(EventId, usize, TaskId, u32, Option<u64>, usize)>,
    /// How many sums there are in all groups.
    cells: usize,
    /// Index into `summary.events` of each event of the epoch.
    events: FxHashMap<EventId, usize>,
    /// The runs of the segment.
    runs: Runs,
    /// Index into `summary.runs` of the last sample's run.
    run: usize,
}

/// Sums that have all in common but the stack.
#[derive(Debug)]
struct Group {
    /// What they have in common; its node means nothing.
    cell: Cell,
    sums: FxHashMap<NodeId, Sum>,
}

impl Profile {
    /// Nothing read yet.
    pub fn new(split: Split) -> Self {
        Self { split, ..Self::default() }
    }

    /// The tables, for the names in them.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Reads a stream to its end and hands every sum to `sink`, some cells more than once.
    /// `name` is what messages call the stream.
    ///
    /// # Errors
    ///
    /// See [`Error`]. What was read before has been handed on.
    pub fn read(
        &mut self,
        name: &str,
        input: impl Read,
        mut sink: impl FnMut(&Context<'_>, &Cell, Sum),
    ) -> Result<(), Error> {
        let mut reader = Reader::new(input);
        self.begin(name);
        let result = loop {
            match reader.next() {
                Ok(Some(record)) => self.take(&record, &mut sink),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end(&reader, &mut sink);
        result
    }

    /// Begins with a stream that is read by the caller, and that messages call `name`.
    pub fn begin(&mut self, name: &str) {
        // The ids of another stream mean nothing in this one, even if its head is damaged.
        self.tables.forget();
        self.events.clear();
        self.summary.runs.push(Run::new(name));
        self.runs.begin(&self.summary.runs);
    }

    /// Takes in the stream's next record.
    pub fn take(&mut self, record: &Record<'_>, sink: &mut impl FnMut(&Context<'_>, &Cell, Sum)) {
        match record {
            Record::Sample(sample) => {
                self.add(sample);
                if self.cells >= CELLS {
                    self.hand_on(sink);
                }
                return;
            }
            Record::Head(_) | Record::Epoch(_) => {
                self.hand_on(sink);
                self.events.clear();
                self.runs.forget_tasks();
            }
            _ => {}
        }
        self.last = None;
        self.tables.apply(record);
        self.note(record);
    }

    /// The index in [`Summary::runs`] of the run that the last sample is of.
    pub fn run(&self) -> usize {
        self.run
    }

    /// The index in [`Summary::runs`] of the run that a task is of, or what tells in `extras`
    /// where there is no task. `None` where nobody tells.
    pub fn run_of(&self, task: TaskId, extras: Extras<'_>) -> Option<usize> {
        self.runs.told(task, extras, &self.tables)
    }

    /// Ends a stream, with what its reader has found.
    pub fn end<R: Read>(
        &mut self,
        reader: &Reader<R>,
        sink: &mut impl FnMut(&Context<'_>, &Cell, Sum),
    ) {
        self.hand_on(sink);
        if reader.verdict() != Verdict::Complete {
            let name = self.summary.runs.last().map_or("", |run| &run.input);
            self.summary.troubles.push(Trouble::of(name, reader));
        }
    }

    /// What a record that is no sample tells the summary.
    fn note(&mut self, record: &Record<'_>) {
        if let (Record::Head(_), Some(last)) = (record, self.summary.runs.last()) {
            // The run that was begun with the stream is this one, unless it has been used.
            if last.head.is_some() || last.samples > 0 {
                let name = last.input.clone();
                self.summary.runs.push(Run::new(&name));
            }
        }
        if let Record::Lost(lost) = record {
            // A loss that no event can be blamed for is told with the first.
            let first = self.events.values().min().copied().filter(|_| lost.event.is_none());
            let event = first.unwrap_or_else(|| self.event_index(lost.event));
            self.summary.note_lost(event, lost);
        }
        let runs = &mut self.summary.runs;
        match record {
            Record::Head(head) => {
                if let Some(run) = runs.last_mut() {
                    run.head = Some((**head).clone());
                    run.start = head.time;
                }
                self.runs.begin(runs);
            }
            Record::Step(step) => {
                if let Some(run) = runs.last_mut() {
                    run.steps.push((**step).clone());
                }
            }
            Record::Run(head) => self.runs.declare(head, runs),
            Record::Ran(ran) => self.runs.ran(ran, runs),
            Record::End(end) => self.runs.end(end, runs),
            Record::Task(task) => self.runs.task(task),
            Record::Location(_) => self.summary.symbolized = true,
            Record::Event(event) => {
                let index = self.summary.event(event);
                self.events.insert(event.id, index);
            }
            _ => {}
        }
    }

    fn event_index(&mut self, id: EventId) -> usize {
        if let Some(&index) = self.events.get(&id) {
            return index;
        }
        let index = self.summary.undefined_event();
        self.events.insert(id, index);
        index
    }

    fn add(&mut self, sample: &Sample<'_>) {
        let task = if self.split.task { sample.task } else { TaskId::NONE };
        let cpu = if self.split.cpu { sample.cpu } else { NO_CPU };
        let run = self.runs.of(sample, &self.tables, &mut self.summary.runs);
        self.run = run;
        let slice = self.slice(sample.time);
        let group = match self.last {
            Some((last_event, last_run, last_task, last_cpu, last_slice, group))
                if (last_event, last_run, last_task, last_cpu, last_slice)
                    == (sample.event, run, task, cpu, slice) =>
            {
                group
            }
            _ => self.find_group(sample.event, run, task, cpu, slice),
        };
        let sums = &mut self.groups[group].sums;
        let before = sums.len();
        let sum = Sum { samples: sample.count, weight: sample.weight };
        sums.entry(sample.node).or_default().add(sum);
        self.cells += sums.len() - before;
    }

    /// The time slice of a sample of the run at hand.
    fn slice(&mut self, time: u64) -> Option<u64> {
        if self.split.time.is_none() {
            return Some(0);
        }
        let run = &mut self.summary.runs[self.run];
        let start = *run.start.get_or_insert(time);
        self.split.time.slice_of(time.saturating_sub(start))
    }

    /// The index of the group of samples of an event, run, task, CPU and time slice; made if
    /// there is none.
    fn find_group(
        &mut self,
        event: EventId,
        run: usize,
        task: TaskId,
        cpu: u32,
        slice: Option<u64>,
    ) -> usize {
        let comm = self.tables.task(task).map_or(NameId::default(), |task| task.comm);
        let index = self.event_index(event);
        let cell = Cell { run, event: index, task, comm, cpu, slice, node: NodeId::NONE };
        let group = match self.group_index.get(&cell) {
            Some(&group) => group,
            None => {
                self.groups.push(Group { cell, sums: FxHashMap::default() });
                self.group_index.insert(cell, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        self.last = Some((event, run, task, cpu, slice, group));
        group
    }

    /// Hands the sums that have gathered to the report.
    fn hand_on(&mut self, sink: &mut impl FnMut(&Context<'_>, &Cell, Sum)) {
        for group in std::mem::take(&mut self.groups) {
            for (node, sum) in group.sums {
                let cell = Cell { node, ..group.cell };
                self.summary.count(&cell, sum, self.tables.stack_mark(node));
                let context = Context { tables: &self.tables, summary: &self.summary };
                sink(&context, &cell, sum);
            }
        }
        self.group_index.clear();
        self.last = None;
        self.cells = 0;
    }

    /// What is known by now of a stream that is still being read: the summary, with the sums that
    /// have not been handed on yet; `sink` gets these. Reading goes on as if nothing had been
    /// asked.
    pub fn so_far(&self, mut sink: impl FnMut(&Context<'_>, &Cell, Sum)) -> Summary {
        let mut summary = Summary { live: true, ..self.summary.clone() };
        for group in &self.groups {
            for (&node, &sum) in &group.sums {
                let cell = Cell { node, ..group.cell };
                summary.count(&cell, sum, self.tables.stack_mark(node));
                sink(&Context { tables: &self.tables, summary: &summary }, &cell, sum);
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests;
