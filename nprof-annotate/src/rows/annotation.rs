//! The sums of samples by function and offset in its code.
//!
//! A sample counts where its leaf is. Memory is bounded: samples in code that [`CodePlaces`] has no room for,
//! or at more than [`MAX_SUMS`] offsets, count as samples without code.

use std::collections::BTreeMap;
use std::sync::Arc;

use nprof_code::function::Function;
use nprof_code::places::{CodePlaces, FramePlace};
use nprof_report::filter::Filter;
use nprof_report::profile::{Context, GroupBy, GroupKey, Sum};
use nprof_report::time::TimeSplit;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::Tables;
use nprof_stream::{EpochCache, FrameId, ImageKind, NodeId};

/// The most sums of offsets: 100 bytes each.
const MAX_SUMS: usize = 1 << 19;

/// A function and its samples.
#[derive(Clone, Debug)]
pub(crate) struct FunctionSums {
    pub(crate) function: Arc<Function>,
    /// The sums by offset from the function's start, and event.
    pub(crate) sums: BTreeMap<(u32, usize), Sum>,
    /// By event, all of them.
    pub(crate) total: Vec<Sum>,
    /// True if the `--match` rules about calls hold for a sample.
    pub(crate) is_matched: bool,
    /// By offset of the last byte of a call, the functions that samples have below it.
    pub(crate) called: BTreeMap<u32, Vec<Arc<str>>>,
}

/// Adds up samples by function and offset.
#[derive(Clone, Debug)]
pub(crate) struct Annotation {
    filter: Filter,
    time: TimeSplit,
    labels: Labels,
    code: CodePlaces,
    /// By function of `code`.
    functions: Vec<FunctionSums>,
    sums: usize,
    /// The samples without code, by function and event.
    without_code: BTreeMap<Arc<str>, Vec<Sum>>,
    /// The memory of their names.
    without_code_bytes: usize,
    /// True if code that a process generated at run time is among it.
    lacks_generated_code: bool,
    /// Samples that count, by event.
    counted: Vec<Sum>,
    counts: EpochCache<GroupKey, bool>,
    excluded: EpochCache<FrameId, bool>,
    /// The nodes of which the function was added to those that its caller calls.
    followed: EpochCache<NodeId, ()>,
    /// The memory of those functions' names.
    called_bytes: usize,
    matches: EpochCache<FrameId, bool>,
}

impl Annotation {
    /// Creates a report without samples.
    pub(crate) fn new(time: TimeSplit, filter: Filter) -> Self {
        Self {
            filter,
            time,
            labels: Labels::new(),
            code: CodePlaces::default(),
            functions: Vec::new(),
            sums: 0,
            without_code: BTreeMap::new(),
            without_code_bytes: 0,
            lacks_generated_code: false,
            counted: Vec::new(),
            counts: EpochCache::default(),
            excluded: EpochCache::default(),
            followed: EpochCache::default(),
            called_bytes: 0,
            matches: EpochCache::default(),
        }
    }

    /// Returns the sample properties that the profile must keep apart.
    pub(crate) fn group_by(&self) -> GroupBy {
        GroupBy { time: self.time, ..GroupBy::default() }
    }

    /// Returns the functions with code.
    pub(crate) fn functions(&self) -> &[FunctionSums] {
        &self.functions
    }

    /// True if code that a process generated at run time has samples and is not in the stream.
    pub(crate) fn lacks_generated_code(&self) -> bool {
        self.lacks_generated_code
    }

    /// Returns the functions without code, and their sums by event.
    pub(crate) fn without_code(&self) -> &BTreeMap<Arc<str>, Vec<Sum>> {
        &self.without_code
    }

    /// Returns the samples of an event that count.
    pub(crate) fn counted(&self, event: usize) -> Sum {
        self.counted.get(event).copied().unwrap_or_default()
    }

    /// Returns messages about rules of the filter that match nothing.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.filter.notes()
    }

    /// Adds the samples of one stack.
    pub(crate) fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let tables = context.tables;
        if !self.counts(context, group)
            || (self.filter.excludes_by_call() && self.excludes_stack(tables, group.node))
        {
            return;
        }
        add_to(&mut self.counted, group.event, sum);
        self.follow_calls(tables, group.node);
        let frame = tables.node(group.node).map_or(FrameId::NONE, |(_, frame)| frame);
        let place = self.place(tables, frame);
        self.lacks_generated_code |= place.is_none() && is_generated(tables, frame);
        let place = place.filter(|place| {
            let sums = &self.functions[place.function].sums;
            self.sums < MAX_SUMS || sums.contains_key(&(place.offset, group.event))
        });
        let Some(place) = place else {
            let name = self.name(tables, frame, group.node);
            return self.add_without_code(name, group.event, sum);
        };
        let is_matched = self.matches(tables, frame);
        let function = &mut self.functions[place.function];
        function.is_matched |= is_matched;
        add_to(&mut function.total, group.event, sum);
        let before = function.sums.len();
        function.sums.entry((place.offset, group.event)).or_default().add(sum);
        self.sums += function.sums.len() - before;
    }

    /// Adds the functions of a stack to those that their callers call.
    fn follow_calls(&mut self, tables: &Tables, leaf: NodeId) {
        let mut next = leaf;
        // Parents have smaller ids than their children, so that the walk ends.
        while let Some((caller, frame)) = tables.node(next) {
            let node = std::mem::replace(&mut next, caller);
            if self.followed.get(tables, &node).is_some() || self.called_bytes > MAX_NAME_BYTES {
                continue;
            }
            let Some((_, from)) = tables.node(caller) else { return };
            let is_call = tables.frame(from).is_some_and(|from| from.return_address);
            // The code of the caller may come later, or never.
            let Some(place) = Some(from).filter(|_| is_call).and_then(|it| self.place(tables, it))
            else {
                continue;
            };
            self.followed.insert(node, ());
            let name = self.name(tables, frame, node);
            let called = &mut self.functions[place.function].called;
            let names = called.entry(place.offset).or_default();
            if !names.contains(&name) && names.len() < MAX_CALLED {
                self.called_bytes += name.len() + size_of::<Arc<str>>();
                names.push(name);
            }
        }
    }

    /// Adds samples of a function without code.
    fn add_without_code(&mut self, name: Arc<str>, event: usize, sum: Sum) {
        // The report keeps no ids of labels.
        if self.labels.names.bytes() > MAX_NAME_BYTES {
            self.labels = Labels::new();
        }
        if let Some(sums) = self.without_code.get_mut(&name) {
            return add_to(sums, event, sum);
        }
        // A stream has any number of names, of which the heaviest are not known yet.
        let has_room = self.without_code.len() < MAX_NAMES
            && self.without_code_bytes + name.len() <= MAX_NAME_BYTES;
        let name = if has_room { name } else { "(other)".into() };
        self.without_code_bytes += name.len();
        add_to(self.without_code.entry(name).or_default(), event, sum);
    }

    /// True if the samples of a group count by the rules about samples.
    fn counts(&mut self, context: &Context<'_>, group: &GroupKey) -> bool {
        // Rules about samples do not depend on the stack.
        let key = GroupKey { node: NodeId::NONE, ..*group };
        if let Some(counts) = self.counts.get(context.tables, &key) {
            return counts;
        }
        let counts = self.filter.keeps_samples(context, group);
        self.counts.insert(key, counts);
        counts
    }

    /// True if an `--exclude` rule matches a call of a stack.
    fn excludes_stack(&mut self, tables: &Tables, node: NodeId) -> bool {
        tables.stack(node).any(|frame| {
            if let Some(excluded) = self.excluded.get(tables, &frame) {
                return excluded;
            }
            let (filter, labels) = (&mut self.filter, &mut self.labels);
            let mut calls = tables.calls(frame);
            let excluded = calls.any(|call| filter.excludes_call(labels, tables, Some(call)));
            self.excluded.insert(frame, excluded);
            excluded
        })
    }

    /// True if the `--match` rules about calls hold for a call of a frame.
    fn matches(&mut self, tables: &Tables, frame: FrameId) -> bool {
        if let Some(matches) = self.matches.get(tables, &frame) {
            return matches;
        }
        let (filter, labels) = (&mut self.filter, &mut self.labels);
        let mut calls = tables.calls(frame);
        let holds = |call| filter.matches_of(labels, tables, Some(call)).iter().all(|&holds| holds);
        let matches = calls.any(holds);
        self.matches.insert(frame, matches);
        matches
    }

    /// Returns the name of the function of a frame without code: as nprof-flat has it.
    fn name(&mut self, tables: &Tables, frame: FrameId, node: NodeId) -> Arc<str> {
        // The outermost call: the function that has the code, as for those with code.
        let call = tables.calls(frame).last().filter(|_| !node.is_none());
        let label = match call {
            Some(call) => self.labels.label(tables, call, CallKey::Function),
            None => self.labels.no_stack(),
        };
        escaped(self.labels.names.get(label)).into()
    }

    /// Returns the place of a frame, with sums for its function. None if the stream has no code there.
    fn place(&mut self, tables: &Tables, frame: FrameId) -> Option<FramePlace> {
        let place = self.code.place(tables, frame)?;
        // New functions are at the end.
        for function in &self.code.functions()[self.functions.len()..] {
            self.functions.push(FunctionSums {
                function: Arc::clone(function),
                sums: BTreeMap::new(),
                total: Vec::new(),
                is_matched: false,
                called: BTreeMap::new(),
            });
        }
        Some(place)
    }
}

/// The most functions of an indirect call that are named.
const MAX_CALLED: usize = 8;

/// The most names of functions without code, and the most memory that they take.
const MAX_NAMES: usize = 1 << 16;
const MAX_NAME_BYTES: usize = 16 << 20;

/// Adds a sum of an event to sums by event.
pub(crate) fn add_to(sums: &mut Vec<Sum>, event: usize, sum: Sum) {
    if sums.len() <= event {
        sums.resize(event + 1, Sum::default());
    }
    sums[event].add(sum);
}

/// True if a frame is in code that a process generated at run time.
fn is_generated(tables: &Tables, frame: FrameId) -> bool {
    let Some(frame) = tables.frame(frame).filter(|frame| !frame.kernel) else { return false };
    let image = tables.image(frame.image);
    image.is_some_and(|image| matches!(image.kind, ImageKind::Jit | ImageKind::Anonymous))
}
