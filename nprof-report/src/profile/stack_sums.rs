//! Sums of samples per stack: the first step of every report.
//!
//! Samples are many, stacks are few. A [`Profile`] reads streams and sums the samples that share
//! run, event and stack (and task or CPU, if the report separates these). It passes each sum to
//! the report while the ids in it are still valid: at the end of an epoch, or when [`MAX_SUMS`] sums
//! have accumulated. A report that keeps its own sums by name therefore runs in memory that grows
//! with distinct names, not with the length of the recording.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Deref;

use nprof_stream::tables::{NameId, Tables};
use nprof_stream::*;
use rustc_hash::FxHashMap;

use crate::profile::blocks::Blocks;
use crate::profile::group::{GroupKey, Sum};
use crate::profile::join::Joins;
use crate::profile::key::{Key, SampleExtra};
use crate::profile::run_losses::RunLosses;
use crate::profile::runs::Runs;
use crate::profile::stack_sums::equal_samples::{Added, EqualSamples};
use crate::profile::summary::{Run, Summary};
use crate::profile::time::{Span, TimeSplit};

/// The properties that separate samples besides run, event and stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupBy {
    /// Task and the name it had.
    pub task: bool,
    /// CPU.
    pub cpu: bool,
    /// Extras, by [`SampleExtra::index`].
    pub extras: [bool; SampleExtra::ALL.len()],
    /// Time within the run.
    pub time: TimeSplit,
    /// The age that samples must have, in ns; others are outside of the time.
    pub age: Option<Span>,
}

impl GroupBy {
    /// True if samples are separated by this extra.
    pub fn has(&self, extra: SampleExtra) -> bool {
        self.extras[extra.index()]
    }

    /// Separates samples by every property of `other`, too, except time.
    pub fn add(&mut self, other: Self) {
        self.task |= other.task;
        self.cpu |= other.cpu;
        for (own, other) in self.extras.iter_mut().zip(other.extras) {
            *own |= other;
        }
    }

    /// Separates samples by the property of a key, if it is one of samples.
    pub fn add_key(&mut self, key: Key) {
        match key {
            Key::Process | Key::Thread | Key::Command => self.task = true,
            Key::Cpu => self.cpu = true,
            Key::Extra(extra) => self.extras[extra.index()] = true,
            Key::Event | Key::Run | Key::Slice | Key::Path | Key::Call(_) => {}
        }
    }
}

/// The definitions of the ids in a sum, valid while the sum is passed to the report.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The definitions of ids.
    pub tables: &'a Tables,
    /// The runs and events that group keys name by index. Its sums include the sum that is passed.
    pub summary: &'a Summary,
    /// The blocks of memory in the sum. None unless the event measures bytes.
    pub blocks: Option<Blocks>,
}

impl Deref for Context<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        self.tables
    }
}

/// The number of sums after which they are passed to the report: about 40 MB of hash tables
/// (41 bytes a slot, up to 2^20 slots).
const MAX_SUMS: usize = 1 << 19;

/// The memory of the definitions of an epoch. A million nodes (12 MB) and 700,000 names of 32 bytes are below;
/// a stream may have many names of 64 KiB, or 67 million nodes.
const MAX_TABLE_BYTES: usize = 96 << 20;

/// The most ids of events of a segment. Samples of later ones are of an event without a definition.
const MAX_EVENT_IDS: usize = 1 << 18;

/// A group takes as much memory as this number of sums: its key twice, a hash table of its own and
/// its slot in the index are about 500 bytes. With short time slices every sample has its own group.
const SUMS_OF_GROUP: usize = 12;

/// Reads streams and sums their samples.
#[derive(Debug, Default)]
pub struct Profile {
    /// A summary of the streams read so far.
    pub summary: Summary,
    tables: Tables,
    group_by: GroupBy,
    joins: Joins,
    losses: RunLosses,
    /// Sums by stack, in groups that share all other properties.
    groups: Vec<Group>,
    /// Further samples of one of the groups.
    equal: EqualSamples,
    group_index: FxHashMap<GroupKey, usize>,
    /// The properties of the last sample and the index of its group in `groups`: successive samples
    /// mostly share it. Cleared by every other record, which may change the meaning of ids.
    /// Absent if groups depend on extras.
    last: Option<(EventId, usize, TaskId, u32, Option<u64>, usize)>,
    /// The last sample, if the next one with its properties is counted in `equal`: cleared with `last`,
    /// and absent if the group of a sample depends on more than event, task and CPU.
    repeated: Option<Repeated>,
    /// By group and stack, the blocks of events that measure bytes.
    blocks: FxHashMap<(usize, NodeId), Blocks>,
    /// Number of sums in all groups, and those that take as much memory as the groups and blocks.
    sums: usize,
    /// Index into `summary.events` of each event of the epoch.
    events: FxHashMap<EventId, usize>,
    /// The runs of the segment.
    runs: Runs,
    /// Index into `summary.runs` of the last sample's run.
    run: usize,
}

/// The properties of a sample that was counted in `equal`.
#[derive(Clone, Copy, Debug)]
struct Repeated {
    event: EventId,
    task: TaskId,
    cpu: u32,
    weight: u64,
}

/// Sums that share all properties but the stack.
#[derive(Debug)]
struct Group {
    /// The shared properties; the node is unused.
    key: GroupKey,
    /// True if its samples represent blocks of memory.
    has_blocks: bool,
    sums: FxHashMap<NodeId, Sum>,
}

impl Profile {
    /// Creates a profile without samples.
    pub fn new(group_by: GroupBy) -> Self {
        let tables = Tables::within(MAX_TABLE_BYTES);
        Self { group_by, tables, ..Self::default() }
    }

    /// Adds the samples of some events into others, from the next record on.
    #[must_use]
    pub fn joining(mut self, joins: Joins) -> Self {
        self.joins = joins;
        self
    }

    /// Returns the tables, for the names in them.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Reads a stream to its end and passes every sum to `sink`; the same key may come several times.
    /// Messages refer to the stream as `name`.
    ///
    /// # Errors
    ///
    /// See [`Error`]. Sums of the records before the error have been passed to `sink`.
    pub fn read(
        &mut self,
        name: &str,
        input: impl Read,
        mut sink: impl FnMut(&Context<'_>, &GroupKey, Sum),
    ) -> Result<(), Error> {
        let mut reader = Reader::new(input);
        self.begin(name);
        let result = loop {
            self.take_samples(&mut reader, MAX_SUMS, &mut sink);
            match reader.next() {
                Ok(Some(record)) => self.take(&record, &mut sink),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.end(&reader, &mut sink);
        result
    }

    /// Processes the samples that the reader can return next without any other record, as nearly all
    /// records of a binary stream are; stops when there are `max_sums` sums. The caller passes the
    /// record after them to [`Profile::take`].
    pub fn take_samples<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        max_sums: usize,
        sink: &mut impl FnMut(&Context<'_>, &GroupKey, Sum),
    ) {
        let max_sums = max_sums.min(MAX_SUMS);
        reader.plain_samples(|sample| {
            if !self.add_repeated(sample) {
                self.add(sample);
            }
            self.sums < max_sums
        });
        if self.sums >= MAX_SUMS {
            self.pass_sums(sink);
        }
    }

    /// Returns the number of sums that have accumulated.
    pub(crate) fn sums(&self) -> usize {
        self.sums
    }

    /// True if [`Profile::take`] passes the accumulated sums on when it gets this record.
    pub(crate) fn must_pass_sums_before(&self, record: &Record<'_>) -> bool {
        !self.groups.is_empty() && matches!(record, Record::Head(_) | Record::Epoch(_))
    }

    /// Continues the summary of earlier streams, in which this stream's runs and events come last.
    /// Afterwards, the tables' generation is greater than `generation`. To be called before any
    /// sum was passed on.
    pub(crate) fn follow(&mut self, earlier: Summary, generation: u64) {
        self.tables.follow(generation);
        let own = std::mem::replace(&mut self.summary, earlier);
        let first_run = self.summary.runs.len();
        let events = self.summary.append(own);
        self.run += first_run;
        self.runs.renumber(first_run);
        for index in self.events.values_mut() {
            *index = events[*index];
        }
        self.group_index.clear();
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.key.run += first_run;
            group.key.event = events[group.key.event];
            self.group_index.insert(group.key, index);
        }
        self.last = None;
        self.repeated = None;
    }

    /// Begins a stream that the caller reads. Messages refer to it as `name`.
    pub fn begin(&mut self, name: &str) {
        // Ids of the previous stream are invalid here, even if damage hides the head of this one.
        self.tables.forget();
        self.events.clear();
        self.summary.runs.push(Run::new(name));
        self.runs.begin(&self.summary.runs);
    }

    /// Processes the next record of the stream.
    pub fn take(
        &mut self,
        record: &Record<'_>,
        sink: &mut impl FnMut(&Context<'_>, &GroupKey, Sum),
    ) {
        match record {
            Record::Sample(sample) => {
                self.add(sample);
                if self.sums >= MAX_SUMS {
                    self.pass_sums(sink);
                }
                return;
            }
            Record::Head(_) | Record::Epoch(_) => {
                self.pass_sums(sink);
                self.events.clear();
                self.runs.forget_tasks();
            }
            _ => {}
        }
        self.last = None;
        self.repeated = None;
        self.tables.apply(record);
        self.summary.has_omissions |= self.tables.has_omissions();
        self.note(record);
    }

    /// Returns the index in [`Summary::runs`] of the last sample's run.
    pub fn run(&self) -> usize {
        self.run
    }

    /// Returns the index in [`Summary::runs`] of the run of a task, or of the run in `extras` if the
    /// task is unknown. None if both are missing.
    pub fn run_of(&self, task: TaskId, extras: Extras<'_>) -> Option<usize> {
        self.runs.run_of_record(task, extras, &self.tables)
    }

    /// Ends a stream and notes the verdict of its reader.
    pub fn end<R: Read>(
        &mut self,
        reader: &Reader<R>,
        sink: &mut impl FnMut(&Context<'_>, &GroupKey, Sum),
    ) {
        self.pass_sums(sink);
        // The verdict is final only after the last record.
        if reader.verdict() != Verdict::Complete {
            let name = self.summary.runs.last().map_or("", |run| &run.input);
            self.summary.incomplete_inputs.push(IncompleteInput::of(name, reader));
        }
    }

    /// Updates the summary from a record other than a sample.
    fn note(&mut self, record: &Record<'_>) {
        if let (Record::Head(_), Some(last)) = (record, self.summary.runs.last()) {
            // The first head describes the run that `begin` added. Later heads, and heads after
            // damage that hid the first one, begin another run.
            if last.head.is_some() || last.samples > 0 {
                let name = last.input.clone();
                self.summary.runs.push(Run::new(&name));
            }
        }
        if let Record::Lost(lost) = record {
            // The kernel does not attribute every loss to an event: report it once, with the first.
            let first = self.events.values().min().copied().filter(|_| lost.event.is_none());
            let event = first.unwrap_or_else(|| self.event_index(lost.event));
            self.summary.note_lost(event, lost);
            self.losses.note(event, lost);
        }
        match record {
            Record::Head(_) => self.losses = RunLosses::default(),
            Record::End(end) => std::mem::take(&mut self.losses).end(end.lost, &mut self.summary),
            _ => {}
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
            Record::RunEnd(ran) => self.runs.ran(ran, runs),
            Record::End(end) => self.runs.end(end, runs),
            Record::Task(task) => self.runs.task(task),
            Record::Naming(naming) => self.summary.remedies.note(naming),
            Record::Location(location) if !self.summary.symbolized => {
                // The recorder itself names code that was generated at run time.
                let frame = self.tables.frame(location.frame);
                let image = frame.and_then(|frame| self.tables.image(frame.image));
                let is_runtime_code = location.status == Status::Named
                    && image.is_some_and(|image| image.kind == ImageKind::Anonymous);
                self.summary.symbolized = !is_runtime_code;
            }
            Record::Event(event) => {
                let index = match self.joins.of(event) {
                    None => self.summary.event(event),
                    Some(join) => {
                        self.summary.joined_event(join.name(), std::slice::from_ref(event))
                    }
                };
                self.summary.events[index].overhead.note(event);
                self.define(event.id, index);
            }
            _ => {}
        }
    }

    fn event_index(&mut self, id: EventId) -> usize {
        if let Some(&index) = self.events.get(&id) {
            return index;
        }
        let index = self.summary.undefined_event();
        self.define(id, index);
        index
    }

    fn define(&mut self, id: EventId, index: usize) {
        if self.events.len() < MAX_EVENT_IDS {
            self.events.insert(id, index);
        }
    }

    /// Adds a sample that repeats the properties of the last one and is not the first of its stack. False
    /// if it is another.
    #[inline(always)] // the fields of the sample stay in registers
    fn add_repeated(&mut self, sample: &Sample<'_>) -> bool {
        let Some(last) = self.repeated else { return false };
        let GroupBy { task, cpu, .. } = self.group_by;
        sample.event == last.event
            && (!task || sample.task == last.task)
            && (!cpu || sample.cpu == last.cpu)
            && sample.weight == last.weight
            && sample.count == 1
            && self.equal.add_again(sample.node)
    }

    #[inline(never)]
    fn add(&mut self, sample: &Sample<'_>) {
        let task = if self.group_by.task { sample.task } else { TaskId::NONE };
        let cpu = if self.group_by.cpu { sample.cpu } else { NO_CPU };
        let run = self.runs.of(sample, &self.tables, &mut self.summary.runs);
        self.run = run;
        let slice = self.slice(sample);
        let group = match self.last {
            Some((last_event, last_run, last_task, last_cpu, last_slice, group))
                if (last_event, last_run, last_task, last_cpu, last_slice)
                    == (sample.event, run, task, cpu, slice) =>
            {
                group
            }
            _ => {
                let extras = self.extras(sample);
                self.find_group(sample.event, run, task, cpu, extras, slice)
            }
        };
        let has_blocks = self.groups[group].has_blocks;
        // Other events pay one comparison for it.
        if has_blocks {
            let before = self.blocks.len();
            self.blocks.entry((group, sample.node)).or_default().add(Blocks::of(sample));
            self.sums += self.blocks.len() - before;
        }
        if sample.count == 1 {
            match self.equal.add(group, sample.weight, sample.node) {
                // Counts distinct stacks: only these take memory.
                Added::First => self.sums += 1,
                Added::Again => {}
                Added::Not => return self.add_unequal(group, sample),
            }
            let &Sample { event, task, cpu, weight, .. } = sample;
            let repeated = Repeated { event, task, cpu, weight };
            let is_in_group = !has_blocks
                && self.group_by.time.is_none()
                && self.group_by.age.is_none()
                && !self.groups_by_extras()
                && !self.runs.are_merged();
            self.repeated = is_in_group.then_some(repeated);
        } else {
            self.add_unequal(group, sample);
        }
    }

    /// Adds a sample that is not counted with those of equal weight.
    fn add_unequal(&mut self, group: usize, sample: &Sample<'_>) {
        self.add_to_group(group, sample.node, Sum::of(sample.count, sample.weight));
        if sample.count == 1 && self.equal.should_move(group, sample.weight) {
            self.repeated = None;
            let mut equal = std::mem::take(&mut self.equal);
            if let Some(group) = equal.group() {
                self.sums -= equal.nodes().len();
                for &node in equal.nodes() {
                    self.add_to_group(group, node, equal.sum(node));
                }
            }
            equal.move_to(group, sample.weight);
            self.equal = equal;
        }
    }

    fn add_to_group(&mut self, group: usize, node: NodeId, sum: Sum) {
        let sums = &mut self.groups[group].sums;
        let before = sums.len();
        sums.entry(node).or_default().add(sum);
        self.sums += sums.len() - before;
    }

    /// Returns the time slice of a sample of the current run. None if it does not count.
    fn slice(&mut self, sample: &Sample<'_>) -> Option<u64> {
        if let Some(span) = self.group_by.age
            && !sample.extras.number("age").is_some_and(|age| span.contains(age))
        {
            return None;
        }
        if self.group_by.time.is_none() {
            return Some(0);
        }
        let run = &mut self.summary.runs[self.run];
        let start = *run.start.get_or_insert(sample.time);
        self.group_by.time.slice_of(sample.time.saturating_sub(start))
    }

    fn groups_by_extras(&self) -> bool {
        self.group_by.extras.contains(&true)
    }

    /// Returns the extras that separate samples. None without any.
    fn extras(&mut self, sample: &Sample<'_>) -> Option<NameId> {
        if !self.groups_by_extras() {
            return None;
        }
        let event = self.tables.event(sample.event);
        let is_runnable = event
            .is_some_and(|event| event.measure == Measure::WaitTime && event.name == b"runnable");
        let mut kept = ExtrasBuilder::new();
        for extra in SampleExtra::ALL.into_iter().filter(|&extra| self.group_by.has(extra)) {
            let stated = sample.extras.get(extra.name());
            let implied = extra.of_preempted().filter(|_| is_runnable).map(Cow::Borrowed);
            if let Some(value) = stated.or(implied) {
                kept.add(extra.name(), &value);
            }
        }
        let kept = kept.extras();
        (!kept.is_empty()).then(|| self.tables.name(kept.encoded()))
    }

    /// Returns the index of the group for an event, run, task, CPU, extras and time slice; adds the
    /// group if there is none.
    fn find_group(
        &mut self,
        event: EventId,
        run: usize,
        task: TaskId,
        cpu: u32,
        extras: Option<NameId>,
        slice: Option<u64>,
    ) -> usize {
        let comm = self.tables.task(task).map_or(NameId::default(), |task| task.comm);
        let index = self.event_index(event);
        let key =
            GroupKey { run, event: index, task, comm, cpu, extras, slice, node: NodeId::NONE };
        let group = match self.group_index.get(&key) {
            Some(&group) => group,
            None => {
                let has_blocks = self.summary.events[index].event.measure == Measure::Bytes;
                self.groups.push(Group { key, has_blocks, sums: FxHashMap::default() });
                self.sums += SUMS_OF_GROUP;
                self.group_index.insert(key, self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        if !self.groups_by_extras() {
            self.last = Some((event, run, task, cpu, slice, group));
        }
        group
    }

    /// Passes the sums that have accumulated to `sink`, and forgets them. A report of a live stream then has
    /// them before their epoch ends.
    pub fn pass_sums(&mut self, sink: &mut impl FnMut(&Context<'_>, &GroupKey, Sum)) {
        for (index, group) in std::mem::take(&mut self.groups).iter().enumerate() {
            for (key, sum) in sums_of(index, group, &self.equal) {
                self.summary.count(&key, sum, self.tables.stack_mark(key.node));
                self.summary.events[key.event].unnamed.add(&self.tables, key.node, sum);
                let blocks = self.blocks.get(&(index, key.node)).copied();
                let context = Context { tables: &self.tables, summary: &self.summary, blocks };
                sink(&context, &key, sum);
            }
        }
        self.equal.clear();
        self.blocks.clear();
        self.group_index.clear();
        self.last = None;
        self.repeated = None;
        self.sums = 0;
    }

    /// Returns the summary of a stream that is still being read, and passes the sums that have
    /// accumulated to `sink`. Leaves the profile unchanged.
    pub fn snapshot(&self, mut sink: impl FnMut(&Context<'_>, &GroupKey, Sum)) -> Summary {
        let mut summary = Summary { live: true, ..self.summary.clone() };
        for (index, group) in self.groups.iter().enumerate() {
            for (key, sum) in sums_of(index, group, &self.equal) {
                summary.count(&key, sum, self.tables.stack_mark(key.node));
                summary.events[key.event].unnamed.add(&self.tables, key.node, sum);
                let blocks = self.blocks.get(&(index, key.node)).copied();
                sink(&Context { tables: &self.tables, summary: &summary, blocks }, &key, sum);
            }
        }
        summary
    }
}

/// Returns the sums of the group with this index.
fn sums_of<'a>(
    index: usize,
    group: &'a Group,
    equal: &'a EqualSamples,
) -> impl Iterator<Item = (GroupKey, Sum)> + 'a {
    let equal = (equal.group() == Some(index)).then_some(equal);
    let with_equal = move |(&node, &sum): (&NodeId, &Sum)| {
        let mut sum = sum;
        equal.iter().for_each(|equal| sum.add(equal.sum(node)));
        (node, sum)
    };
    let only_equal = equal.into_iter().flat_map(|equal| {
        let nodes = equal.nodes().iter().filter(|node| !group.sums.contains_key(*node));
        nodes.map(|&node| (node, equal.sum(node)))
    });
    let sums = group.sums.iter().map(with_equal).chain(only_equal);
    sums.map(|(node, sum)| (GroupKey { node, ..group.key }, sum))
}

mod equal_samples;
#[cfg(test)]
mod tests;
