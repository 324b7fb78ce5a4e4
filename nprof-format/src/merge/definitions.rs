//! The definitions of an input's ids, and the corresponding ids of the output.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use nprof_stream::body::{Scratch, push_body, read_body};
use nprof_stream::*;

/// The kinds of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdKind {
    Image,
    Task,
    Event,
    Frame,
    Node,
    Function,
    File,
}

/// Number of kinds of ids.
pub(super) const KINDS: usize = 7;

impl IdKind {
    /// Returns the kind of the record that defines such an id.
    fn kind(self) -> u8 {
        match self {
            IdKind::Image => kind::IMAGE,
            IdKind::Task => kind::TASK,
            IdKind::Event => kind::EVENT,
            IdKind::Frame => kind::FRAME,
            IdKind::Node => kind::NODES,
            IdKind::Function => kind::FUNCTION,
            IdKind::File => kind::FILE,
        }
    }
}

/// The most bytes of code in an epoch; more is left out. As much as reports keep.
const MAX_CODE_BYTES: usize = 96 << 20;

/// The body of a record in the binary encoding, with absolute times.
pub(super) type Body = Box<[u8]>;

/// Returns the body of a record.
pub(super) fn body(record: &Record<'_>) -> Body {
    let mut body = Vec::new();
    push_body(&mut body, record);
    body.into()
}

/// The records that define the ids of an input in its current epoch.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    bodies: [IdTable<Body>; KINDS],
    /// By frame; empty for a frame without a location.
    locations: IdTable<Body>,
    /// By frame and offset, the code around the frame; the bytes of several records may follow each other.
    codes: BTreeMap<(u32, u64), Body>,
    /// The size of their bodies.
    code_bytes: usize,
    nodes: IdTable<(NodeId, FrameId)>,
    /// The most recently defined event.
    pub(super) last_event: EventId,
}

impl Definitions {
    /// Adds a definition. If it redefines an id, drops the output ids in `known` of it and of all that
    /// refers to it: if damage hides the beginning of an epoch, ids change their meaning unannounced.
    pub(super) fn take(&mut self, definition: &Record<'_>, known: &mut IdMap) {
        let (of, id) = match definition {
            Record::Image(image) => (IdKind::Image, image.id.0),
            Record::Task(task) => (IdKind::Task, task.id.0),
            Record::Event(event) => (IdKind::Event, event.id.0),
            Record::Frame(frame) => (IdKind::Frame, frame.id.0),
            Record::Function(function) => (IdKind::Function, function.id.0),
            Record::File(file) => (IdKind::File, file.id.0),
            Record::Nodes(nodes) => return self.take_nodes(nodes, known),
            Record::Location(location) => {
                let frame = location.frame.0;
                // A location of an undefined frame could be taken for that of a later frame with the same id.
                if self.bodies[IdKind::Frame as usize].get(frame).is_some() {
                    self.locations.insert(frame, body(definition));
                }
                return;
            }
            Record::Code(code) => {
                let frame = code.frame.0;
                if self.bodies[IdKind::Frame as usize].get(frame).is_some() {
                    self.insert_code((frame, code.offset), body(definition));
                }
                return;
            }
            _ => return,
        };
        known.redefined(of, id);
        // The location belongs to the previous meaning of the id.
        if of == IdKind::Frame && self.locations.get(id).is_some() {
            self.locations.insert(id, Body::default());
        }
        if of == IdKind::Frame {
            self.remove_codes(id);
        }
        if let Record::Event(event) = definition {
            self.last_event = event.id;
        }
        self.bodies[of as usize].insert(id, body(definition));
    }

    /// Adds code. A later record of the same offset replaces an earlier one.
    fn insert_code(&mut self, key: (u32, u64), body: Body) {
        // Code is optional; other records are bounded by the highest id.
        if self.code_bytes.saturating_add(body.len()) > MAX_CODE_BYTES {
            return;
        }
        self.code_bytes += body.len();
        let replaced = self.codes.insert(key, body);
        self.code_bytes -= replaced.map_or(0, |body| body.len());
    }

    fn remove_codes(&mut self, frame: u32) {
        let code = |codes: &BTreeMap<(u32, u64), Body>| {
            codes.range((frame, 0)..=(frame, u64::MAX)).next().map(|(&key, _)| key)
        };
        while let Some(key) = code(&self.codes) {
            self.code_bytes -= self.codes.remove(&key).map_or(0, |body| body.len());
        }
    }

    fn take_nodes(&mut self, nodes: &Nodes<'_>, known: &mut IdMap) {
        // The nodes of one record are a chain: each is the parent of the next.
        let mut parent = nodes.parent;
        for (id, &frame) in (nodes.first.0..).zip(nodes.frames) {
            known.redefined(IdKind::Node, id);
            self.nodes.insert(id, (parent, frame));
            parent = NodeId(id);
        }
    }

    /// Changes the name of a task and, if it executed another image, the path of that.
    pub(super) fn change(&mut self, change: &Change<'_>) {
        let (id, mut scratch) = (change.task.0, Scratch::default());
        let Some(Record::Task(task)) = self.record(IdKind::Task, id, &mut scratch) else { return };
        let mut executed;
        let extras = match change.kind {
            ChangeKind::Comm => task.extras,
            ChangeKind::Exec => {
                executed = ExtrasBuilder::without(task.extras, "exe");
                if let Some(exe) = change.extras.get("exe") {
                    executed.add("exe", &exe);
                }
                executed.extras()
            }
            _ => return,
        };
        let changed = body(&Record::Task(Task { comm: change.value, extras, ..task }));
        self.bodies[IdKind::Task as usize].insert(id, changed);
    }

    /// Forgets all ids, as at the beginning of an epoch.
    pub(super) fn forget(&mut self) {
        self.bodies.iter_mut().for_each(IdTable::clear);
        self.locations.clear();
        self.codes.clear();
        self.code_bytes = 0;
        self.nodes.clear();
        self.last_event = EventId::NONE;
    }

    /// Returns the record that defines an id. None if it is undefined, and for nodes.
    pub(super) fn record<'a>(
        &'a self,
        of: IdKind,
        id: u32,
        scratch: &'a mut Scratch,
    ) -> Option<Record<'a>> {
        read_body(of.kind(), self.bodies[of as usize].get(id)?, scratch)
    }

    /// True if a task is defined.
    pub(super) fn has_task(&self, id: TaskId) -> bool {
        self.bodies[IdKind::Task as usize].get(id.0).is_some()
    }

    /// Returns the location of a frame. None if it has none.
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

    /// Returns the bodies of the code around a frame that begins at one of these offsets.
    pub(super) fn codes(
        &self,
        frame: FrameId,
        offsets: RangeInclusive<u64>,
    ) -> impl Iterator<Item = &Body> {
        let key = |offset: u64| (frame.0, offset);
        self.codes.range(key(*offsets.start())..=key(*offsets.end())).map(|(_, body)| body)
    }

    /// Returns the parent and the frame of a node.
    pub(super) fn node(&self, id: NodeId) -> Option<(NodeId, FrameId)> {
        self.nodes.get(id.0).copied()
    }
}

/// The output ids of an input's ids, as far as they have been assigned.
#[derive(Debug)]
pub(super) struct IdMap {
    /// By the input's id: the generation of the entry, and the output's id.
    tables: [IdTable<(u32, u32)>; KINDS],
    /// The current generation of each kind; older entries are invalid.
    generations: [u32; KINDS],
    /// The output's epoch.
    epoch: u64,
}

impl Default for IdMap {
    fn default() -> Self {
        Self { tables: Default::default(), generations: [1; KINDS], epoch: 0 }
    }
}

impl IdMap {
    /// Returns the output's id.
    pub(super) fn get(&self, of: IdKind, id: u32) -> Option<u32> {
        let &(generation, known) = self.tables[of as usize].get(id)?;
        (generation == self.generations[of as usize]).then_some(known)
    }

    /// Sets the output's id.
    pub(super) fn set(&mut self, of: IdKind, id: u32, known: u32) {
        let entry = (self.generations[of as usize], known);
        match self.tables[of as usize].get_mut(id) {
            Some(before) => *before = entry,
            None => self.tables[of as usize].insert(id, entry),
        }
    }

    /// Invalidates an id that the input redefines, and all ids that may refer to it. Tasks refer to no
    /// other kind and are never merged by content: other tasks stay valid.
    fn redefined(&mut self, of: IdKind, id: u32) {
        if self.get(of, id).is_none() {
            return;
        }
        if let Some((generation, _)) = self.tables[of as usize].get_mut(id) {
            *generation = 0;
        }
        let tasks = self.generations[IdKind::Task as usize];
        self.begin_generation();
        self.generations[IdKind::Task as usize] = tasks;
    }

    /// Invalidates all ids if the output has begun another epoch.
    pub(super) fn follow(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.begin_generation();
        }
    }

    /// Forgets all ids at the beginning of an epoch of the input.
    pub(super) fn forget(&mut self) {
        self.tables.iter_mut().for_each(IdTable::clear);
    }

    fn begin_generation(&mut self) {
        for generation in &mut self.generations {
            *generation = generation.wrapping_add(1).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes code of frame 1 at this offset with this number of bytes.
    fn take_code(definitions: &mut Definitions, offset: u64, length: usize) {
        let (bytes, rows, callees) = (&*vec![0; length], CodeRows::default(), CodeRows::default());
        let (frame, arch, extras) = (FrameId(1), &b"x86_64"[..], Extras::NONE);
        let code = Code { frame, offset, arch, bytes, rows, callees, extras };
        definitions.take(&Record::Code(code), &mut IdMap::default());
    }

    #[test]
    fn repeated_code_replaces_the_earlier_one() {
        let mut definitions = Definitions::default();
        let frame = Frame {
            id: FrameId(1),
            image: ImageId(1),
            offset: 0x18,
            kernel: false,
            return_address: false,
            mark: Mark::None,
            extras: Extras::NONE,
        };
        definitions.take(&Record::Frame(frame), &mut IdMap::default());
        for _ in 0..3 {
            take_code(&mut definitions, 0x10, 100);
            take_code(&mut definitions, 0x20, 100);
        }
        let of_frame = |definitions: &Definitions| -> usize {
            definitions.codes(FrameId(1), 0..=u64::MAX).count()
        };
        assert_eq!((of_frame(&definitions), definitions.codes.len()), (2, 2));
        let both = definitions.code_bytes;
        assert!((200..300).contains(&both), "{both}");
        assert_eq!(definitions.codes(FrameId(1), 0x20..=0x20).count(), 1);
        // Another meaning of the id.
        definitions.take(&Record::Frame(frame), &mut IdMap::default());
        assert_eq!((of_frame(&definitions), definitions.code_bytes), (0, 0));
    }
}
