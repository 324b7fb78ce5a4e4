//! The definitions of an epoch: tables by id, the walk up a stack, and the calls of a frame with
//! inlined calls restored.
//!
//! Nothing here fails. A lookup of an undefined id (its record was lost to damage, or is beyond the memory of
//! the tables) returns None; a stack with one ends in a call without a frame.

use crate::model::code_table::{CodeEntry, CodeTable};
use crate::model::id_table::IdTable;
use crate::model::names::OTHER;
use crate::record::limits;
use crate::record::load::LoadSegment;
use crate::record::pairs::Event;
use crate::record::*;

pub use crate::model::names::{NameId, Names};

/// The entry of an image.
#[derive(Clone, Debug)]
pub struct ImageEntry {
    /// The kind of image.
    pub kind: ImageKind,
    /// The build ID; empty if there is none.
    pub build_id: Box<[u8]>,
    /// The path, or a name in brackets.
    pub path: NameId,
    /// The last component of the path; the whole name if it is in brackets or of generated code.
    pub name: NameId,
    /// Its loaded segments; empty if they are unknown.
    pub load: Box<[LoadSegment]>,
}

/// The entry of a function.
#[derive(Clone, Copy, Debug)]
struct FunctionEntry {
    name: NameId,
    start_line: u32,
}

/// The entry of a source file.
#[derive(Clone, Copy, Debug)]
struct FileEntry {
    path: NameId,
    md5: Option<Md5Sum>,
}

/// The entry of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskEntry {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// Time of its start or first sight: identifies it across epochs, in which its id differs.
    pub time: u64,
    /// The first thread of its process, or the process's parent.
    pub parent: TaskId,
    /// Its current name.
    pub comm: NameId,
}

/// The entry of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameEntry {
    /// The image; none for a mark.
    pub image: ImageId,
    /// The offset in the image.
    pub offset: u64,
    /// True if it is kernel code.
    pub kernel: bool,
    /// True if `offset` is a return address.
    pub return_address: bool,
    /// The reason why the stack ends here.
    pub mark: Mark,
    /// The status of its location. None if it has none.
    pub status: Option<Status>,
    lines_at: u32,
    lines: u16,
}

impl FrameEntry {
    /// True if it has a real name, not a placeholder.
    pub fn is_named(&self) -> bool {
        self.status == Some(Status::Named)
    }
}

#[derive(Clone, Copy, Debug)]
struct NodeEntry {
    parent: NodeId,
    frame: FrameId,
    /// The mark at the root of its stack.
    mark: Mark,
}

/// One call on a stack: a frame, or one of the calls inlined into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The frame; none if it was lost to damage.
    pub frame: FrameId,
    /// The function and line; default if there is no name.
    pub line: Line,
    /// True if the function was inlined into the next call, which shares its frame.
    pub inlined: bool,
}

/// The definitions of the current epoch, by id.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// All names in the epoch.
    pub names: Names,
    /// The memory beyond which new names are [`OTHER`], and other definitions are left out. None for no
    /// limit.
    max_bytes: Option<usize>,
    /// The memory of all definitions but names.
    bytes: usize,
    /// True if a definition was left out.
    has_omissions: bool,
    generation: u64,
    events: IdTable<Event>,
    images: IdTable<ImageEntry>,
    tasks: IdTable<TaskEntry>,
    frames: IdTable<FrameEntry>,
    nodes: IdTable<NodeEntry>,
    functions: IdTable<FunctionEntry>,
    files: IdTable<FileEntry>,
    lines: Vec<Line>,
    codes: CodeTable,
    /// The highest id of a frame, and of the frames that a node may have used.
    last_frame: FrameId,
    last_used_frame: FrameId,
}

impl Tables {
    /// Creates empty tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates empty tables for reports: if the definitions of an epoch exceed this memory, later names
    /// become [`OTHER`], and other definitions are left out. Events are not counted.
    pub fn within(max_bytes: usize) -> Self {
        Self { max_bytes: Some(max_bytes), ..Self::default() }
    }

    /// True if definitions of the epoch were left out for lack of memory.
    pub fn has_omissions(&self) -> bool {
        self.has_omissions
    }

    /// True if there is memory for a definition of this size, which then counts.
    fn admits(&mut self, size: usize) -> bool {
        let Some(max) = self.max_bytes else { return true };
        let bytes = self.bytes + size;
        if size > 0 && self.names.bytes() + bytes > max {
            self.omit();
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Notes that a definition is left out. Undefined ids have another label from now on.
    fn omit(&mut self) {
        if !self.has_omissions {
            self.has_omissions = true;
            self.generation += 1;
        }
    }

    /// Returns the id of a name in the epoch; that of [`OTHER`] for a new one beyond the limit.
    pub fn name(&mut self, name: &[u8]) -> NameId {
        let is_full = self.max_bytes.is_some_and(|max| self.names.bytes() + self.bytes > max);
        if is_full && !self.names.contains(name) {
            self.omit();
            return self.names.intern(OTHER);
        }
        self.names.intern(name)
    }

    /// Returns a number that grows with every head and epoch, and when a frame gets a location after
    /// it was used, or another location: values cached by id are then stale.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes the generation greater than that of other tables: values cached for those are stale.
    pub fn follow(&mut self, generation: u64) {
        self.generation += generation + 1;
    }

    /// Adds the definitions in a record.
    pub fn apply(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(_) | Record::Epoch(_) => self.forget(),
            Record::Event(event) => self.events.insert(event.id.0, (**event).clone()),
            Record::Image(image) => self.apply_image(image),
            Record::Task(task) => {
                let comm = self.name(task.comm);
                let &Task { pid, tid, time, parent, .. } = task;
                if self.admits(self.tasks.growth(task.id.0)) {
                    self.tasks.insert(task.id.0, TaskEntry { pid, tid, time, parent, comm });
                }
            }
            // The value of an exit is a status, not a name.
            Record::Change(change)
                if matches!(change.kind, ChangeKind::Comm | ChangeKind::Exec) =>
            {
                let comm = self.name(change.value);
                if let Some(task) = self.tasks.get_mut(change.task.0) {
                    task.comm = comm;
                }
            }
            Record::Frame(frame) => {
                let entry = FrameEntry {
                    image: frame.image,
                    offset: frame.offset,
                    kernel: frame.kernel,
                    return_address: frame.return_address,
                    mark: frame.mark,
                    status: None,
                    lines_at: 0,
                    lines: 0,
                };
                if self.admits(self.frames.growth(frame.id.0)) {
                    self.frames.insert(frame.id.0, entry);
                    self.last_frame = self.last_frame.max(frame.id);
                }
            }
            Record::Nodes(nodes) => self.apply_nodes(nodes),
            Record::Function(function) => {
                let name = self.name(function.name);
                if self.admits(self.functions.growth(function.id.0)) {
                    let start_line = function.start_line();
                    self.functions.insert(function.id.0, FunctionEntry { name, start_line });
                }
            }
            Record::File(file) => {
                let path = self.name(file.path);
                if self.admits(self.files.growth(file.id.0)) {
                    self.files.insert(file.id.0, FileEntry { path, md5: file.md5() });
                }
            }
            Record::Location(location) => self.apply_location(location),
            Record::Code(code) => {
                let image = self.frames.get(code.frame.0).map(|frame| frame.image);
                if let Some(image) = image.filter(|_| self.admits(CodeTable::growth(code))) {
                    self.codes.insert(image, code);
                }
            }
            Record::Change(_)
            | Record::Step(_)
            | Record::Naming(_)
            | Record::End(_)
            | Record::Run(_)
            | Record::RunEnd(_)
            | Record::Sample(_)
            | Record::Lost(_)
            | Record::Unknown(_) => {}
        }
    }

    /// Forgets all ids, at the beginning of an epoch.
    pub fn forget(&mut self) {
        if self.max_bytes.is_some_and(|max| self.bytes > max / 4) {
            // The tables keep their memory when they are cleared, and the next epoch may need others.
            *self =
                Self { max_bytes: self.max_bytes, generation: self.generation, ..Self::default() };
        }
        self.generation += 1;
        (self.bytes, self.has_omissions) = (0, false);
        self.names.clear();
        self.events.clear();
        self.images.clear();
        self.tasks.clear();
        self.frames.clear();
        self.nodes.clear();
        self.functions.clear();
        self.files.clear();
        self.lines.clear();
        self.codes.clear();
        self.last_frame = FrameId::NONE;
        self.last_used_frame = FrameId::NONE;
    }

    fn apply_image(&mut self, image: &Image<'_>) {
        let name = match image.path {
            [b'[', ..] => image.path,
            // The name of a JIT function, which may contain slashes.
            path if image.kind == ImageKind::Jit => path,
            path => path.rsplit(|&b| b == b'/').next().unwrap_or(path),
        };
        let entry = ImageEntry {
            kind: image.kind,
            build_id: image.build_id.into(),
            path: self.name(image.path),
            name: self.name(name),
            load: image
                .extras
                .get("load")
                .map_or_else(Box::default, |load| LoadSegment::decode(&load).into()),
        };
        let parts = entry.build_id.len() + size_of_val(&*entry.load);
        if self.admits(self.images.growth(image.id.0) + parts) {
            self.images.insert(image.id.0, entry);
        }
    }

    fn apply_nodes(&mut self, nodes: &Nodes<'_>) {
        self.last_used_frame = self.last_frame;
        let mut parent = nodes.parent;
        // Each node has a copy of its root's mark, so that `stack_mark` need not walk.
        let mut mark = match self.nodes.get(parent.0) {
            Some(above) => Some(above.mark),
            None if parent.is_none() => None,
            // The parent was lost to damage, and with it the root.
            None => Some(Mark::None),
        };
        for (id, &frame) in (nodes.first.0..).zip(nodes.frames) {
            let root = *mark.get_or_insert_with(|| {
                self.frames.get(frame.0).map_or(Mark::None, |frame| frame.mark)
            });
            if !self.admits(self.nodes.growth(id)) {
                return;
            }
            self.nodes.insert(id, NodeEntry { parent, frame, mark: root });
            parent = NodeId(id);
        }
    }

    fn apply_location(&mut self, location: &Location<'_>) {
        if !self.admits(size_of_val(location.lines)) {
            return;
        }
        let Some(frame) = self.frames.get_mut(location.frame.0) else {
            return;
        };
        // A later location replaces an earlier one (nprof-format(5), location).
        if frame.status.is_some() || location.frame <= self.last_used_frame {
            self.generation += 1;
        }
        frame.status = Some(location.status);
        frame.lines_at = self.lines.len() as u32;
        // At most 4096 (`limits::LINES`), so that the cast is exact.
        frame.lines = location.lines.len() as u16;
        self.lines.extend_from_slice(location.lines);
    }

    /// Returns an event. None if it is undefined.
    pub fn event(&self, id: EventId) -> Option<&Event> {
        self.events.get(id.0)
    }

    /// Returns an image. None if it is undefined.
    pub fn image(&self, id: ImageId) -> Option<&ImageEntry> {
        self.images.get(id.0)
    }

    /// Returns a task. None if it is undefined.
    pub fn task(&self, id: TaskId) -> Option<&TaskEntry> {
        self.tasks.get(id.0)
    }

    /// Returns a frame. None if it is undefined.
    pub fn frame(&self, id: FrameId) -> Option<&FrameEntry> {
        self.frames.get(id.0)
    }

    /// Returns the display name of a function. None if it is undefined.
    pub fn function(&self, id: FunctionId) -> Option<NameId> {
        self.functions.get(id.0).map(|function| function.name)
    }

    /// Returns the line at which a function begins, 0 if it is unknown.
    pub fn start_line(&self, id: FunctionId) -> u32 {
        self.functions.get(id.0).map_or(0, |function| function.start_line)
    }

    /// Returns the path of a source file. None if it is undefined.
    pub fn file(&self, id: FileId) -> Option<NameId> {
        self.files.get(id.0).map(|file| file.path)
    }

    /// Returns the MD5 of a source file as it was compiled. None if it is unknown.
    pub fn md5(&self, id: FileId) -> Option<Md5Sum> {
        self.files.get(id.0)?.md5
    }

    /// Returns the code at an offset of an image. None if the stream does not have it.
    pub fn code(&self, image: ImageId, offset: u64) -> Option<&CodeEntry> {
        self.codes.at(image, offset)
    }

    /// Returns the reason why a node's stack is incomplete; [`Mark::None`] if it is complete.
    pub fn stack_mark(&self, node: NodeId) -> Mark {
        self.nodes.get(node.0).map_or(Mark::None, |node| node.mark)
    }

    /// Returns the parent and the frame of a node. None if it is undefined.
    pub fn node(&self, id: NodeId) -> Option<(NodeId, FrameId)> {
        self.nodes.get(id.0).map(|node| (node.parent, node.frame))
    }

    /// Returns the frames of a node's stack, leaf first. A frame that was lost to damage is
    /// [`FrameId::NONE`], and the last.
    pub fn stack(&self, node: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        let mut next = node;
        let walk = move || {
            if next.is_none() {
                return None;
            }
            // One undefined frame shows the damage; the callers are unknown.
            let Some(node) = self.nodes.get(next.0) else {
                next = NodeId::NONE;
                return Some(FrameId::NONE);
            };
            next = node.parent;
            Some(node.frame)
        };
        // Parents have smaller ids than their children, so the walk ends; the limit bounds its
        // length.
        std::iter::from_fn(walk).take(limits::DEPTH)
    }

    /// Returns the calls of a frame, innermost first: inlined calls, then the function itself.
    pub fn calls(&self, frame: FrameId) -> impl Iterator<Item = Call> + '_ {
        let entry = self.frames.get(frame.0);
        let lines = entry.map_or(&[][..], |entry| {
            let at = entry.lines_at as usize;
            self.lines.get(at..at + usize::from(entry.lines)).unwrap_or(&[])
        });
        // A frame without a location is one call without a name.
        let count = lines.len().max(1);
        (0..count).map(move |i| Call {
            frame,
            line: lines.get(i).copied().unwrap_or_default(),
            inlined: i + 1 < count,
        })
    }

    /// Returns the calls of a node's stack, leaf first.
    pub fn stack_calls(&self, node: NodeId) -> impl Iterator<Item = Call> + '_ {
        self.stack(node).flat_map(|frame| self.calls(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::extras::{Extras, ExtrasBuilder};

    fn frame(id: u32, mark: Mark) -> Record<'static> {
        Record::Frame(Frame {
            id: FrameId(id),
            image: ImageId::NONE,
            offset: 0,
            kernel: false,
            return_address: false,
            mark,
            extras: Extras::NONE,
        })
    }

    fn line(function: u32) -> Line {
        Line { function: FunctionId(function), ..Line::default() }
    }

    #[test]
    fn a_stack_is_walked_leaf_first_with_its_inlined_calls() {
        let mut tables = Tables::new();
        for id in 1..=3 {
            tables.apply(&frame(id, Mark::None));
        }
        let lines = [line(1), line(2)];
        tables.apply(&Record::Location(Location {
            frame: FrameId(3),
            status: Status::Named,
            lines: &lines,
            extras: Extras::NONE,
        }));
        let frames = [FrameId(1), FrameId(2), FrameId(3)];
        tables.apply(&Record::Nodes(Nodes {
            first: NodeId(1),
            parent: NodeId::NONE,
            frames: &frames,
        }));
        let calls: Vec<_> = tables
            .stack_calls(NodeId(3))
            .map(|c| (c.frame.0, c.line.function.0, c.inlined))
            .collect();
        assert_eq!(calls, [(3, 1, true), (3, 2, false), (2, 0, false), (1, 0, false)]);
        assert_eq!(tables.stack(NodeId::NONE).count(), 0);
    }

    #[test]
    fn the_last_location_of_a_frame_holds_and_what_was_cached_is_stale() {
        let mut tables = Tables::new();
        let mut seen = Vec::new();
        tables.apply(&frame(1, Mark::None));
        for lines in [&[][..], &[line(1)], &[line(2), line(1)]] {
            let status = Status::Named;
            let location = Location { frame: FrameId(1), status, lines, extras: Extras::NONE };
            tables.apply(&Record::Location(location));
            let functions = tables.calls(FrameId(1)).map(|call| call.line.function.0);
            seen.push((functions.collect::<Vec<_>>(), tables.generation()));
        }
        assert_eq!(seen, [(vec![0], 0), (vec![1], 1), (vec![2, 1], 2)]);
    }

    #[test]
    fn md5_of_a_file_has_32_digits() {
        let digits = "000102030405060708090a0b0c0d0eff";
        for (md5, last) in [(digits, Some(255)), (&digits[2..], None), ("x", None), ("", None)] {
            let mut tables = Tables::new();
            let mut extras = ExtrasBuilder::new();
            let (id, extras) = (FileId(1), extras.add("md5", md5.as_bytes()).extras());
            tables.apply(&Record::File(SourceFile { id, path: b"/a.c", extras }));
            assert_eq!(tables.md5(id).map(|md5| md5[15]), last, "{md5}");
            assert_eq!((tables.file(id).is_some(), tables.md5(FileId(2))), (true, None));
        }
    }

    #[test]
    fn first_location_after_use_of_its_frame_makes_cached_values_stale() {
        let mut tables = Tables::new();
        tables.apply(&frame(1, Mark::None));
        let (frames, parent) = ([FrameId(1)], NodeId::NONE);
        tables.apply(&Record::Nodes(Nodes { first: NodeId(1), parent, frames: &frames }));
        tables.apply(&frame(2, Mark::None));
        let (status, lines, extras) = (Status::Named, &[line(1)][..], Extras::NONE);
        for (id, generation) in [(2, 0), (1, 1)] {
            let frame = FrameId(id);
            tables.apply(&Record::Location(Location { frame, status, lines, extras }));
            assert_eq!(tables.generation(), generation, "{id}");
        }
    }

    #[test]
    fn definitions_beyond_the_memory_are_left_out_until_the_next_epoch() {
        let mut tables = Tables::within(size_of::<Option<NodeEntry>>() * 100);
        let names = |tables: &Tables, node| {
            let mut labels = crate::labels::Labels::new();
            let call = tables.stack_calls(NodeId(node)).next().unwrap();
            let label = labels.label(tables, call, crate::labels::CallKey::Function);
            String::from_utf8_lossy(labels.names.get(label)).into_owned()
        };
        let frames = [FrameId::NONE; 1000];
        let nodes = Nodes { first: NodeId(1), parent: NodeId::NONE, frames: &frames };
        assert_eq!(names(&tables, 1000), "[damaged]");
        tables.apply(&Record::Nodes(nodes));
        // Vectors begin with id 0.
        assert!(tables.node(NodeId(99)).is_some() && tables.node(NodeId(100)).is_none());
        assert!(tables.has_omissions() && tables.generation() == 1);
        assert_eq!(names(&tables, 1000), "(other)");
        tables.apply(&Record::Epoch(Box::default()));
        assert!(!tables.has_omissions());
        // A far id takes more memory, and a small table still fits.
        tables.apply(&frame(60_000, Mark::None));
        tables.apply(&frame(1, Mark::None));
        assert!(tables.frame(FrameId(60_000)).is_some() && tables.frame(FrameId(1)).is_some());
    }

    #[test]
    fn the_mark_at_the_root_holds_for_the_whole_stack() {
        let mut tables = Tables::new();
        tables.apply(&frame(1, Mark::MaxDepth));
        tables.apply(&frame(2, Mark::None));
        let (first, second) = ([FrameId(1), FrameId(2)], [FrameId(2)]);
        tables.apply(&Record::Nodes(Nodes {
            first: NodeId(1),
            parent: NodeId::NONE,
            frames: &first,
        }));
        tables.apply(&Record::Nodes(Nodes {
            first: NodeId(3),
            parent: NodeId(2),
            frames: &second,
        }));
        tables.apply(&Record::Nodes(Nodes {
            first: NodeId(4),
            parent: NodeId::NONE,
            frames: &second,
        }));
        assert_eq!(tables.stack_mark(NodeId(3)), Mark::MaxDepth);
        assert_eq!(tables.stack_mark(NodeId(4)), Mark::None);
    }
}
