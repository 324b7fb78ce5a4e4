//! Writes the stream: assigns ids, defines them before their use, and begins epochs, so that its own
//! tables and those of readers are bounded.

use std::io::{self, Write};
use std::rc::Rc;

use nprof_stream::assigned_ids::has_room;
use nprof_stream::*;

use rustc_hash::FxHashMap;

use super::definitions::{CallDef, ImageDef, Place, TaskDef};

/// Most frames and nodes of an epoch, as of the recorder.
const MAX_IDS: usize = 1 << 20;

/// The writer of one segment.
pub(crate) struct Output<W: Write> {
    writer: Writer<W>,
    events: Vec<Event>,
    images: Vec<ImageDef>,
    tasks: Vec<TaskDef>,
    /// The names and paths of calls; number 0 is the empty text.
    texts: Vec<Rc<[u8]>>,
    text_numbers: FxHashMap<Rc<[u8]>, u32>,
    /// The calls of places; number 0 is no calls.
    calls: Vec<Rc<[CallDef]>>,
    call_numbers: FxHashMap<Rc<[CallDef]>, u32>,
    /// By the number of the name, and the first line.
    function_ids: AssignedIds<(u32, u32)>,
    /// By the number of the path.
    file_ids: AssignedIds<u32>,
    /// The ids of the epoch, by number of the image or task, and by place.
    image_ids: AssignedIds<u32>,
    task_ids: AssignedIds<u32>,
    frame_ids: AssignedIds<Place>,
    node_ids: AssignedNodes,
    epoch: u64,
    last_time: u64,
    /// The counts for the end.
    late: u64,
    lost: u64,
    incomplete: u64,
}

impl<W: Write> Output<W> {
    /// Begins a segment.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn begin(mut writer: Writer<W>, head: Head, step: Step) -> io::Result<Self> {
        writer.write(&Record::Head(Box::new(head)))?;
        writer.write(&Record::Step(Box::new(step)))?;
        Ok(Self {
            writer,
            events: Vec::new(),
            images: Vec::new(),
            tasks: Vec::new(),
            texts: vec![Rc::default()],
            text_numbers: FxHashMap::from_iter([(Rc::default(), 0)]),
            calls: vec![Rc::default()],
            call_numbers: FxHashMap::default(),
            function_ids: AssignedIds::default(),
            file_ids: AssignedIds::default(),
            image_ids: AssignedIds::default(),
            task_ids: AssignedIds::default(),
            frame_ids: AssignedIds::default(),
            node_ids: AssignedNodes::default(),
            epoch: 0,
            last_time: 0,
            late: 0,
            lost: 0,
            incomplete: 0,
        })
    }

    /// Defines an event; its id is the next one.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn event(&mut self, mut event: Event) -> io::Result<EventId> {
        event.id = EventId(self.events.len() as u32 + 1);
        self.writer.write(&Record::Event(Box::new(event.clone())))?;
        let id = event.id;
        self.events.push(event);
        Ok(id)
    }

    /// Adds an image; returns its number.
    pub(crate) fn image(&mut self, image: ImageDef) -> u32 {
        self.images.push(image);
        self.images.len() as u32 - 1
    }

    /// Adds a task; returns its number.
    pub(crate) fn task(&mut self, task: TaskDef) -> u32 {
        self.tasks.push(task);
        self.tasks.len() as u32 - 1
    }

    /// Adds a text; returns its number.
    pub(crate) fn text(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.text_numbers.get(text) {
            return number;
        }
        let (number, text) = (self.texts.len() as u32, Rc::<[u8]>::from(text));
        self.texts.push(text.clone());
        self.text_numbers.insert(text, number);
        number
    }

    /// Returns the text of a number.
    pub(crate) fn text_of(&self, number: u32) -> &Rc<[u8]> {
        &self.texts[number as usize]
    }

    /// Adds the calls of a place, innermost first; returns their number.
    pub(crate) fn calls(&mut self, calls: &[CallDef]) -> u32 {
        let calls = &calls[..calls.len().min(limits::LINES)];
        if let Some(&number) = self.call_numbers.get(calls) {
            return number;
        }
        let (number, calls) = (self.calls.len() as u32, Rc::<[CallDef]>::from(calls));
        self.calls.push(calls.clone());
        self.call_numbers.insert(calls, number);
        number
    }

    /// Changes the name of a task.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn rename(&mut self, time: u64, task: u32, comm: &[u8]) -> io::Result<()> {
        self.tasks[task as usize].comm = comm.into();
        self.change(time, task, ChangeKind::Comm, comm, Extras::NONE)
    }

    /// Lets a task execute a file, of which the path is empty if it is unknown.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn execute(
        &mut self,
        time: u64,
        task: u32,
        comm: &[u8],
        exe: &[u8],
    ) -> io::Result<()> {
        let known = &mut self.tasks[task as usize];
        (known.comm, known.exe) = (comm.into(), exe.into());
        let mut extras = ExtrasBuilder::new();
        if !exe.is_empty() {
            extras.add("exe", exe);
        }
        self.change(time, task, ChangeKind::Exec, comm, extras.extras())
    }

    /// Ends a task, of which the status is unknown.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn exit(&mut self, time: u64, task: u32) -> io::Result<()> {
        self.change(time, task, ChangeKind::Exit, b"", Extras::NONE)
    }

    fn change(
        &mut self,
        time: u64,
        task: u32,
        kind: ChangeKind,
        value: &[u8],
        extras: Extras<'_>,
    ) -> io::Result<()> {
        // A task without samples so far is defined with its last name.
        let Some(id) = self.task_ids.get(&task).map(TaskId) else { return Ok(()) };
        let time = self.in_order(time, false);
        self.writer.write(&Record::Change(Change { time, task: id, kind, value, extras }))
    }

    /// Notes lost samples.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn lost(&mut self, time: u64, count: u64, cause: Cause) -> io::Result<()> {
        self.lost = self.lost.saturating_add(count);
        let (event, task, cpu, extras) = (EventId::NONE, TaskId::NONE, NO_CPU, Extras::NONE);
        let time = self.in_order(time, false);
        self.writer.write(&Record::Lost(Lost { time, event, cpu, task, count, cause, extras }))
    }

    /// Writes a sample with a stack of these places, root first.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn sample(
        &mut self,
        mut sample: Sample<'_>,
        task: u32,
        stack: &[Place],
    ) -> io::Result<()> {
        // A reader walks no deeper stacks.
        let stack = &stack[stack.len().saturating_sub(limits::DEPTH)..];
        if !has_room(self.frame_ids.len(), stack.len(), MAX_IDS)
            || !has_room(self.node_ids.len(), stack.len(), MAX_IDS)
        {
            self.begin_epoch()?;
        }
        sample.task = self.task_id(task)?;
        sample.node = self.node(stack)?;
        sample.time = self.in_order(sample.time, true);
        // Marks are at the root.
        let is_incomplete = stack.first().is_some_and(|root| root.mark != Mark::None);
        self.incomplete += u64::from(is_incomplete);
        self.writer.write(&Record::Sample(sample))
    }

    /// Returns a time of a record, and counts samples that come late.
    fn in_order(&mut self, time: u64, is_sample: bool) -> u64 {
        if time < self.last_time {
            self.late += u64::from(is_sample);
        }
        self.last_time = self.last_time.max(time);
        time
    }

    fn begin_epoch(&mut self) -> io::Result<()> {
        self.epoch += 1;
        let epoch = Epoch { number: self.epoch, ..Epoch::default() };
        self.writer.write(&Record::Epoch(Box::new(epoch)))?;
        // The contents stay: only their ids are new.
        self.image_ids.clear();
        self.function_ids.clear();
        self.file_ids.clear();
        self.task_ids.clear();
        self.frame_ids.clear();
        self.node_ids.clear();
        for event in &self.events {
            self.writer.write(&Record::Event(Box::new(event.clone())))?;
        }
        Ok(())
    }

    fn task_id(&mut self, task: u32) -> io::Result<TaskId> {
        let id = match self.task_ids.assign(task) {
            Assigned::Known(id) => return Ok(TaskId(id)),
            Assigned::Exhausted => return Ok(TaskId::NONE),
            Assigned::New(id) => TaskId(id),
        };
        let TaskDef { time, pid, tid, parent, ref comm, ref exe } = self.tasks[task as usize];
        // Only a parent that is defined already: definitions do not recur.
        let parent = parent.and_then(|parent| self.task_ids.get(&parent)).unwrap_or_default();
        let parent = TaskId(parent);
        let mut extras = ExtrasBuilder::new();
        if !exe.is_empty() {
            extras.add("exe", exe);
        }
        let extras = extras.extras();
        self.writer.write(&Record::Task(Task { id, time, pid, tid, parent, comm, extras }))?;
        Ok(id)
    }

    fn node(&mut self, stack: &[Place]) -> io::Result<NodeId> {
        let mut frames = Vec::with_capacity(stack.len());
        for place in stack {
            frames.push(self.frame_id(*place)?);
        }
        let mut node = NodeId::NONE;
        for frame in frames {
            match self.node_ids.assign(node, frame) {
                Some(id) => node = id,
                None => break,
            }
            if self.node_ids.branch_is_full() {
                self.write_branch()?;
            }
        }
        self.write_branch()?;
        Ok(node)
    }

    fn write_branch(&mut self) -> io::Result<()> {
        if let Some(branch) = self.node_ids.branch() {
            self.writer.write(&Record::Nodes(branch))?;
            self.node_ids.end_branch();
        }
        Ok(())
    }

    fn frame_id(&mut self, place: Place) -> io::Result<FrameId> {
        let id = match self.frame_ids.assign(place) {
            Assigned::Known(id) => return Ok(FrameId(id)),
            Assigned::Exhausted => return Ok(FrameId::NONE),
            Assigned::New(id) => FrameId(id),
        };
        let image = match place.image {
            Some(image) => self.image_id(image)?,
            None => ImageId::NONE,
        };
        let Place { offset, kernel, return_address, mark, .. } = place;
        let extras = Extras::NONE;
        self.writer.write(&Record::Frame(Frame {
            id,
            image,
            offset,
            kernel,
            return_address,
            mark,
            extras,
        }))?;
        self.write_location(id, place.calls)?;
        Ok(id)
    }

    fn write_location(&mut self, frame: FrameId, calls: u32) -> io::Result<()> {
        if calls == 0 {
            return Ok(());
        }
        let mut lines = Vec::new();
        // Functions and files must be defined before the location.
        let calls = self.calls[calls as usize].clone();
        for &CallDef { name, file, line, start_line } in calls.iter() {
            let function = FunctionId(match self.function_ids.assign((name, start_line)) {
                Assigned::Known(id) => id,
                Assigned::Exhausted => 0,
                Assigned::New(id) => {
                    let mut extras = ExtrasBuilder::new();
                    if start_line > 0 {
                        extras.add_number("line", start_line.into());
                    }
                    let function = Function {
                        id: FunctionId(id),
                        name: &self.texts[name as usize],
                        linkage: b"",
                        extras: extras.extras(),
                    };
                    self.writer.write(&Record::Function(function))?;
                    id
                }
            });
            lines.push(Line { function, file: self.file_id(file)?, line, column: 0 });
        }
        let (status, extras) = (Status::Named, Extras::NONE);
        self.writer.write(&Record::Location(Location { frame, status, lines: &lines, extras }))
    }

    fn file_id(&mut self, path: u32) -> io::Result<FileId> {
        if path == 0 {
            return Ok(FileId::NONE);
        }
        Ok(FileId(match self.file_ids.assign(path) {
            Assigned::Known(id) => id,
            Assigned::Exhausted => 0,
            Assigned::New(id) => {
                let (path, extras) = (&self.texts[path as usize], Extras::NONE);
                self.writer.write(&Record::File(SourceFile { id: FileId(id), path, extras }))?;
                id
            }
        }))
    }

    fn image_id(&mut self, image: u32) -> io::Result<ImageId> {
        let id = match self.image_ids.assign(image) {
            Assigned::Known(id) => return Ok(ImageId(id)),
            Assigned::Exhausted => return Ok(ImageId::NONE),
            Assigned::New(id) => ImageId(id),
        };
        let ImageDef { kind, ref build_id, ref path, base, ref load } = self.images[image as usize];
        let mut extras = ExtrasBuilder::new();
        if let Some(base) = base {
            extras.add("base", format!("{base:#x}").as_bytes());
        }
        if !load.is_empty() {
            extras.add("load", load.as_bytes());
        }
        let build_id = &build_id[..build_id.len().min(limits::BUILD_ID)];
        let extras = extras.extras();
        self.writer.write(&Record::Image(Image { id, kind, build_id, path, extras }))?;
        Ok(id)
    }

    /// Ends the segment like [`Output::end`], at this time.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn end_at(mut self, time: u64) -> io::Result<Writer<W>> {
        self.last_time = self.last_time.max(time);
        self.end(true)
    }

    /// Ends the segment, and returns its writer. Without `is_whole`, readers see that the source was damaged.
    ///
    /// # Errors
    ///
    /// An error of the output.
    pub(crate) fn end(mut self, is_whole: bool) -> io::Result<Writer<W>> {
        if is_whole {
            let totals = self.writer.totals();
            let end = End {
                time: Some(self.last_time),
                samples: totals.samples,
                records: totals.records,
                lost: self.lost,
                late: Some(self.late).filter(|&late| late > 0),
                incomplete: Some(self.incomplete).filter(|&incomplete| incomplete > 0),
                ..End::default()
            };
            self.writer.write(&Record::End(Box::new(end)))?;
        }
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// Returns a sample without time, CPU, task and stack, of this weight and a count of 1.
pub(crate) fn plain_sample(event: EventId, weight: u64) -> Sample<'static> {
    Sample {
        time: 0,
        event,
        task: TaskId::NONE,
        cpu: NO_CPU,
        node: NodeId::NONE,
        weight,
        count: 1,
        extras: Extras::NONE,
    }
}
