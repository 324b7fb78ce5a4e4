//! The merged segment: its ids, assigned by content regardless of the input, and its totals.

use std::io::{self, Write};

use nprof_stream::body::push_body;
use nprof_stream::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::definitions::{Body, IdKind, KINDS, body};

/// The id that is never defined: it replaces ids that an input lost to damage.
pub(super) const LOST: u32 = limits::ID;

/// Most distinct steps that are remembered, to write each once.
const STEPS: usize = 1 << 12;

/// Writes a merged segment.
#[derive(Debug)]
pub(super) struct Output<'a, W> {
    writer: &'a mut Writer<W>,
    /// The most ids of a kind in an epoch; one stack always fits.
    limit: usize,
    pub(super) epoch: u64,
    ids: Ids,
    steps: FxHashSet<Body>,
    /// The runs, with the difference between times of day and their times, if known.
    runs: FxHashMap<RunId, Option<u64>>,
    /// Runs that the inputs contain more than once.
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
    /// Ids by content. Tasks are only counted: they are never merged.
    contents: [AssignedIds<Body>; KINDS],
    nodes: AssignedNodes,
    tasks: usize,
    /// The code that was written: its image and offset.
    codes: FxHashSet<(ImageId, u64)>,
}

/// The totals in the end of the merged segment.
#[derive(Debug, Default)]
struct Totals {
    /// Number of runs that have ended; `end` is the sum of their ends.
    ended: usize,
    end: End,
    lost: u64,
    lost_others: u64,
    lost_records: u64,
    late: u64,
}

impl<'a, W: Write> Output<'a, W> {
    pub(super) fn new(writer: &'a mut Writer<W>, limit: usize) -> Self {
        Self {
            writer,
            limit,
            epoch: 0,
            ids: Ids::default(),
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
        // Damage before the first record with a time is dated to the segment's beginning.
        self.now = head.utc.unwrap_or(0);
        self.writer.write(&Record::Head(Box::new(head)))
    }

    /// Ends the segment.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let Totals { ended, end, lost, lost_others, lost_records, late } =
            std::mem::take(&mut self.totals);
        // A total is known only if all runs have ended.
        let all = ended == self.runs.len() + self.repeated.len();
        let written = self.writer.totals();
        let end = End {
            reason: if all { end.reason } else { Vec::new() },
            status: end.status,
            time: Some(self.now),
            samples: written.samples,
            records: written.records,
            lost,
            lost_others: Some(lost_others),
            lost_records: Some(lost_records),
            unseen: end.unseen.filter(|_| all),
            late: Some(late),
            incomplete: end.incomplete.filter(|_| all),
            stitched: end.stitched.filter(|_| all),
            task_ns: end.task_ns.filter(|_| all),
            sampled_ns: end.sampled_ns.filter(|_| all),
            wall_ns: end.wall_ns.filter(|_| all),
            runnable_ns: end.runnable_ns.filter(|_| all),
            blocked_ns: end.blocked_ns.filter(|_| all),
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
        // Recordings of one script have equal steps.
        if self.steps.contains(&key) {
            return Ok(());
        }
        // Beyond this, repeated steps are written again rather than remembered.
        if self.steps.len() < STEPS {
            self.steps.insert(key);
        }
        self.writer.write(&step)
    }

    /// Writes the naming result of an image in a run.
    pub(super) fn naming(&mut self, naming: &Naming) -> io::Result<()> {
        self.writer.write(&Record::Naming(Box::new(naming.clone())))
    }

    /// Declares a run, unless it was declared before.
    pub(super) fn run(&mut self, head: &Head) -> io::Result<()> {
        let offset = head.utc.zip(head.time).map(|(utc, time)| utc.wrapping_sub(time));
        // The same recording twice: its samples count twice, and the user gets a warning.
        if self.runs.insert(head.run, offset).is_some() {
            self.repeated.push(head.run);
            return Ok(());
        }
        self.writer.write(&Record::Run(Box::new(head.clone())))
    }

    /// Writes the end of a run.
    pub(super) fn run_end(&mut self, run_end: &RunEnd) -> io::Result<()> {
        let offset = self.runs.get(&run_end.run).copied().flatten();
        if let Some((time, offset)) = run_end.end.time.zip(offset) {
            self.now = self.now.max(time.wrapping_add(offset));
        }
        self.totals.add(&run_end.end);
        self.writer.write(&Record::RunEnd(Box::new(run_end.clone())))
    }

    /// Writes a sample with ids of the output.
    pub(super) fn sample(&mut self, sample: Sample<'_>) -> io::Result<()> {
        // Readers expect samples in order of time, except those counted here.
        self.totals.late += u64::from(sample.time < self.latest);
        self.latest = self.latest.max(sample.time);
        self.now = self.now.max(sample.time);
        self.writer.write(&Record::Sample(sample))
    }

    /// Writes a change with ids of the output.
    pub(super) fn change(&mut self, change: Change<'_>) -> io::Result<()> {
        self.now = self.now.max(change.time);
        self.writer.write(&Record::Change(change))
    }

    /// Writes a loss with ids of the output.
    pub(super) fn lost(&mut self, lost: Lost<'_>) -> io::Result<()> {
        // A loss without an event is one of sideband records, not of samples.
        if !lost.event.is_none() || lost.cause == Cause::Damage {
            self.totals.lost = self.totals.lost.saturating_add(lost.count);
        }
        self.totals.lost_others = self.totals.lost_others.saturating_add(lost.others());
        self.totals.lost_records = self.totals.lost_records.saturating_add(lost.records());
        self.now = self.now.max(lost.time);
        self.writer.write(&Record::Lost(lost))
    }

    /// Writes a loss to damage.
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

    /// True if `more` ids of a kind fit into the epoch.
    pub(super) fn has_room(&self, more: usize) -> bool {
        let contents = self.ids.contents.iter().map(AssignedIds::len).max().unwrap_or(0);
        let used = contents.max(self.ids.nodes.len()).max(self.ids.tasks);
        assigned_ids::has_room(used, more, self.limit)
    }

    /// True if an event is defined in this epoch.
    pub(super) fn has_event(&self) -> bool {
        !self.ids.contents[IdKind::Event as usize].is_empty()
    }

    /// Forgets all ids.
    pub(super) fn begin_epoch(&mut self) -> io::Result<()> {
        self.epoch += 1;
        // Definitions of an epoch end with it; the inputs' maps follow by its number.
        self.ids = Ids::default();
        self.writer.write(&Record::Epoch(Box::new(Epoch { number: self.epoch, more: Vec::new() })))
    }

    /// Returns the id for the content of a record with id 0; writes its definition if it is new.
    pub(super) fn define(&mut self, of: IdKind, record: Record<'_>) -> io::Result<u32> {
        let (id, is_new) = self.intern(of, body(&record));
        // Equal contents of several inputs share one definition.
        if is_new {
            self.writer.write(&named(record, id))?;
        }
        Ok(id)
    }

    /// Returns the id of a frame with id 0 and its location; writes them if they are new.
    pub(super) fn define_frame(
        &mut self,
        frame: Frame<'_>,
        location: Option<Location<'_>>,
    ) -> io::Result<FrameId> {
        let mut key = body(&Record::Frame(frame)).into_vec();
        if let Some(location) = location {
            // A newline separates both: the extras that end a frame contain none.
            key.push(b'\n');
            push_body(&mut key, &Record::Location(location));
        }
        let (id, is_new) = self.intern(IdKind::Frame, key.into());
        let id = FrameId(id);
        if is_new {
            self.writer.write(&Record::Frame(Frame { id, ..frame }))?;
            if let Some(location) = location {
                self.writer.write(&Record::Location(Location { frame: id, ..location }))?;
            }
        }
        Ok(id)
    }

    /// Writes another location of a frame, with ids of the output.
    pub(super) fn locate(&mut self, location: Location<'_>) -> io::Result<()> {
        self.writer.write(&Record::Location(location))
    }

    /// True if the epoch has no code at this offset of an image yet; the caller must then write it.
    pub(super) fn begin_code(&mut self, image: ImageId, offset: u64) -> bool {
        self.ids.codes.insert((image, offset))
    }

    /// Writes code, with ids of the output.
    pub(super) fn code(&mut self, code: Code<'_>) -> io::Result<()> {
        self.writer.write(&Record::Code(code))
    }

    /// Defines a task; its parent has an id of the output.
    pub(super) fn define_task(&mut self, task: Task<'_>) -> io::Result<TaskId> {
        // LOST is the highest id of the format and is never defined: there are no more ids.
        if self.ids.tasks + 1 >= LOST as usize {
            return Ok(TaskId(LOST));
        }
        self.ids.tasks += 1;
        let id = TaskId(self.ids.tasks as u32);
        self.writer.write(&Record::Task(Task { id, ..task }))?;
        Ok(id)
    }

    fn intern(&mut self, of: IdKind, content: Body) -> (u32, bool) {
        match self.ids.contents[of as usize].assign(content) {
            Assigned::Known(id) => (id, false),
            Assigned::New(id) => (id, true),
            Assigned::Exhausted => (LOST, false),
        }
    }

    /// Returns the id of a node. A new node is written at the latest by [`Output::end_branch`], which the
    /// caller must call before any use of the id.
    pub(super) fn node(&mut self, parent: NodeId, frame: FrameId) -> io::Result<NodeId> {
        // Without more ids, the path is cut off here rather than lost.
        let Some(node) = self.ids.nodes.assign(parent, frame) else { return Ok(parent) };
        if self.ids.nodes.branch_is_full() {
            self.end_branch()?;
        }
        Ok(node)
    }

    /// Writes the new nodes.
    pub(super) fn end_branch(&mut self) -> io::Result<()> {
        if let Some(nodes) = self.ids.nodes.branch() {
            self.writer.write(&Record::Nodes(nodes))?;
            self.ids.nodes.end_branch();
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
            // Runs that ended differently have no common reason.
            if end.reason != other.reason {
                end.reason.clear();
            }
            // The worst status of all runs.
            end.status = end.status.max(other.status);
            end.incomplete = add(end.incomplete, other.incomplete);
            end.stitched = add(end.stitched, other.stitched);
            // Runs without heap and fd events have no number.
            end.unseen = end.unseen.into_iter().chain(other.unseen).reduce(u64::saturating_add);
            end.task_ns = add(end.task_ns, other.task_ns);
            end.sampled_ns = add(end.sampled_ns, other.sampled_ns);
            end.wall_ns = add(end.wall_ns, other.wall_ns);
            end.runnable_ns = add(end.runnable_ns, other.runnable_ns);
            end.blocked_ns = add(end.blocked_ns, other.blocked_ns);
            end.recorder_ns = add(end.recorder_ns, other.recorder_ns);
            end.recorder_bytes =
                // A maximum of memory, which cannot be added up.
                end.recorder_bytes.zip(other.recorder_bytes).map(|(a, b)| a.max(b));
        }
        self.ended += 1;
    }
}

/// Returns the head of a segment that begins with these runs. Its run id combines theirs regardless
/// of their order; its clock is the time of day; it has the facts that all runs share.
fn head(runs: &[Box<Head>]) -> Head {
    // A run that comes twice counts once: the exclusive or would otherwise cancel its id.
    let mut seen = FxHashSet::default();
    let runs: Vec<&Head> =
        runs.iter().map(|head| &**head).filter(|head| seen.insert(head.run)).collect();
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
        service: shared(runs, |head| &head.service),
        service_version: shared(runs, |head| &head.service_version),
        more: Vec::new(),
    }
}

/// Returns a fact if all runs share it, otherwise the default.
fn shared<T: Clone + Default + PartialEq>(runs: &[&Head], fact: fn(&Head) -> &T) -> T {
    let mut facts = runs.iter().map(|head| fact(head));
    let first = facts.next().cloned().unwrap_or_default();
    if facts.all(|fact| *fact == first) { first } else { T::default() }
}

/// Returns the record with an id.
fn named(record: Record<'_>, id: u32) -> Record<'_> {
    match record {
        Record::Image(image) => Record::Image(Image { id: ImageId(id), ..image }),
        Record::Function(function) => Record::Function(Function { id: FunctionId(id), ..function }),
        Record::File(file) => Record::File(SourceFile { id: FileId(id), ..file }),
        Record::Event(mut event) => {
            event.id = EventId(id);
            Record::Event(event)
        }
        // Frames, tasks and nodes get their ids where they are written.
        other => other,
    }
}
