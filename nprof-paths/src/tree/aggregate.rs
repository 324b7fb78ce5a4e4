//! Builds the call tree from sums of samples per stack.
//!
//! Stacks share their callers, and the stream's nodes already form a tree of frames. The path of
//! each stream node is therefore computed once per epoch, however many stacks contain it.

use nprof_report::filter::Filter;
use nprof_report::profile::{Context, GroupBy, GroupKey, Sum};
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels, UNKNOWN};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{EpochCache, FrameId, NodeId};
use rustc_hash::FxHashMap;

use crate::tree::call_tree::{Function, LeafLines, LineSum, NodeIndex, Tree, TreeBuilder};

/// The name and the image of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    name: NameId,
    image: NameId,
}

/// The filter rules about calls that hold for a path: one bit per `--match`, set if some call
/// matches, and [`EXCLUDED`].
type RuleBits = u64;

/// Set if some call matches an `--exclude`.
const EXCLUDED: RuleBits = 1 << 63;

/// The last node of a path, and the rules that hold for the path down to it.
#[derive(Clone, Copy, Debug)]
struct PathEnd {
    node: NodeIndex,
    rules: RuleBits,
}

/// A call as part of a path.
#[derive(Clone, Copy, Debug)]
struct PathCall {
    function: usize,
    rules: RuleBits,
}

/// Adds up samples per call path.
#[derive(Clone, Debug, Default)]
pub struct Aggregator {
    /// True if there is one root per command.
    by_command: bool,
    filter: Filter,
    /// The rules that must hold for a path to count.
    required: RuleBits,
    labels: Labels,
    functions: Vec<FunctionKey>,
    function_ids: FxHashMap<FunctionKey, usize>,
    builder: TreeBuilder,
    lines: FxHashMap<(NodeIndex, NameId), Sum>,
    /// True for samples that count.
    samples: EpochCache<GroupKey, bool>,
    calls: EpochCache<Call, PathCall>,
    /// Path ends by root and stream node.
    paths: EpochCache<(NodeIndex, NodeId), PathEnd>,
}

impl Aggregator {
    /// Creates an aggregator of the paths that the filter keeps. If `by_command` is true, the tree
    /// has one root per command.
    pub fn new(by_command: bool, filter: Filter) -> Self {
        let required = rule_bits((0..filter.matches_wanted()).map(|_| true));
        Self { by_command, required, filter, ..Self::default() }
    }

    /// Returns the sample properties that the profile must keep apart for this tree.
    pub fn group_by(&self) -> GroupBy {
        GroupBy { task: self.by_command, ..GroupBy::default() }
    }

    /// Adds the samples of one stack.
    pub fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let tables = context.tables;
        if !self.counts(context, group) {
            return;
        }
        let root = self.root(tables, group);
        let (end, leaf) = if group.node.is_none() {
            (self.stackless(tables, root), None)
        } else {
            (self.path(tables, root, group.node), tables.stack_calls(group.node).next())
        };
        // Any call of a path can satisfy a rule, so the decision is at the leaf.
        if end.rules != self.required {
            return;
        }
        self.builder.add(end.node, sum);
        if let Some(line) = leaf.and_then(|call| self.line(tables, call)) {
            self.lines.entry((end.node, line)).or_default().add(sum);
        }
    }

    /// True if the filter's rules about samples hold.
    fn counts(&mut self, context: &Context<'_>, group: &GroupKey) -> bool {
        // These rules do not look at the stack, so all stacks of a task share one entry.
        let sample = GroupKey { node: NodeId::NONE, ..*group };
        if let Some(counts) = self.samples.get(context.tables, &sample) {
            return counts;
        }
        let counts = self.filter.keeps_samples(context, group);
        self.samples.insert(sample, counts);
        counts
    }

    fn root(&mut self, tables: &Tables, group: &GroupKey) -> NodeIndex {
        // One root for all commands has no name, and prints as none.
        let command = match tables.task(group.task).map(|_| tables.names.get(group.comm)) {
            _ if !self.by_command => b"",
            None | Some(b"") => UNKNOWN,
            Some(command) => command,
        };
        let name = self.labels.names.intern(command);
        let function = self.function(FunctionKey { name, image: name });
        self.builder.root(group.event, function)
    }

    /// Returns the path of a sample without a stack.
    fn stackless(&mut self, tables: &Tables, root: NodeIndex) -> PathEnd {
        let name = self.labels.no_stack();
        let function = self.function(FunctionKey { name, image: name });
        PathEnd { node: self.builder.child(root, function), rules: self.rules(tables, None) }
    }

    /// Returns the path of a stream node.
    fn path(&mut self, tables: &Tables, root: NodeIndex, leaf: NodeId) -> PathEnd {
        // Up to the first node with a known path, then down again.
        let mut pending = Vec::new();
        let mut next = leaf;
        let mut end = loop {
            if next.is_none() {
                break PathEnd { node: root, rules: 0 };
            }
            if let Some(end) = self.paths.get(tables, &(root, next)) {
                break end;
            }
            // The record of this node was damaged: the path begins with a call without a frame.
            let (parent, frame) = tables.node(next).unwrap_or((NodeId::NONE, FrameId::NONE));
            pending.push((next, frame));
            next = parent;
        };
        // One buffer for the inlined calls of all frames.
        let mut calls = Vec::new();
        for (node, frame) in pending.into_iter().rev() {
            calls.clear();
            calls.extend(tables.calls(frame));
            // A frame's calls are innermost first; inlined calls are further from the root.
            for &call in calls.iter().rev() {
                let call = self.call(tables, call);
                end.node = self.builder.child(end.node, call.function);
                end.rules |= call.rules;
            }
            self.paths.insert((root, node), end);
        }
        end
    }

    fn call(&mut self, tables: &Tables, call: Call) -> PathCall {
        if let Some(known) = self.calls.get(tables, &call) {
            return known;
        }
        let name = self.labels.label(tables, call, CallKey::Function);
        let image = self.labels.label(tables, call, CallKey::ImageName);
        let function = self.function(FunctionKey { name, image });
        let path_call = PathCall { function, rules: self.rules(tables, Some(call)) };
        self.calls.insert(call, path_call);
        path_call
    }

    /// Returns the rules that hold for a call, or for a sample without a stack (None).
    fn rules(&mut self, tables: &Tables, call: Option<Call>) -> RuleBits {
        if !self.filter.is_about_calls() {
            return 0;
        }
        let excluded = self.filter.excludes_call(&mut self.labels, tables, call);
        let matches = self.filter.matches_of(&mut self.labels, tables, call);
        rule_bits(matches.into_iter()) | if excluded { EXCLUDED } else { 0 }
    }

    /// Returns the source line of a leaf, or its address if the line is unknown. None if the
    /// frame's record was damaged.
    fn line(&mut self, tables: &Tables, call: Call) -> Option<NameId> {
        let has_line = call.line.line > 0 && tables.file(call.line.file).is_some();
        let key = if has_line { CallKey::Line } else { CallKey::Address };
        tables.frame(call.frame)?;
        Some(self.labels.label(tables, call, key))
    }

    fn function(&mut self, key: FunctionKey) -> usize {
        // One lookup for known and new functions.
        let next = self.functions.len();
        let id = *self.function_ids.entry(key).or_insert(next);
        if id == next {
            self.functions.push(key);
        }
        id
    }

    /// Returns the tree of the samples added so far.
    pub fn finish(&self) -> Tree {
        let names = &self.labels.names;
        let functions = self.functions.iter().map(|key| Function {
            name: escaped(names.get(key.name)),
            image: escaped(names.get(key.image)),
            raw_name: names.get(key.name).into(),
        });
        let mut lines = LeafLines::default();
        for (&(node, line), &sum) in &self.lines {
            let line = escaped(names.get(line));
            lines.entry(node).or_default().push(LineSum { line, sum });
        }
        self.builder.finish(functions.collect(), lines)
    }
}

/// Returns one bit for each rule that holds. [`EXCLUDED`] is beyond them: a report takes at most
/// 60 rules.
fn rule_bits(holds: impl Iterator<Item = bool>) -> RuleBits {
    holds.zip(0..63).filter(|(holds, _)| *holds).fold(0, |bits, (_, bit)| bits | 1 << bit)
}
