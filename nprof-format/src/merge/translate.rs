//! Translates the ids of an input to ids of the output; writes missing definitions right before their
//! first use.

use std::io::{self, Write};
use std::ops::RangeInclusive;

use nprof_stream::body::{Scratch, read_body};
use nprof_stream::*;

use super::definitions::{Definitions, IdKind, IdMap};
use super::output::{LOST, Output};
use super::source::{InputState, Item, with_run};

/// Writes the items of an input.
pub(super) struct Translator<'t, 'w, W> {
    output: &'t mut Output<'w, W>,
    definitions: &'t Definitions,
    known: &'t mut IdMap,
}

impl<'t, 'w, W: Write> Translator<'t, 'w, W> {
    pub(super) fn new(output: &'t mut Output<'w, W>, state: &'t mut InputState) -> Self {
        let InputState { definitions, known, .. } = state;
        known.follow(output.epoch);
        Self { output, definitions, known }
    }

    /// Writes the next item of the input.
    pub(super) fn write(&mut self, item: &Item) -> io::Result<()> {
        let mut scratch = Scratch::default();
        match item {
            Item::Step(step) => self.output.step(step),
            Item::Naming(naming) => self.output.naming(naming),
            Item::Run(head) => self.output.run(head),
            Item::RunEnd(run_end) => self.output.run_end(run_end),
            Item::Event(id) => self.event(*id).map(drop),
            Item::Task(id) => {
                // Checked before the definition, which cannot be split over two epochs.
                if !self.output.has_room(1) {
                    self.begin_epoch()?;
                }
                self.task(*id).map(drop)
            }
            Item::Location(id) => self.relocate(*id),
            Item::Code(id, offset) => match self.known.get(IdKind::Frame, id.0) {
                Some(known) => self.codes(*id, FrameId(known), *offset..=*offset),
                // The next definition of the frame includes its code.
                None => Ok(()),
            },
            Item::Sample(sample, extras) => {
                let extras = Extras::from_encoded(extras).unwrap_or_default();
                self.sample(Sample { extras, ..*sample })
            }
            Item::Change(body) => match read_body(kind::CHANGE, body, &mut scratch) {
                Some(Record::Change(change)) => self.change(change),
                _ => Ok(()),
            },
            Item::Lost(body) => match read_body(kind::LOST, body, &mut scratch) {
                Some(Record::Lost(lost)) => self.lost(lost),
                _ => Ok(()),
            },
            Item::Damage(count, run) => {
                self.ensure_event()?;
                let extras = run.map(|run| with_run(Extras::NONE, run));
                let extras = extras.as_ref().map_or(Extras::NONE, ExtrasBuilder::extras);
                self.output.damage(*count, extras)
            }
        }
    }

    fn sample(&mut self, sample: Sample<'_>) -> io::Result<()> {
        // The node first: writing it may begin an epoch, which invalidates all other ids.
        let node = self.node(sample.node)?;
        let event = self.event(sample.event)?;
        let task = self.task(sample.task)?;
        self.output.sample(Sample { node, event, task, ..sample })
    }

    fn change(&mut self, change: Change<'_>) -> io::Result<()> {
        let task = self.task(change.task)?;
        self.output.change(Change { task, ..change })
    }

    fn lost(&mut self, lost: Lost<'_>) -> io::Result<()> {
        self.ensure_event()?;
        let event = self.event(lost.event)?;
        let task = self.task(lost.task)?;
        self.output.lost(Lost { event, task, ..lost })
    }

    /// Defines an event if the epoch has none: readers report a loss without an event with the first
    /// event.
    fn ensure_event(&mut self) -> io::Result<()> {
        if !self.output.has_event() {
            self.event(self.definitions.last_event)?;
        }
        Ok(())
    }

    fn begin_epoch(&mut self) -> io::Result<()> {
        self.output.begin_epoch()?;
        self.known.follow(self.output.epoch);
        Ok(())
    }

    fn node(&mut self, id: NodeId) -> io::Result<NodeId> {
        let mut path = Vec::new();
        let mut node = self.nearest_known_ancestor(id, &mut path);
        if !self.output.has_room(path.len()) {
            self.begin_epoch()?;
            // The new epoch has forgotten all output ids.
            node = self.nearest_known_ancestor(id, &mut path);
        }
        for &below in path.iter().rev() {
            let frame = match self.definitions.node(below) {
                Some((_, frame)) => self.frame(frame)?,
                // The node's record was damaged.
                None => FrameId(LOST),
            };
            node = self.output.node(node, frame)?;
            // Later stacks share these callers.
            self.known.set(IdKind::Node, below.0, node.0);
        }
        self.output.end_branch()?;
        Ok(node)
    }

    /// Returns the output's id of the closest ancestor of a node (or itself) that has one; stores the
    /// nodes in between in `path`. Ends because parents have smaller ids than their children.
    fn nearest_known_ancestor(&self, id: NodeId, path: &mut Vec<NodeId>) -> NodeId {
        path.clear();
        let mut next = id;
        while !next.is_none() {
            if let Some(known) = self.known.get(IdKind::Node, next.0) {
                return NodeId(known);
            }
            path.push(next);
            let parent = self.definitions.node(next).map(|(parent, _)| parent);
            // A damaged parent could make a cycle.
            next = parent.filter(|&parent| parent < next).unwrap_or(NodeId::NONE);
        }
        NodeId::NONE
    }

    fn frame(&mut self, id: FrameId) -> io::Result<FrameId> {
        if let Some(known) = self.known.get(IdKind::Frame, id.0) {
            return Ok(FrameId(known));
        }
        let definitions = self.definitions;
        let (mut scratch, mut of_location) = (Scratch::default(), Scratch::default());
        let frame = match definitions.record(IdKind::Frame, id.0, &mut scratch) {
            Some(Record::Frame(frame)) => {
                let location = definitions.location(id, &mut of_location);
                let known = self.define_frame(frame, location)?;
                self.codes(id, known, 0..=u64::MAX)?;
                known
            }
            // The frame's record was damaged.
            _ => FrameId(LOST),
        };
        self.known.set(IdKind::Frame, id.0, frame.0);
        Ok(frame)
    }

    fn define_frame(
        &mut self,
        frame: Frame<'_>,
        location: Option<Location<'_>>,
    ) -> io::Result<FrameId> {
        // A frame refers to its image, so the image is written first.
        let image = ImageId(self.content(IdKind::Image, frame.image.0)?);
        let frame = Frame { id: FrameId::NONE, image, ..frame };
        let Some(location) = location else {
            return self.output.define_frame(frame, None);
        };
        let lines = self.lines(&location)?;
        let location = Location { frame: FrameId::NONE, lines: &lines, ..location };
        self.output.define_frame(frame, Some(location))
    }

    /// Writes another location of a frame, if the frame is defined in the current epoch; otherwise its
    /// next definition includes the location.
    fn relocate(&mut self, id: FrameId) -> io::Result<()> {
        let known = self.known.get(IdKind::Frame, id.0).filter(|&known| known != LOST);
        let (definitions, mut scratch) = (self.definitions, Scratch::default());
        let location = known.zip(definitions.location(id, &mut scratch));
        let Some((known, location)) = location else { return Ok(()) };
        let lines = self.lines(&location)?;
        self.output.locate(Location { frame: FrameId(known), lines: &lines, ..location })
    }

    /// Returns the lines of a location with ids of the output.
    fn lines(&mut self, location: &Location<'_>) -> io::Result<Vec<Line>> {
        location.lines.iter().map(|line| self.line(line)).collect()
    }

    fn line(&mut self, line: &Line) -> io::Result<Line> {
        let function = FunctionId(self.content(IdKind::Function, line.function.0)?);
        let file = FileId(self.content(IdKind::File, line.file.0)?);
        Ok(Line { function, file, ..*line })
    }

    /// Writes the code around a frame of the input that begins at one of these offsets, unless the epoch
    /// has it already.
    fn codes(
        &mut self,
        id: FrameId,
        frame: FrameId,
        offsets: RangeInclusive<u64>,
    ) -> io::Result<()> {
        let (definitions, mut of_frame) = (self.definitions, Scratch::default());
        let defined = definitions.record(IdKind::Frame, id.0, &mut of_frame);
        let Some(Record::Frame(defined)) = defined.filter(|_| frame.0 != LOST) else {
            return Ok(());
        };
        let image = ImageId(self.content(IdKind::Image, defined.image.0)?);
        for body in definitions.codes(id, offsets) {
            let mut scratch = Scratch::default();
            let Some(Record::Code(code)) = read_body(kind::CODE, body, &mut scratch) else {
                continue;
            };
            // Equal images of several inputs share their code.
            if !self.output.begin_code(image, code.offset) {
                continue;
            }
            let (rows, callees) = (self.rows(code.rows)?, self.rows(code.callees)?);
            let rows = CodeRows::from_encoded(&rows).unwrap_or_default();
            let callees = CodeRows::from_encoded(&callees).unwrap_or_default();
            self.output.code(Code { frame, rows, callees, ..code })?;
        }
        Ok(())
    }

    /// Returns the encoding of rows with ids of the output.
    fn rows(&mut self, rows: CodeRows<'_>) -> io::Result<Vec<u8>> {
        let mut translated = Vec::new();
        for CodeRow { offset, line } in rows.iter() {
            translated.push(CodeRow { offset, line: self.line(&line)? });
        }
        let mut encoded = Vec::new();
        CodeRows::encode(&translated, &mut encoded);
        Ok(encoded)
    }

    fn event(&mut self, id: EventId) -> io::Result<EventId> {
        self.content(IdKind::Event, id.0).map(EventId)
    }

    /// Returns the output's id of an image, event, function or file; writes its definition if needed.
    fn content(&mut self, of: IdKind, id: u32) -> io::Result<u32> {
        // 0 means none in every kind of id.
        if id == 0 {
            return Ok(0);
        }
        if let Some(known) = self.known.get(of, id) {
            return Ok(known);
        }
        let definitions = self.definitions;
        let mut scratch = Scratch::default();
        let known = match definitions.record(of, id, &mut scratch) {
            Some(Record::Image(image)) => self.image(image)?,
            Some(Record::Event(mut event)) => {
                event.id = EventId::NONE;
                self.output.define(of, Record::Event(event))?
            }
            Some(Record::Function(function)) => {
                let function = Function { id: FunctionId::NONE, ..function };
                self.output.define(of, Record::Function(function))?
            }
            Some(Record::File(file)) => {
                let file = SourceFile { id: FileId::NONE, ..file };
                self.output.define(of, Record::File(file))?
            }
            _ => LOST,
        };
        self.known.set(of, id, known);
        Ok(known)
    }

    fn image(&mut self, image: Image<'_>) -> io::Result<u32> {
        let image = Image { id: ImageId::NONE, ..image };
        // The extra `task` is an id, and must be translated.
        let Some(task) = image.extras.number("task") else {
            return self.output.define(IdKind::Image, Record::Image(image));
        };
        let task = self.task(TaskId(u32::try_from(task).unwrap_or(LOST)))?;
        let extras = ExtrasBuilder::replacing(image.extras, "task", task.to_string().as_bytes());
        let image = Image { extras: extras.extras(), ..image };
        self.output.define(IdKind::Image, Record::Image(image))
    }

    /// Returns the output's id of a task; writes missing definitions, parents first.
    fn task(&mut self, id: TaskId) -> io::Result<TaskId> {
        let definitions = self.definitions;
        let mut chain = Vec::new();
        let mut next = id;
        let mut task = loop {
            if next.is_none() {
                break TaskId::NONE;
            }
            if let Some(known) = self.known.get(IdKind::Task, next.0) {
                break TaskId(known);
            }
            let mut scratch = Scratch::default();
            let Some(Record::Task(task)) = definitions.record(IdKind::Task, next.0, &mut scratch)
            else {
                self.known.set(IdKind::Task, next.0, LOST);
                break TaskId(LOST);
            };
            // Marks the task as visited: a hostile stream may define a cycle of parents.
            self.known.set(IdKind::Task, next.0, 0);
            chain.push(next);
            next = task.parent;
        };
        // Parents have to be defined before their children.
        for below in chain.into_iter().rev() {
            let mut scratch = Scratch::default();
            if let Some(Record::Task(meaning)) =
                definitions.record(IdKind::Task, below.0, &mut scratch)
            {
                task = self.output.define_task(Task { parent: task, ..meaning })?;
                self.known.set(IdKind::Task, below.0, task.0);
            }
        }
        Ok(task)
    }
}
