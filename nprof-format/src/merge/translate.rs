//! From the ids of an input to those of the output. What is not yet defined there is, right
//! before it is used.

use std::io::{self, Write};

use nprof_stream::body::{Scratch, read_body};
use nprof_stream::*;

use super::meanings::{Known, Meanings, Of};
use super::output::{LOST, Output};
use super::source::{Intake, Item, with_run};

/// Writes what comes from an input.
pub(super) struct Translator<'t, 'w, W> {
    output: &'t mut Output<'w, W>,
    meanings: &'t Meanings,
    known: &'t mut Known,
}

impl<'t, 'w, W: Write> Translator<'t, 'w, W> {
    pub(super) fn new(output: &'t mut Output<'w, W>, intake: &'t mut Intake) -> Self {
        let Intake { meanings, known, .. } = intake;
        known.follow(output.epoch);
        Self { output, meanings, known }
    }

    /// Writes what is to be written next of the input.
    pub(super) fn write(&mut self, item: &Item) -> io::Result<()> {
        let mut scratch = Scratch::default();
        match item {
            Item::Step(step) => self.output.step(step),
            Item::Naming(naming) => self.output.naming(naming),
            Item::Run(head) => self.output.run(head),
            Item::RunEnd(ran) => self.output.ran(ran),
            Item::Event(id) => self.event(*id).map(drop),
            Item::Task(id) => {
                if !self.output.has_room(1) {
                    self.begin_epoch()?;
                }
                self.task(*id).map(drop)
            }
            Item::Location(id) => self.relocate(*id),
            Item::Sample(sample, extras) => {
                let extras = Extras::from_spelling(extras).unwrap_or_default();
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
                self.have_event()?;
                let extras = run.map(|run| with_run(Extras::NONE, run));
                let extras = extras.as_ref().map_or(Extras::NONE, ExtrasBuilder::extras);
                self.output.damage(*count, extras)
            }
        }
    }

    fn sample(&mut self, sample: Sample<'_>) -> io::Result<()> {
        // First, because it may begin an epoch.
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
        self.have_event()?;
        let event = self.event(lost.event)?;
        let task = self.task(lost.task)?;
        self.output.lost(Lost { event, task, ..lost })
    }

    /// A loss that no event can be blamed for is told with one that is defined: there must be
    /// one, also at the beginning of an epoch.
    fn have_event(&mut self) -> io::Result<()> {
        if !self.output.has_event() {
            self.event(self.meanings.last_event)?;
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
        let mut node = self.known_above(id, &mut path);
        if !self.output.has_room(path.len()) {
            self.begin_epoch()?;
            node = self.known_above(id, &mut path);
        }
        for &below in path.iter().rev() {
            let frame = match self.meanings.node(below) {
                Some((_, frame)) => self.frame(frame)?,
                None => FrameId(LOST),
            };
            node = self.output.node(node, frame)?;
            self.known.set(Of::Node, below.0, node.0);
        }
        self.output.end_branch()?;
        Ok(node)
    }

    /// The output's id of the closest node above an id, or of itself, that has one, and the
    /// nodes on the way to it. A parent has a smaller id than its children: the way ends.
    fn known_above(&self, id: NodeId, path: &mut Vec<NodeId>) -> NodeId {
        path.clear();
        let mut next = id;
        while !next.is_none() {
            if let Some(known) = self.known.get(Of::Node, next.0) {
                return NodeId(known);
            }
            path.push(next);
            let parent = self.meanings.node(next).map(|(parent, _)| parent);
            next = parent.filter(|&parent| parent < next).unwrap_or(NodeId::NONE);
        }
        NodeId::NONE
    }

    fn frame(&mut self, id: FrameId) -> io::Result<FrameId> {
        if let Some(known) = self.known.get(Of::Frame, id.0) {
            return Ok(FrameId(known));
        }
        let meanings = self.meanings;
        let (mut scratch, mut of_location) = (Scratch::default(), Scratch::default());
        let frame = match meanings.record(Of::Frame, id.0, &mut scratch) {
            Some(Record::Frame(frame)) => {
                let location = meanings.location(id, &mut of_location);
                self.define_frame(frame, location)?
            }
            _ => FrameId(LOST),
        };
        self.known.set(Of::Frame, id.0, frame.0);
        Ok(frame)
    }

    fn define_frame(
        &mut self,
        frame: Frame<'_>,
        location: Option<Location<'_>>,
    ) -> io::Result<FrameId> {
        let image = ImageId(self.content(Of::Image, frame.image.0)?);
        let frame = Frame { id: FrameId::NONE, image, ..frame };
        let Some(location) = location else {
            return self.output.define_frame(frame, None);
        };
        let lines = self.lines(&location)?;
        let location = Location { frame: FrameId::NONE, lines: &lines, ..location };
        self.output.define_frame(frame, Some(location))
    }

    /// Locates a frame anew, unless the output has forgotten it: then that is done when it is
    /// defined again.
    fn relocate(&mut self, id: FrameId) -> io::Result<()> {
        let known = self.known.get(Of::Frame, id.0).filter(|&known| known != LOST);
        let (meanings, mut scratch) = (self.meanings, Scratch::default());
        let location = known.zip(meanings.location(id, &mut scratch));
        let Some((known, location)) = location else { return Ok(()) };
        let lines = self.lines(&location)?;
        self.output.locate(Location { frame: FrameId(known), lines: &lines, ..location })
    }

    /// The lines of a location, by the output's ids.
    fn lines(&mut self, location: &Location<'_>) -> io::Result<Vec<Line>> {
        let mut lines = Vec::with_capacity(location.lines.len());
        for line in location.lines {
            let function = FunctionId(self.content(Of::Function, line.function.0)?);
            let file = FileId(self.content(Of::File, line.file.0)?);
            lines.push(Line { function, file, ..*line });
        }
        Ok(lines)
    }

    fn event(&mut self, id: EventId) -> io::Result<EventId> {
        self.content(Of::Event, id.0).map(EventId)
    }

    /// The output's id of an image, event, function or file.
    fn content(&mut self, of: Of, id: u32) -> io::Result<u32> {
        if id == 0 {
            return Ok(0);
        }
        if let Some(known) = self.known.get(of, id) {
            return Ok(known);
        }
        let meanings = self.meanings;
        let mut scratch = Scratch::default();
        let known = match meanings.record(of, id, &mut scratch) {
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
        // Whose memory it is, which is a task of the input.
        let Some(task) = image.extras.number("task") else {
            return self.output.define(Of::Image, Record::Image(image));
        };
        let task = self.task(TaskId(u32::try_from(task).unwrap_or(LOST)))?;
        let extras = ExtrasBuilder::replacing(image.extras, "task", task.to_string().as_bytes());
        let image = Image { extras: extras.extras(), ..image };
        self.output.define(Of::Image, Record::Image(image))
    }

    /// The output's id of a task. It is defined behind its parent, that one behind its own.
    fn task(&mut self, id: TaskId) -> io::Result<TaskId> {
        let meanings = self.meanings;
        let mut chain = Vec::new();
        let mut next = id;
        let mut task = loop {
            if next.is_none() {
                break TaskId::NONE;
            }
            if let Some(known) = self.known.get(Of::Task, next.0) {
                break TaskId(known);
            }
            let mut scratch = Scratch::default();
            let Some(Record::Task(task)) = meanings.record(Of::Task, next.0, &mut scratch) else {
                self.known.set(Of::Task, next.0, LOST);
                break TaskId(LOST);
            };
            // Until it is defined, so that nobody's forebear is his own.
            self.known.set(Of::Task, next.0, 0);
            chain.push(next);
            next = task.parent;
        };
        for below in chain.into_iter().rev() {
            let mut scratch = Scratch::default();
            if let Some(Record::Task(meaning)) = meanings.record(Of::Task, below.0, &mut scratch) {
                task = self.output.define_task(Task { parent: task, ..meaning })?;
                self.known.set(Of::Task, below.0, task.0);
            }
        }
        Ok(task)
    }
}
