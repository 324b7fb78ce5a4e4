//! Grows the call tree from sums of samples per stack.
//!
//! Stacks share their beginnings, and the stream says so: its nodes are a tree of frames. Each
//! of the stream's nodes is therefore looked at once per epoch, however many stacks it is on.

use nprof_report::filter::Filter;
use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{FrameId, NodeId};
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{At, Function, Growing, LeafLines, Tree};

/// The name of a task that no record defines.
const UNKNOWN: &[u8] = b"[unknown]";

/// Name and image.
type FunctionKey = (NameId, NameId);

/// What the rules about calls say of a path: a bit for each that must hold somewhere on it, set
/// where it does, and [`EXCLUDED`].
type Marks = u64;

/// The mark of a path with a call that must not be on it.
const EXCLUDED: Marks = 1 << 63;

/// Grows a call tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builder {
    /// Whether paths begin with the command.
    commands: bool,
    filter: Filter,
    /// What the marks of a path must be.
    wanted: Marks,
    labels: Labels,
    functions: Vec<FunctionKey>,
    function_ids: FxHashMap<FunctionKey, usize>,
    growing: Growing,
    lines: FxHashMap<(At, NameId), Sum>,
    /// What is known of the epoch at hand: whether samples count, functions and marks of calls,
    /// and per top, nodes of the tree by nodes of the stream.
    generation: u64,
    samples: FxHashMap<Cell, bool>,
    calls: FxHashMap<Call, (usize, Marks)>,
    seen: FxHashMap<(At, NodeId), (At, Marks)>,
}

impl Builder {
    /// No paths yet.
    pub(crate) fn new(commands: bool, filter: Filter) -> Self {
        let wanted = marks_of((0..filter.matches_wanted()).map(|_| true));
        Self { commands, wanted, filter, ..Self::default() }
    }

    /// What the profile must keep apart.
    pub(crate) fn split(&self) -> Split {
        Split { task: self.commands, ..Split::default() }
    }

    /// Adds what fell on a stack.
    pub(crate) fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        let tables = context.tables;
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.samples.clear();
            self.calls.clear();
            self.seen.clear();
        }
        let sample = Cell { node: NodeId::NONE, ..*cell };
        let filter = &self.filter;
        if !*self.samples.entry(sample).or_insert_with(|| filter.keeps_samples(context, cell)) {
            return;
        }
        let top = self.top(tables, cell);
        let ((at, marks), leaf) = if cell.node.is_none() {
            (self.stackless(tables, top), None)
        } else {
            (self.path(tables, top, cell.node), tables.stack_calls(cell.node).next())
        };
        if marks != self.wanted {
            return;
        }
        self.growing.add(at, sum);
        if let Some(line) = leaf.and_then(|call| self.line(tables, call)) {
            self.lines.entry((at, line)).or_default().add(sum);
        }
    }

    fn top(&mut self, tables: &Tables, cell: &Cell) -> At {
        let comm = match tables.task(cell.task).map(|_| tables.names.get(cell.comm)) {
            _ if !self.commands => b"",
            None | Some(b"") => UNKNOWN,
            Some(comm) => comm,
        };
        let name = self.labels.names.intern(comm);
        let function = self.function((name, name));
        self.growing.top(cell.event, function)
    }

    /// The path of a sample without a stack.
    fn stackless(&mut self, tables: &Tables, top: At) -> (At, Marks) {
        let name = self.labels.no_stack();
        let function = self.function((name, name));
        (self.growing.child(top, function), self.marks(tables, None))
    }

    /// The tree's node for one of the stream's, and the marks of its path.
    fn path(&mut self, tables: &Tables, top: At, leaf: NodeId) -> (At, Marks) {
        let mut pending = Vec::new();
        let mut next = leaf;
        let (mut at, mut marks) = loop {
            if next.is_none() {
                break (top, 0);
            }
            if let Some(&seen) = self.seen.get(&(top, next)) {
                break seen;
            }
            // A node that was lost to damage is a call without a frame, and the root.
            let (parent, frame) = tables.node(next).unwrap_or((NodeId::NONE, FrameId::NONE));
            pending.push((next, frame));
            next = parent;
        };
        let mut calls = Vec::new();
        for (node, frame) in pending.into_iter().rev() {
            calls.clear();
            calls.extend(tables.calls(frame));
            for &call in calls.iter().rev() {
                let (function, call_marks) = self.call(tables, call);
                at = self.growing.child(at, function);
                marks |= call_marks;
            }
            self.seen.insert((top, node), (at, marks));
        }
        (at, marks)
    }

    fn call(&mut self, tables: &Tables, call: Call) -> (usize, Marks) {
        if let Some(&known) = self.calls.get(&call) {
            return known;
        }
        let name = self.labels.label(tables, call, CallKey::Function);
        let image = self.labels.label(tables, call, CallKey::ImageName);
        let known = (self.function((name, image)), self.marks(tables, Some(call)));
        self.calls.insert(call, known);
        known
    }

    fn marks(&mut self, tables: &Tables, call: Option<Call>) -> Marks {
        if !self.filter.is_about_calls() {
            return 0;
        }
        let excluded = self.filter.excludes_call(&mut self.labels, tables, call);
        let matches = self.filter.matches_of(&mut self.labels, tables, call);
        marks_of(matches.into_iter()) | if excluded { EXCLUDED } else { 0 }
    }

    /// The line a leaf is in; where that is unknown, the place in the image. None for a mark.
    fn line(&mut self, tables: &Tables, call: Call) -> Option<NameId> {
        let known = call.line.line > 0 && tables.file(call.line.file).is_some();
        let key = if known { CallKey::Line } else { CallKey::Address };
        tables.frame(call.frame)?;
        Some(self.labels.label(tables, call, key))
    }

    fn function(&mut self, key: FunctionKey) -> usize {
        let next = self.functions.len();
        let id = *self.function_ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(key);
        }
        id
    }

    /// The tree.
    pub(crate) fn finish(&self) -> Tree {
        let bytes = |id: NameId| self.labels.names.get(id);
        let function = |&(name, image): &FunctionKey| Function {
            name: escaped(bytes(name)),
            image: escaped(bytes(image)),
            bytes: bytes(name).into(),
        };
        let mut lines = LeafLines::default();
        for (&(at, line), &sum) in &self.lines {
            lines.entry(at).or_default().push((escaped(bytes(line)), sum));
        }
        self.growing.finish(self.functions.iter().map(function).collect(), lines)
    }
}

/// A bit for each rule that holds.
fn marks_of(holds: impl Iterator<Item = bool>) -> Marks {
    holds.zip(0..63).filter(|(holds, _)| *holds).fold(0, |marks, (_, bit)| marks | 1 << bit)
}
