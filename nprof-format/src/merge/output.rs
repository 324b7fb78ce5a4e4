//! The merged segment as it is written: its ids, which mean the same whichever input defines
//! it, and its totals.

use std::io::{self, Write};

use nprof_stream::body::push_body;
use nprof_stream::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::meanings::{Body, KINDS, Of, body};

/// The id that is never defined: what an input lost to damage is lost in the output as well.
pub(super) const LOST: u32 = limits::ID;

/// How many distinct steps are remembered, so that they are written once.
const STEPS: usize = 1 << 12;

/// Writes a merged segment.
#[derive(Debug)]
pub(super) struct Output<'a, W> {
    writer: &'a mut Writer<W>,
    /// The most ids of a kind in an epoch; one stack always fits.
    limit: usize,
    pub(super) epoch: u64,
    ids: Ids,
    branch: Branch,
    steps: FxHashSet<Body>,
    /// The runs, with what makes a time of theirs a time of day, if that is known.
    runs: FxHashMap<RunId, Option<u64>>,
    /// Runs that came again.
    pub(super) repeated: Vec<RunId>,
    totals: Totals,
    /// The time of the latest sample so far.
    latest: u64,
    /// The latest time of all so far.
    now: u64,
}

/// The ids of an epoch.
#[derive(Debug, Default)]
struct Ids {
    /// By what they mean. Tasks are only counted: no two are one.
    contents: [FxHashMap<Body, u32>; KINDS],
    nodes: FxHashMap<(NodeId, FrameId), NodeId>,
    tasks: usize,
}

/// Nodes that have ids and have not been written yet, each hanging under the one before it.
#[derive(Debug, Default)]
struct Branch {
    first: NodeId,
    parent: NodeId,
    frames: Vec<FrameId>,
}

/// What the end of the merged segment tells.
#[derive(Debug, Default)]
struct Totals {
    /// How many runs have ended, and the sum of their ends.
    ended: usize,
    end: End,
    lost: u64,
    late: u64,
}

impl<'a, W: Write> Output<'a, W> {
    pub(super) fn new(writer: &'a mut Writer<W>, limit: usize) -> Self {
        Self {
            writer,
            limit,
            epoch: 0,
            ids: Ids::default(),
            branch: Branch::default(),
            steps: FxHashSet::default(),
            runs: FxHashMap::default(),
            repeated: Vec::new(),
            totals: Totals::default(),
            latest: 0,
            now: 0,
        }
    }

    /// Begins the segment, as one of these runs.
    pub(super) fn begin(&mut self, runs: &[Box<Head>]) -> io::Result<()> {
        let head = head(runs);
        self.now = head.utc.unwrap_or(0);
        self.writer.write(&Record::Head(Box::new(head)))
    }

    /// Ends the segment.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let Totals { ended, end, lost, late } = std::mem::take(&mut self.totals);
        // What one run does not tell, nobody knows of all.
        let all = ended == self.runs.len() + self.repeated.len();
        let written = self.writer.totals();
        let end = End {
            reason: if all { end.reason } else { Vec::new() },
            status: end.status,
            time: Some(self.now),
            samples: written.samples,
            records: written.records,
            lost,
            late: Some(late),
            incomplete: end.incomplete.filter(|_| all),
            stitched: end.stitched.filter(|_| all),
            task_ns: end.task_ns.filter(|_| all),
            sampled_ns: end.sampled_ns.filter(|_| all),
            recorder_ns: end.recorder_ns.filter(|_| all),
            recorder_bytes: end.recorder_bytes.filter(|_| all),
            more: Vec::new(),
        };
        self.writer.write(&Record::End(Box::new(end)))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Writes a step that has not been written yet.
    pub(super) fn step(&mut self, step: &Step) -> io::Result<()> {
        let step = Record::Step(Box::new(step.clone()));
        let key = body(&step);
        if self.steps.contains(&key) {
            return Ok(());
        }
        if self.steps.len() < STEPS {
            self.steps.insert(key);
        }
        self.writer.write(&step)
    }

    /// Writes how naming the frames of an image went in a run.
    pub(super) fn naming(&mut self, naming: &Naming) -> io::Result<()> {
        self.writer.write(&Record::Naming(Box::new(naming.clone())))
    }

    /// Writes of a run that it is in the segment.
    pub(super) fn run(&mut self, head: &Head) -> io::Result<()> {
        let offset = head.utc.zip(head.time).map(|(utc, time)| utc.wrapping_sub(time));
        if self.runs.insert(head.run, offset).is_some() {
            self.repeated.push(head.run);
            return Ok(());
        }
        self.writer.write(&Record::Run(Box::new(head.clone())))
    }

    /// Writes how a run ended.
    pub(super) fn ran(&mut self, ran: &RunEnd) -> io::Result<()> {
        let offset = self.runs.get(&ran.run).copied().flatten();
        if let Some((time, offset)) = ran.end.time.zip(offset) {
            self.now = self.now.max(time.wrapping_add(offset));
        }
        self.totals.add(&ran.end);
        self.writer.write(&Record::RunEnd(Box::new(ran.clone())))
    }

    /// Writes a sample whose ids are those of the output.
    pub(super) fn sample(&mut self, sample: Sample<'_>) -> io::Result<()> {
        self.totals.late += u64::from(sample.time < self.latest);
        self.latest = self.latest.max(sample.time);
        self.now = self.now.max(sample.time);
        self.writer.write(&Record::Sample(sample))
    }

    /// Writes a change whose task is one of the output.
    pub(super) fn change(&mut self, change: Change<'_>) -> io::Result<()> {
        self.now = self.now.max(change.time);
        self.writer.write(&Record::Change(change))
    }

    /// Writes a loss whose ids are those of the output.
    pub(super) fn lost(&mut self, lost: Lost<'_>) -> io::Result<()> {
        // What was lost of no event are records of processes and mappings.
        if !lost.event.is_none() || lost.cause == Cause::Damage {
            self.totals.lost = self.totals.lost.saturating_add(lost.count);
        }
        self.now = self.now.max(lost.time);
        self.writer.write(&Record::Lost(lost))
    }

    /// Writes that damage was found.
    pub(super) fn damage(&mut self, count: u64, extras: Extras<'_>) -> io::Result<()> {
        self.lost(Lost {
            time: self.now,
            event: EventId::NONE,
            cpu: NO_CPU,
            task: TaskId::NONE,
            count,
            cause: Cause::Damage,
            extras,
        })
    }

    /// Whether so many more ids of a kind fit into the epoch.
    pub(super) fn has_room(&self, more: usize) -> bool {
        let contents = self.ids.contents.iter().map(FxHashMap::len).max().unwrap_or(0);
        let used = contents.max(self.ids.nodes.len()).max(self.ids.tasks);
        used == 0 || used + more <= self.limit
    }

    /// Whether an event has been defined in this epoch.
    pub(super) fn has_event(&self) -> bool {
        !self.ids.contents[Of::Event as usize].is_empty()
    }

    /// Forgets all ids.
    pub(super) fn begin_epoch(&mut self) -> io::Result<()> {
        self.epoch += 1;
        self.ids = Ids::default();
        self.writer.write(&Record::Epoch(Epoch { number: self.epoch, more: Vec::new() }))
    }

    /// The id of what a record defines, whose own id is 0. Defines it if that is new.
    pub(super) fn define(&mut self, of: Of, record: Record<'_>) -> io::Result<u32> {
        let (id, is_new) = self.intern(of, body(&record));
        if is_new {
            self.writer.write(&named(record, id))?;
        }
        Ok(id)
    }

    /// The id of a frame, whose own id is 0, with its location. Defines them if they are new.
    pub(super) fn define_frame(
        &mut self,
        frame: Frame<'_>,
        location: Option<Location<'_>>,
    ) -> io::Result<FrameId> {
        let mut key = body(&Record::Frame(frame)).into_vec();
        if let Some(location) = location {
            // A frame's extras, which end it, hold no newline.
            key.push(b'\n');
            push_body(&mut key, &Record::Location(location));
        }
        let (id, is_new) = self.intern(Of::Frame, key.into());
        let id = FrameId(id);
        if is_new {
            self.writer.write(&Record::Frame(Frame { id, ..frame }))?;
            if let Some(location) = location {
                self.writer.write(&Record::Location(Location { frame: id, ..location }))?;
            }
        }
        Ok(id)
    }

    /// Writes the location of a frame that has been defined, by ids of the output.
    pub(super) fn locate(&mut self, location: Location<'_>) -> io::Result<()> {
        self.writer.write(&Record::Location(location))
    }

    /// Defines a task whose parent is one of the output.
    pub(super) fn define_task(&mut self, task: Task<'_>) -> io::Result<TaskId> {
        if self.ids.tasks + 1 >= LOST as usize {
            return Ok(TaskId(LOST));
        }
        self.ids.tasks += 1;
        let id = TaskId(self.ids.tasks as u32);
        self.writer.write(&Record::Task(Task { id, ..task }))?;
        Ok(id)
    }

    fn intern(&mut self, of: Of, content: Body) -> (u32, bool) {
        let ids = &mut self.ids.contents[of as usize];
        let next = ids.len() as u32 + 1;
        if let Some(&id) = ids.get(&content) {
            return (id, false);
        }
        if next >= LOST {
            return (LOST, false);
        }
        ids.insert(content, next);
        (next, true)
    }

    /// The id of a node. A new one is written by [`Output::end_branch`] at the latest, which
    /// must come before anything uses it.
    pub(super) fn node(&mut self, parent: NodeId, frame: FrameId) -> io::Result<NodeId> {
        if let Some(&node) = self.ids.nodes.get(&(parent, frame)) {
            return Ok(node);
        }
        let node = NodeId(self.ids.nodes.len() as u32 + 1);
        if node.0 >= LOST {
            return Ok(parent);
        }
        self.ids.nodes.insert((parent, frame), node);
        if self.branch.frames.is_empty() {
            (self.branch.first, self.branch.parent) = (node, parent);
        }
        self.branch.frames.push(frame);
        if self.branch.frames.len() == limits::DEPTH {
            self.end_branch()?;
        }
        Ok(node)
    }

    /// Writes the nodes that are new.
    pub(super) fn end_branch(&mut self) -> io::Result<()> {
        let Branch { first, parent, frames } = &mut self.branch;
        if !frames.is_empty() {
            let nodes = Nodes { first: *first, parent: *parent, frames };
            self.writer.write(&Record::Nodes(nodes))?;
            frames.clear();
        }
        Ok(())
    }
}

impl Totals {
    /// Adds the end of one more run.
    fn add(&mut self, other: &End) {
        let add = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let end = &mut self.end;
        if self.ended == 0 {
            *end = other.clone();
        } else {
            if end.reason != other.reason {
                end.reason.clear();
            }
            end.status = end.status.max(other.status);
            end.incomplete = add(end.incomplete, other.incomplete);
            end.stitched = add(end.stitched, other.stitched);
            end.task_ns = add(end.task_ns, other.task_ns);
            end.sampled_ns = add(end.sampled_ns, other.sampled_ns);
            end.recorder_ns = add(end.recorder_ns, other.recorder_ns);
            end.recorder_bytes =
                end.recorder_bytes.zip(other.recorder_bytes).map(|(a, b)| a.max(b));
        }
        self.ended += 1;
    }
}

/// The head of a segment that begins with these runs. Its identity is made of theirs, whatever
/// their order; its clock is the time of day, and a fact they share is one of it.
fn head(runs: &[Box<Head>]) -> Head {
    // One that comes again is told once, as it came first.
    let mut told = FxHashSet::default();
    let runs: Vec<&Head> =
        runs.iter().map(|head| &**head).filter(|head| told.insert(head.run)).collect();
    let runs = &runs[..];
    let begin = runs.iter().filter_map(|head| head.utc).min().unwrap_or(0);
    Head {
        run: RunId(runs.iter().fold(0, |id, head| id ^ head.run.0)),
        clock: b"realtime".to_vec(),
        time: Some(begin),
        utc: Some(begin),
        host: shared(runs, |head| &head.host),
        os: shared(runs, |head| &head.os),
        arch: shared(runs, |head| &head.arch),
        cpu: shared(runs, |head| &head.cpu),
        cpus: shared(runs, |head| &head.cpus),
        page: shared(runs, |head| &head.page),
        command: shared(runs, |head| &head.command),
        more: Vec::new(),
    }
}

/// A fact if all runs have it in common, or else none.
fn shared<T: Clone + Default + PartialEq>(runs: &[&Head], fact: fn(&Head) -> &T) -> T {
    let mut facts = runs.iter().map(|head| fact(head));
    let first = facts.next().cloned().unwrap_or_default();
    if facts.all(|fact| *fact == first) { first } else { T::default() }
}

/// The record with an id.
fn named(record: Record<'_>, id: u32) -> Record<'_> {
    match record {
        Record::Image(image) => Record::Image(Image { id: ImageId(id), ..image }),
        Record::Function(function) => Record::Function(Function { id: FunctionId(id), ..function }),
        Record::File(file) => Record::File(SourceFile { id: FileId(id), ..file }),
        Record::Event(mut event) => {
            event.id = EventId(id);
            Record::Event(event)
        }
        other => other,
    }
}
