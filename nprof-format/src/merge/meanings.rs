//! What the ids of an input mean, and which ids of the output mean the same.

use nprof_stream::body::{Scratch, push_body, read_body};
use nprof_stream::*;

/// The kinds of things that have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Image,
    Task,
    Event,
    Frame,
    Node,
    Function,
    File,
}

/// How many of them there are.
pub(super) const KINDS: usize = 7;

impl Of {
    /// The kind of the record that defines one.
    fn kind(self) -> u8 {
        match self {
            Of::Image => kind::IMAGE,
            Of::Task => kind::TASK,
            Of::Event => kind::EVENT,
            Of::Frame => kind::FRAME,
            Of::Node => kind::NODES,
            Of::Function => kind::FUNCTION,
            Of::File => kind::FILE,
        }
    }
}

/// A record's body in the binary spelling, with times in full.
pub(super) type Body = Box<[u8]>;

/// The body of a record.
pub(super) fn body(record: &Record<'_>) -> Body {
    let mut body = Vec::new();
    push_body(&mut body, record);
    body.into()
}

/// What the ids of an input mean in its epoch at hand: the records that define them.
#[derive(Debug, Default)]
pub(super) struct Meanings {
    bodies: [IdTable<Body>; KINDS],
    /// By frame; empty where there is none.
    locations: IdTable<Body>,
    nodes: IdTable<(NodeId, FrameId)>,
    /// The event that was defined last.
    pub(super) last_event: EventId,
}

impl Meanings {
    /// Takes in a record that defines something. What `known` knows of an id that is defined
    /// anew, and so of what is made of it, is forgotten: where damage took the beginning of an
    /// epoch, ids take other meanings without notice.
    pub(super) fn take(&mut self, definition: &Record<'_>, known: &mut Known) {
        let (of, id) = match definition {
            Record::Image(image) => (Of::Image, image.id.0),
            Record::Task(task) => (Of::Task, task.id.0),
            Record::Event(event) => (Of::Event, event.id.0),
            Record::Frame(frame) => (Of::Frame, frame.id.0),
            Record::Function(function) => (Of::Function, function.id.0),
            Record::File(file) => (Of::File, file.id.0),
            Record::Nodes(nodes) => return self.take_nodes(nodes, known),
            Record::Location(location) => {
                let frame = location.frame.0;
                if self.bodies[Of::Frame as usize].get(frame).is_some() {
                    self.locations.insert(frame, body(definition));
                }
                return;
            }
            _ => return,
        };
        known.redefined(of, id);
        if of == Of::Frame && self.locations.get(id).is_some() {
            self.locations.insert(id, Body::default());
        }
        if let Record::Event(event) = definition {
            self.last_event = event.id;
        }
        self.bodies[of as usize].insert(id, body(definition));
    }

    fn take_nodes(&mut self, nodes: &Nodes<'_>, known: &mut Known) {
        let mut parent = nodes.parent;
        for (id, &frame) in (nodes.first.0..).zip(nodes.frames) {
            known.redefined(Of::Node, id);
            self.nodes.insert(id, (parent, frame));
            parent = NodeId(id);
        }
    }

    /// A task has another name from now on.
    pub(super) fn rename(&mut self, id: TaskId, comm: &[u8]) {
        let mut scratch = Scratch::default();
        if let Some(Record::Task(task)) = self.record(Of::Task, id.0, &mut scratch) {
            let renamed = body(&Record::Task(Task { comm, ..task }));
            self.bodies[Of::Task as usize].insert(id.0, renamed);
        }
    }

    /// Forgets all ids, as at the beginning of an epoch.
    pub(super) fn forget(&mut self) {
        self.bodies.iter_mut().for_each(IdTable::clear);
        self.locations.clear();
        self.nodes.clear();
        self.last_event = EventId::NONE;
    }

    /// The record that defines an id; `None` for one that was never defined, and for nodes.
    pub(super) fn record<'a>(
        &'a self,
        of: Of,
        id: u32,
        scratch: &'a mut Scratch,
    ) -> Option<Record<'a>> {
        read_body(of.kind(), self.bodies[of as usize].get(id)?, scratch)
    }

    /// Whether a task has been defined.
    pub(super) fn has_task(&self, id: TaskId) -> bool {
        self.bodies[Of::Task as usize].get(id.0).is_some()
    }

    /// The location of a frame, if it has one.
    pub(super) fn location<'a>(
        &'a self,
        frame: FrameId,
        scratch: &'a mut Scratch,
    ) -> Option<Location<'a>> {
        let body = self.locations.get(frame.0).filter(|body| !body.is_empty())?;
        match read_body(kind::LOCATION, body, scratch)? {
            Record::Location(location) => Some(location),
            _ => None,
        }
    }

    /// The parent and the frame of a node.
    pub(super) fn node(&self, id: NodeId) -> Option<(NodeId, FrameId)> {
        self.nodes.get(id.0).copied()
    }
}

/// Which ids of the output stand for those of an input, as far as that has been found out.
#[derive(Debug)]
pub(super) struct Known {
    /// By the input's id: the generation in which it was found out, and the output's id.
    tables: [IdTable<(u32, u32)>; KINDS],
    /// The generation that holds, of every kind.
    generations: [u32; KINDS],
    /// The output's epoch.
    epoch: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { tables: Default::default(), generations: [1; KINDS], epoch: 0 }
    }
}

impl Known {
    /// The output's id.
    pub(super) fn get(&self, of: Of, id: u32) -> Option<u32> {
        let &(generation, known) = self.tables[of as usize].get(id)?;
        (generation == self.generations[of as usize]).then_some(known)
    }

    /// Remembers the output's id.
    pub(super) fn set(&mut self, of: Of, id: u32, known: u32) {
        let entry = (self.generations[of as usize], known);
        match self.tables[of as usize].get_mut(id) {
            Some(before) => *before = entry,
            None => self.tables[of as usize].insert(id, entry),
        }
    }

    /// An id of the input is about to take another meaning. Tasks are not made of other things
    /// and are told apart by more than their content: the others are kept.
    fn redefined(&mut self, of: Of, id: u32) {
        if self.get(of, id).is_none() {
            return;
        }
        if let Some((generation, _)) = self.tables[of as usize].get_mut(id) {
            *generation = 0;
        }
        let tasks = self.generations[Of::Task as usize];
        self.begin_generation();
        self.generations[Of::Task as usize] = tasks;
    }

    /// Forgets all if the output has begun another epoch.
    pub(super) fn follow(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.begin_generation();
        }
    }

    /// Forgets all, as the input does.
    pub(super) fn forget(&mut self) {
        self.tables.iter_mut().for_each(IdTable::clear);
    }

    fn begin_generation(&mut self) {
        for generation in &mut self.generations {
            *generation = generation.wrapping_add(1).max(1);
        }
    }
}
