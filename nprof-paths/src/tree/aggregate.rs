//! Builds the call tree from sums of samples per stack.
//!
//! Memory is bounded: when there are `MAX_NODES` nodes, `MAX_LINES` source lines or
//! `MAX_NAME_BYTES` of names, the tree is folded (see [`TreeBuilder::fold`]) to a part of it.

use nprof_report::filter::Filter;
use nprof_report::profile::{
    Context, FoldedSums, GroupBy, GroupKey, PathBuilder, Sum, add_bounds, path_of,
};
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels, OTHER, UNKNOWN};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{EpochCache, NodeId};
use rustc_hash::FxHashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::tree::builder::TreeBuilder;
use crate::tree::call_tree::{Function, LineSum, Moments, NodeIndex, Tree, largest_first};
use crate::tree::code::CodeSamples;
use crate::tree::path_filter::PathFilter;
use crate::tree::timeline::{self, Timeline};

/// The number of nodes above which the tree is folded. The graph of 490,000 nodes with as many edges
/// took 305 MiB in all, and an inverted tree of 330,000 with 16 MiB of names 271 MiB.
const MAX_NODES: usize = 9 << 15;

/// The number of nodes that a folding keeps, besides nodes of the samples that it folds.
const KEPT_NODES: usize = MAX_NODES / 8 * 5;

/// The number of source lines of leaves above which the rarest are dropped: 20 MB here, 15 MB in a
/// [`Tree`].
const MAX_LINES: usize = 1 << 18;

/// The memory of names above which the tree is folded. A [`Tree`] has an escaped copy of each
/// function's name, which can be four times as long.
const MAX_NAME_BYTES: usize = 12 << 20;

/// The number of calls on all paths together above which the finished tree is folded, if the report
/// prints whole paths: it would be longer than 600 MB. 20,000 paths of 1,600 calls are below.
const MAX_PATH_CALLS: usize = 1 << 25;

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

/// The sizes above which an [`Aggregator`] folds its tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) nodes: usize,
    pub(crate) kept_nodes: usize,
    pub(crate) lines: usize,
    pub(crate) name_bytes: usize,
    pub(crate) path_calls: usize,
    pub(crate) finished_nodes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            nodes: MAX_NODES,
            kept_nodes: KEPT_NODES,
            lines: MAX_LINES,
            name_bytes: MAX_NAME_BYTES,
            path_calls: MAX_PATH_CALLS,
            finished_nodes: usize::MAX,
        }
    }
}

/// Adds up samples per call path.
#[derive(Clone, Debug, Default)]
pub struct Aggregator {
    pub(crate) budget: Budget,
    /// True if there is one root per command.
    by_command: bool,
    filter: Filter,
    /// The rules that must hold for a path to count.
    required: RuleBits,
    labels: Labels,
    functions: Vec<FunctionKey>,
    function_ids: FxHashMap<FunctionKey, usize>,
    builder: TreeBuilder,
    /// The source lines of leaves, by node.
    lines: FxHashMap<(u32, NameId), Sum>,
    /// The samples by thread and time; none unless they were requested.
    timeline: Option<Timeline>,
    /// The samples by instruction; none unless they were requested.
    code: Option<CodeSamples>,
    /// By event, the samples that a path may lack because its calls were folded.
    bounds: Vec<Sum>,
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

    /// Keeps paths however long all of them are together: for reports that print calls once, not each
    /// path from its beginning.
    pub fn without_whole_paths(mut self) -> Self {
        self.budget.path_calls = usize::MAX;
        self
    }

    /// Keeps the samples by thread and time, in [`Tree::moments`], and the code of functions, in
    /// [`Tree::code`]. The finished tree then has at most this number of nodes.
    pub fn with_timeline(mut self, nodes: usize) -> Self {
        self.timeline = Some(Timeline::default());
        self.code = Some(CodeSamples::default());
        self.budget.nodes = 2 * nodes;
        self.budget.kept_nodes = nodes;
        self.budget.finished_nodes = nodes;
        self
    }

    /// Returns the sample properties that the profile must keep apart for this tree.
    pub fn group_by(&self) -> GroupBy {
        let time = self.timeline.as_ref().map(|_| timeline::time_split()).unwrap_or_default();
        GroupBy { task: self.by_command, time, ..GroupBy::default() }
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
            (
                path_of(
                    &mut RootPaths { aggregator: self, root },
                    tables,
                    PathEnd { node: root, rules: 0 },
                    group.node,
                ),
                tables.stack_calls(group.node).next(),
            )
        };
        // Any call of a path can satisfy a rule, so the decision is at the leaf.
        if end.rules != self.required {
            return;
        }
        self.builder.add(end.node, sum);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(context, group, end.node as u32, sum);
        }
        if let Some(code) = &mut self.code {
            code.add(context, group, sum);
        }
        if let Some(line) = leaf.and_then(|call| self.line(tables, call)) {
            self.lines.entry((end.node as u32, line)).or_default().add(sum);
        }
        let Budget { nodes, lines, name_bytes, .. } = self.budget;
        if self.builder.len() > nodes || self.labels.names.bytes() > name_bytes {
            self.fold();
        } else if self.lines.len() > lines {
            self.drop_rare_lines();
        }
    }

    /// Returns the function of folded calls.
    fn other(&mut self) -> usize {
        let [name, image] = [OTHER, b""].map(|name| self.labels.names.intern(name));
        self.function(FunctionKey { name, image })
    }

    /// Folds the tree until at most three quarters of the nodes and half of the names are used.
    fn fold(&mut self) {
        let mut count = self.budget.kept_nodes;
        loop {
            let other = self.other();
            let folding = self.builder.fold(count, other);
            add_bounds(&mut self.bounds, &folding.bounds);
            let lines = std::mem::take(&mut self.lines).into_iter();
            // The lines of folded leaves are dropped: `(other)` is code of many functions.
            self.lines = lines
                .map(|((node, line), sum)| ((folding.places[node as usize], line), sum))
                .filter(|((node, _), _)| !folding.is_folded[*node as usize])
                .collect();
            if let Some(timeline) = &mut self.timeline {
                timeline.relocate(|node| folding.places[node as usize]);
            }
            self.drop_rare_lines();
            let max_bytes = self.budget.name_bytes / 2;
            // Most programs have few names, and renumbering visits all nodes.
            if self.labels.names.bytes() > max_bytes || self.functions.len() > count {
                self.forget_unused_names();
            }
            let are_names_few = self.labels.names.bytes() <= max_bytes;
            // Each node that is kept can have `(other)` below it.
            let are_nodes_few = self.builder.len() <= self.budget.nodes / 4 * 3;
            if are_names_few && are_nodes_few || count == 0 {
                break;
            }
            // A few long names can take more memory than all nodes.
            count = if are_names_few { count / 4 * 3 } else { count / 4 };
        }
        // They hold indices of nodes, functions and names.
        self.samples = EpochCache::default();
        self.calls = EpochCache::default();
        self.paths = EpochCache::default();
    }

    /// Drops the lightest source lines if there are more than half of the budget.
    fn drop_rare_lines(&mut self) {
        let count = self.budget.lines / 2;
        if self.lines.len() <= count {
            return;
        }
        let mut lines: Vec<((u32, NameId), Sum)> =
            std::mem::take(&mut self.lines).into_iter().collect();
        lines.select_nth_unstable_by(count, |(a, a_sum), (b, b_sum)| {
            largest_first(*a_sum, *b_sum).then(a.cmp(b))
        });
        lines.truncate(count);
        self.lines = lines.into_iter().collect();
    }

    /// Removes the functions and names that neither nodes nor lines have.
    fn forget_unused_names(&mut self) {
        let old = std::mem::take(&mut self.labels).names;
        let functions = std::mem::take(&mut self.functions);
        self.function_ids.clear();
        let mut names: Vec<Option<NameId>> = Vec::new();
        let mut numbers: Vec<usize> = vec![usize::MAX; functions.len()];
        let mut new_names = nprof_stream::tables::Names::default();
        let mut renamed = |name: NameId| {
            let index = name.0 as usize;
            names.resize(names.len().max(index + 1), None);
            *names[index].get_or_insert_with(|| new_names.intern(old.get(name)))
        };
        for function in self.builder.functions() {
            if numbers[function] == usize::MAX {
                numbers[function] = self.functions.len();
                let FunctionKey { name, image } = functions[function];
                let key = FunctionKey { name: renamed(name), image: renamed(image) };
                self.function_ids.insert(key, self.functions.len());
                self.functions.push(key);
            }
        }
        let lines = std::mem::take(&mut self.lines).into_iter();
        self.lines = lines.map(|((node, line), sum)| ((node, renamed(line)), sum)).collect();
        self.builder.renumber(|function| numbers[function]);
        self.labels.names = new_names;
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
            None if tables.has_omissions() => OTHER,
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

    fn call(&mut self, tables: &Tables, call: Call) -> PathCall {
        if let Some(known) = self.calls.get(tables, &call) {
            return known;
        }
        let name = self.labels.label(tables, call, CallKey::Function);
        let image = self.labels.label(tables, call, CallKey::ImageName);
        let is_omitted = tables.has_omissions() && tables.frame(call.frame).is_none();
        let function = match is_omitted {
            true => self.other(),
            false => self.function(FunctionKey { name, image }),
        };
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

    /// Returns messages about filters that match none of the functions seen so far.
    pub fn notes(&self, path_filters: &[PathFilter]) -> Vec<String> {
        let mut notes = self.filter.notes();
        let names = self.functions.iter().map(|key| self.labels.names.get(key.name));
        notes.extend(path_filters.iter().filter_map(|filter| filter.note(names.clone())));
        notes
    }

    /// Returns the tree of the samples added so far.
    pub fn finish(&self) -> Tree {
        if self.is_within_budget(&self.builder) {
            return self.finish_all();
        }
        // A report may still add samples, so that the tree itself stays.
        let mut folded = self.clone();
        let other = folded.other();
        // The largest tree within the budget, to a sixteenth: a tree without calls is.
        let (mut count, mut too_large) = (0, folded.builder.len());
        while too_large - count > (too_large / 16).max(1) {
            let middle = count + (too_large - count) / 2;
            let mut builder = folded.builder.clone();
            builder.fold(middle, other);
            match self.is_within_budget(&builder) {
                true => count = middle,
                false => too_large = middle,
            }
        }
        let (nodes, name_bytes) = (usize::MAX, usize::MAX);
        folded.budget = Budget { kept_nodes: count, nodes, name_bytes, ..self.budget };
        folded.fold();
        folded.finish_all()
    }

    /// Returns the samples of the events in calls that [`Aggregator::finish`] folds; none for an event
    /// without such calls.
    pub fn folded(&self, events: &[usize]) -> Vec<(usize, FoldedSums)> {
        let is_whole = self.bounds.is_empty() && self.is_within_budget(&self.builder);
        if events.is_empty() || is_whole {
            return Vec::new();
        }
        // One tree for all events: a stream can have thousands of them.
        let tree = self.finish();
        events.iter().filter_map(|&event| Some((event, tree.folded(event)?))).collect()
    }

    /// True if a finished tree may have these nodes.
    fn is_within_budget(&self, builder: &TreeBuilder) -> bool {
        let Budget { path_calls, finished_nodes, .. } = self.budget;
        builder.len() <= finished_nodes
            && (path_calls == usize::MAX || builder.path_size() <= path_calls)
    }

    fn finish_all(&self) -> Tree {
        let names = &self.labels.names;
        let mut shared: FxHashMap<NameId, Arc<str>> = FxHashMap::default();
        let mut share = |name: NameId| {
            Arc::clone(shared.entry(name).or_insert_with(|| escaped(names.get(name)).into()))
        };
        let function = |key: &FunctionKey| Function {
            name: escaped(names.get(key.name)),
            image: share(key.image),
            raw_name: names.get(key.name).into(),
        };
        let functions = self.functions.iter().map(function).collect();
        let line = |(&(leaf, line), &sum): (&(u32, NameId), &Sum)| LineSum {
            leaf: leaf as NodeIndex,
            line: share(line),
            sum,
        };
        let lines = self.lines.iter().map(line).collect();
        let moments = |places: &[Option<u32>]| match &self.timeline {
            Some(timeline) => timeline.finish(|node| places[node as usize]),
            None => Moments::default(),
        };
        let mut tree = self.builder.finish_with(functions, lines, self.bounds.clone(), moments);
        if let Some(code) = &self.code {
            tree.code = code.finish(&tree.moments);
        }
        tree
    }
}

/// The paths below one root.
struct RootPaths<'a> {
    aggregator: &'a mut Aggregator,
    root: NodeIndex,
}

impl PathBuilder for RootPaths<'_> {
    type End = PathEnd;

    fn known(&mut self, tables: &Tables, node: NodeId) -> Option<PathEnd> {
        self.aggregator.paths.get(tables, &(self.root, node))
    }

    fn extend(
        &mut self,
        tables: &Tables,
        path: PathEnd,
        call: Call,
    ) -> ControlFlow<PathEnd, PathEnd> {
        let PathCall { function, rules } = self.aggregator.call(tables, call);
        // One stack can have 2^28 inlined calls: the rest of it is folded.
        if self.aggregator.builder.len() > 2 * self.aggregator.budget.nodes {
            let other = self.aggregator.other();
            let node = self.aggregator.builder.child(path.node, other);
            return ControlFlow::Break(PathEnd { node, ..path });
        }
        let node = self.aggregator.builder.child(path.node, function);
        ControlFlow::Continue(PathEnd { node, rules: path.rules | rules })
    }

    fn remember(&mut self, node: NodeId, path: PathEnd) {
        self.aggregator.paths.insert((self.root, node), path);
    }
}

/// Returns one bit for each rule that holds. [`EXCLUDED`] is beyond them: a report takes at most
/// 60 rules.
fn rule_bits(holds: impl Iterator<Item = bool>) -> RuleBits {
    holds.zip(0..63).filter(|(holds, _)| *holds).fold(0, |bits, (_, bit)| bits | 1 << bit)
}
