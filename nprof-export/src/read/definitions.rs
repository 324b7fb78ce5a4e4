//! Images, functions, frames, stacks and threads that equal ones of all epochs and streams share.

use std::rc::Rc;

use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels, OTHER, UNKNOWN};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{FrameId, ImageId, ImageKind, LoadSegment, Mark, NodeId, TaskId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::{self, Category, Interner, Stack};

/// Most stacks: about 200 MB with their frames.
const MAX_STACKS: usize = 1 << 21;

/// Most memory of names.
const MAX_NAME_BYTES: usize = 128 << 20;

/// Most characters of the name of a thread. Those of the kernel have 15 bytes; imported recordings and programs
/// that write streams decide on others.
const MAX_THREAD_NAME: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ImageKey {
    kind: ImageKind,
    build_id: Box<[u8]>,
    path: NameId,
    name: NameId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: NameId,
    /// None if the source file is unknown.
    file: Option<NameId>,
    image: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FrameKey {
    image: Option<u32>,
    offset: u64,
    return_address: bool,
    category: Category,
    is_named: Option<bool>,
    calls: Box<[model::CallSite]>,
}

/// A thread: ids of processes and threads are used again, so that its time identifies it, and those of
/// different segments are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ThreadKey {
    segment: u32,
    pid: u32,
    tid: u32,
    time: u64,
}

/// The definitions of all streams, and the numbers of those of the current epoch.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    labels: Labels,
    images: Interner<ImageKey>,
    /// The loaded segments of images.
    loads: FxHashMap<u32, Vec<LoadSegment>>,
    functions: Interner<FunctionKey>,
    /// The lines at which functions begin; 0 if they are unknown.
    start_lines: Vec<u32>,
    frames: Interner<FrameKey>,
    stacks: Interner<Stack>,
    threads: Interner<ThreadKey>,
    /// The last name and the time of the start, by thread.
    thread_facts: Vec<(NameId, i64)>,
    /// The stacks of the nodes of an epoch, and the generation of the tables they are from.
    nodes: FxHashMap<NodeId, u32>,
    generation: u64,
    /// True if any frame has a name.
    has_names: bool,
    /// The images of which nprof-symbolize has looked at frames.
    symbolized: FxHashSet<u32>,
}

impl Definitions {
    /// Returns the number of the stack of a node, and whether it was left out to save memory. None for
    /// no stack.
    pub(super) fn stack(&mut self, tables: &Tables, leaf: NodeId) -> (Option<u32>, bool) {
        // Ids have another meaning in each epoch, and names can come later.
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.nodes.clear();
        }
        let mut path = Vec::new();
        let mut next = leaf;
        let mut stack = loop {
            if next.is_none() {
                break None;
            }
            if let Some(&known) = self.nodes.get(&next) {
                break Some(known);
            }
            // A node that was lost to damage has no frame.
            let (parent, frame) = tables.node(next).unwrap_or((NodeId::NONE, FrameId::NONE));
            path.push((next, frame));
            next = parent;
        };
        // Checked for the whole path, so that no stack is cut.
        if self.stacks.len() + path.len() > MAX_STACKS || self.labels.names.bytes() > MAX_NAME_BYTES
        {
            return (Some(self.other()), true);
        }
        for (node, frame) in path.into_iter().rev() {
            let frame = self.frame(tables, frame);
            let number = self.stacks.number(Stack { parent: stack, frame });
            self.nodes.insert(node, number);
            stack = Some(number);
        }
        (stack, false)
    }

    /// Returns the stack in the place of those that were left out.
    fn other(&mut self) -> u32 {
        let name = self.labels.names.intern(OTHER);
        self.stack_without_code(name)
    }

    /// Returns the stack of samples without one, for formats in which a sample needs a frame.
    pub(super) fn no_stack(&mut self) -> u32 {
        let name = self.labels.no_stack();
        self.stack_without_code(name)
    }

    fn stack_without_code(&mut self, name: NameId) -> u32 {
        let frame = self.place_without_code(name);
        self.stacks.number(Stack { parent: None, frame })
    }

    fn place_without_code(&mut self, name: NameId) -> u32 {
        let function = self.function(FunctionKey { name, file: None, image: None }, 0);
        let calls = Box::new([model::CallSite { function, line: 0 }]);
        self.frames.number(FrameKey {
            image: None,
            offset: 0,
            return_address: false,
            category: Category::Mark,
            is_named: Some(true),
            calls,
        })
    }

    fn frame(&mut self, tables: &Tables, id: FrameId) -> u32 {
        let Some(entry) = tables.frame(id).filter(|entry| entry.mark == Mark::None) else {
            let call = Call { frame: id, line: Default::default(), inlined: false };
            let name = self.labels.label(tables, call, CallKey::Function);
            return self.place_without_code(name);
        };
        self.has_names |= entry.is_named();
        let image = self.image(tables, entry.image);
        self.symbolized.extend(image.filter(|_| entry.status.is_some()));
        let is_jit = tables.image(entry.image).is_some_and(|image| match image.kind {
            ImageKind::Anonymous => entry.is_named(),
            kind => kind == ImageKind::Jit,
        });
        let category = match (entry.kernel, is_jit) {
            (true, _) => Category::Kernel,
            (_, true) => Category::Jit,
            _ => Category::User,
        };
        let mut calls = Vec::new();
        for call in tables.calls(id) {
            let name = self.labels.label(tables, call, CallKey::Function);
            let file = tables.file(call.line.file).map(|file| tables.names.get(file));
            let file = file.map(|file| self.labels.names.intern(file));
            let start_line = tables.start_line(call.line.function);
            let function = self.function(FunctionKey { name, file, image }, start_line);
            calls.push(model::CallSite { function, line: call.line.line });
        }
        // profile.proto: the address of a caller may be in the middle of its call instruction.
        let return_address = entry.return_address && entry.offset > 0;
        let offset = entry.offset - u64::from(return_address);
        let is_named = entry.status.map(|_| entry.is_named());
        let calls = calls.into();
        self.frames.number(FrameKey { image, offset, return_address, category, is_named, calls })
    }

    fn function(&mut self, key: FunctionKey, start_line: u32) -> u32 {
        let number = self.functions.number(key);
        match self.start_lines.get_mut(number as usize) {
            None => self.start_lines.push(start_line),
            Some(known @ 0) => *known = start_line,
            Some(_) => {}
        }
        number
    }

    fn image(&mut self, tables: &Tables, id: ImageId) -> Option<u32> {
        let entry = tables.image(id)?;
        // Each function of a compiler at run time is an image; their addresses mean nothing later.
        if entry.kind == ImageKind::Jit {
            let name = self.labels.names.intern(b"[jit]");
            let build_id = Box::default();
            return Some(self.images.number(ImageKey {
                kind: entry.kind,
                build_id,
                path: name,
                name,
            }));
        }
        let path = self.labels.names.intern(tables.names.get(entry.path));
        let name = self.labels.names.intern(tables.names.get(entry.name));
        let build_id = entry.build_id.clone();
        let number = self.images.number(ImageKey { kind: entry.kind, build_id, path, name });
        if !entry.load.is_empty() {
            self.loads.entry(number).or_insert_with(|| entry.load.to_vec());
        }
        Some(number)
    }

    /// Returns the number of a thread of a segment. `to_utc` converts the times of the segment.
    pub(super) fn thread(
        &mut self,
        tables: &Tables,
        task: TaskId,
        segment: u32,
        to_utc: impl Fn(u64) -> i64,
    ) -> u32 {
        let entry = tables.task(task);
        let key = match entry {
            Some(entry) => ThreadKey { segment, pid: entry.pid, tid: entry.tid, time: entry.time },
            None => ThreadKey { segment, pid: 0, tid: 0, time: 0 },
        };
        let number = self.threads.number(key);
        let name = match entry {
            Some(entry) => self.labels.names.intern(tables.names.get(entry.comm)),
            None => self.labels.names.intern(UNKNOWN),
        };
        let facts = (name, to_utc(key.time));
        match self.thread_facts.get_mut(number as usize) {
            Some(old) => *old = facts,
            None => self.thread_facts.push(facts),
        }
        number
    }

    /// Returns the number of the name of a thread.
    pub(super) fn thread_name(&mut self, tables: &Tables, task: TaskId, comm: NameId) -> u32 {
        let name = match tables.task(task) {
            Some(_) => tables.names.get(comm),
            None => UNKNOWN,
        };
        self.labels.names.intern(name).0
    }

    /// Moves all definitions into a profile. Its samples have the names of threads as numbers of
    /// [`Definitions::thread_name`].
    pub(super) fn finish(self, profile: &mut model::Profile) {
        let text = |name: NameId| escaped(self.labels.names.get(name));
        profile.images = self.images.values().iter().map(|image| image_of(image, &text)).collect();
        for &image in &self.symbolized {
            profile.images[image as usize].is_symbolized = true;
        }
        for (&image, load) in &self.loads {
            profile.images[image as usize].set_load(load);
        }
        // Functions share names and files.
        let mut texts: FxHashMap<NameId, Rc<str>> = FxHashMap::default();
        let mut shared =
            |name: NameId| texts.entry(name).or_insert_with(|| text(name).into()).clone();
        let function = |(key, &start_line): (&FunctionKey, &u32)| model::Function {
            name: shared(key.name),
            file: key.file.map_or_else(Rc::default, &mut shared),
            start_line,
            image: key.image,
        };
        let functions = self.functions.values().iter().zip(&self.start_lines);
        profile.functions = functions.map(function).collect();
        profile.frames = self.frames.values().iter().map(frame_of).collect();
        profile.stacks = self.stacks.values().to_vec();
        let threads = self.threads.values().iter().zip(&self.thread_facts);
        let mut texts: FxHashMap<NameId, Rc<str>> = FxHashMap::default();
        let mut beginning = |name: NameId| {
            let new = || Rc::from(text(name).chars().take(MAX_THREAD_NAME).collect::<String>());
            texts.entry(name).or_insert_with(new).clone()
        };
        let thread = |(key, &(name, start)): (&ThreadKey, &(NameId, i64))| model::Thread {
            pid: key.pid,
            tid: key.tid,
            name: beginning(name),
            start,
        };
        profile.threads = threads.map(thread).collect();
        let mut names = Interner::default();
        for sample in &mut profile.samples {
            sample.name = names.number(NameId(sample.name));
        }
        profile.names = names.values().iter().map(|&name| text(name)).collect();
        profile.facts.has_names = self.has_names;
    }
}

fn image_of(key: &ImageKey, text: &impl Fn(NameId) -> String) -> model::Image {
    let build_id = key.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (path, name) = (text(key.path), text(key.name));
    let kind = key.kind.word().unwrap_or("other");
    model::Image { kind, path, name, build_id, ..model::Image::default() }
}

fn frame_of(key: &FrameKey) -> model::Frame {
    let FrameKey { image, offset, return_address, category, is_named, ref calls } = *key;
    model::Frame { image, offset, return_address, category, is_named, calls: calls.to_vec() }
}
