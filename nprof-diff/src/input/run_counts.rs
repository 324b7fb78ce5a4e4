//! Counts the samples of each key in each run of a stream.
//!
//! A run is a segment of a stream. Samples are counted per run and not added up over the side: the
//! significance of a difference between the sides depends on the differences between runs of the
//! same side.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;

use nprof_report::join::Joins;
use nprof_report::key::Key;
use nprof_report::profile::{
    BlockNumber, Context, GroupBy, GroupKey, OncePerStack, PathBuilder, Profile, Sum, path_of,
};
use nprof_report::sample_label::sample_label;
use nprof_report::summary::Summary;
use nprof_report::time::TimeSplit;
use nprof_stream::labels::Labels;
use nprof_stream::tables::{Call, Tables};
use nprof_stream::{EpochCache, Error, Mark, NodeId};

use crate::input::fold::{self, Budget};
use crate::input::key::{KeyId, KeyTable, RowKey};
use crate::input::rename::Renames;
use crate::input::row_kind::RowKind;

pub(crate) use crate::input::key::{KeyCount, RunCounts};

/// The counts of one stream.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    /// The facts of its runs and events.
    pub(crate) summary: Summary,
    /// The counts by the indices of run and event in the summary.
    pub(crate) counts: BTreeMap<(usize, usize), RunCounts>,
}

/// The keys of one kind of rows, and their names that differ on this side.
#[derive(Debug)]
pub(crate) struct RowKeys<'a> {
    pub(crate) row_kind: RowKind,
    pub(crate) keys: &'a mut KeyTable,
    pub(crate) renames: &'a mut Renames,
}

impl StreamCounts {
    /// Reads a stream to its end, with at most these many keys and counts of each kind of rows in memory.
    /// Messages refer to it as `name`. Returns the counts of each kind.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub(crate) fn read(
        budget: Budget,
        name: &str,
        input: impl Read,
        joins: Joins,
        rows: Vec<RowKeys<'_>>,
    ) -> Result<Vec<Self>, Error> {
        // Threads are kept apart only if they are rows: it multiplies the number of sums.
        let task = rows.iter().any(|rows| rows.row_kind == RowKind::Command);
        let mut profile = Profile::new(GroupBy { task, ..GroupBy::default() }).joining(joins);
        let (mut counters, mut tables) = (Vec::new(), Vec::new());
        for RowKeys { row_kind, keys, renames } in rows {
            counters.push(Counter::new(budget, row_kind, renames));
            tables.push(keys);
        }
        profile.read(name, input, |context, group, sum| {
            counters.iter_mut().for_each(|counter| counter.add(context, group, sum));
        })?;
        let finish = |(mut counter, keys): (Counter<'_>, &mut KeyTable)| {
            counter.set_path_totals();
            fold::merge(keys, &counter.keys, &mut counter.counts);
            Self { counts: counter.counts, summary: profile.summary.clone() }
        };
        Ok(counters.into_iter().zip(tables).map(finish).collect())
    }

    /// Returns the stream's name in messages.
    pub(crate) fn input(&self) -> &str {
        self.summary.runs.first().map_or("", |run| &run.input)
    }

    /// True if it has stacks, and none of them was symbolized.
    pub(crate) fn is_unsymbolized(&self) -> bool {
        self.counts.values().any(|counts| counts.unsymbolized > 0)
            && self.counts.values().all(|counts| counts.symbolized == 0)
    }
}

/// The samples of a stack.
#[derive(Clone, Copy, Debug, Default)]
struct StackCount {
    sum: Sum,
    blocks: BlockNumber,
}

impl StackCount {
    fn add(&mut self, other: Self) {
        self.sum.add(other.sum);
        self.blocks.add(other.blocks);
    }
}

/// Adds up the samples of one stream.
#[derive(Debug)]
struct Counter<'a> {
    budget: Budget,
    row_kind: RowKind,
    /// The keys of this stream, which can be folded without the other streams.
    keys: KeyTable,
    /// The number of counts in `counts`.
    count: usize,
    renames: &'a mut Renames,
    /// The functions on paths.
    functions: KeyTable,
    /// Paths by stream node.
    paths: EpochCache<NodeId, KeyId>,
    counts: BTreeMap<(usize, usize), RunCounts>,
    labels: Labels,
    /// Keys of calls; of paths, in `functions`.
    calls: EpochCache<Call, KeyId>,
    once: OncePerStack,
}

impl<'a> Counter<'a> {
    fn new(budget: Budget, row_kind: RowKind, renames: &'a mut Renames) -> Self {
        Self {
            budget,
            row_kind,
            keys: KeyTable::default(),
            count: 0,
            renames,
            functions: KeyTable::default(),
            paths: EpochCache::default(),
            counts: BTreeMap::new(),
            labels: Labels::new(),
            calls: EpochCache::default(),
            once: OncePerStack::default(),
        }
    }

    fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let tables = context.tables;
        self.once.next_stack();
        // Taken out, because the methods below need all of `self`.
        let mut counts = self.counts.remove(&(group.run, group.event)).unwrap_or_default();
        counts.sum.add(sum);
        let blocks = context.blocks.unwrap_or_default().exact_number();
        let stack = StackCount { sum, blocks };
        let leaf = tables.stack(group.node).next().and_then(|frame| tables.frame(frame));
        match leaf.map(|frame| (frame.status, frame.mark)) {
            Some((Some(_), _)) => counts.symbolized += 1,
            Some((None, Mark::None)) => counts.unsymbolized += 1,
            // Marks of incomplete stacks and samples without a stack need no symbols.
            _ => {}
        }
        match self.row_kind {
            RowKind::Command => {
                let name = sample_label(context, group, Key::Command, TimeSplit::default());
                let key = self.renames.renamed(RowKey::of_name(&name), self.row_kind);
                let key = self.keys.intern(key);
                self.add_key(&mut counts, key, stack, true);
            }
            RowKind::Path => self.add_path(&mut counts, tables, group, stack),
            _ => self.add_calls(&mut counts, tables, group, stack),
        }
        self.counts.insert((group.run, group.event), counts);
        let Budget { keys, counts, name_bytes, .. } = self.budget;
        if self.keys.len() > keys || self.keys.name_bytes() > name_bytes || self.count > counts {
            self.set_path_totals();
            let mut runs: Vec<&mut RunCounts> = self.counts.values_mut().collect();
            fold::fold(&mut self.keys, &mut runs, self.budget);
            self.count = runs.iter().map(|run| run.keys.len()).sum();
            self.forget_ids();
            self.once = OncePerStack::default();
        } else if self.functions.name_bytes() + self.labels.names.bytes() > name_bytes {
            self.forget_ids();
        }
    }

    /// Sets the totals of paths from the self of the paths that extend them: every stack of depth 65,000
    /// would otherwise be added 65,000 times.
    fn set_path_totals(&mut self) {
        if self.row_kind != RowKind::Path {
            return;
        }
        for run in self.counts.values_mut() {
            let mut totals = vec![StackCount::default(); self.keys.len()];
            for (id, count) in &run.keys {
                totals[id.index()] = StackCount { sum: count.self_, blocks: count.self_blocks };
            }
            // A caller has a smaller id than the path that extends it.
            for id in self.keys.ids().rev() {
                if let Some(caller) = self.keys.get(id).caller {
                    let total = totals[id.index()];
                    totals[caller.index()].add(total);
                }
            }
            let totals = self.keys.ids().zip(totals);
            for (id, total) in totals.filter(|(_, total)| total.sum.samples > 0) {
                let count = run.keys.entry(id).or_default();
                (count.total, count.total_blocks) = (total.sum, total.blocks);
            }
        }
    }

    /// Empties the caches by names and ids: keys are found by their names again.
    fn forget_ids(&mut self) {
        self.functions = KeyTable::default();
        self.paths = EpochCache::default();
        self.labels = Labels::new();
        self.calls = EpochCache::default();
    }

    /// Adds a stack to the keys of its calls, leaf first.
    fn add_calls(
        &mut self,
        counts: &mut RunCounts,
        tables: &Tables,
        group: &GroupKey,
        stack: StackCount,
    ) {
        let mut is_leaf = true;
        for call in tables.stack_calls(group.node) {
            let key = self.call_key(tables, call);
            self.add_key(counts, key, stack, is_leaf);
            is_leaf = false;
        }
        if is_leaf {
            let key = self.keys.intern(RowKey::without_stack());
            self.add_key(counts, key, stack, true);
        }
    }

    /// Adds a stack to its path. The paths that it extends get their totals in [`set_path_totals`].
    fn add_path(
        &mut self,
        counts: &mut RunCounts,
        tables: &Tables,
        group: &GroupKey,
        stack: StackCount,
    ) {
        let path = match self.path(tables, group.node, stack.sum) {
            Some(path) => path,
            None => self.keys.intern(RowKey::without_stack()),
        };
        self.add_key(counts, path, stack, true);
    }

    /// Returns the path of a stream node with these samples; None for no stack.
    fn path(&mut self, tables: &Tables, leaf: NodeId, sum: Sum) -> Option<KeyId> {
        path_of(&mut SamplePaths { counter: self, samples: sum.samples }, tables, None, leaf)
    }

    /// Returns the key of a call, with its name on the new side.
    fn call_key(&mut self, tables: &Tables, call: Call) -> KeyId {
        if let Some(key) = self.calls.get(tables, &call) {
            return key;
        }
        let key = RowKey::of_call(&mut self.labels, tables, call, self.row_kind);
        let key = self.renames.renamed(key, self.row_kind);
        // Functions on paths are no rows themselves.
        let is_path = self.row_kind == RowKind::Path;
        let keys = if is_path { &mut self.functions } else { &mut self.keys };
        let key = keys.intern(key);
        self.calls.insert(call, key);
        key
    }

    fn add_key(&mut self, counts: &mut RunCounts, key: KeyId, stack: StackCount, is_leaf: bool) {
        // A recursive function is on the stack several times but takes its time only once.
        if !self.once.is_first(key.index()) {
            return;
        }
        let known = counts.keys.len();
        let count = counts.keys.entry(key).or_default();
        count.total.add(stack.sum);
        count.total_blocks.add(stack.blocks);
        if is_leaf {
            count.self_.add(stack.sum);
            count.self_blocks.add(stack.blocks);
        }
        self.count += counts.keys.len() - known;
    }
}

/// The paths of a stack with these samples.
struct SamplePaths<'a, 'b> {
    counter: &'a mut Counter<'b>,
    samples: u64,
}

impl PathBuilder for SamplePaths<'_, '_> {
    /// None for the path without a call.
    type End = Option<KeyId>;

    fn known(&mut self, tables: &Tables, node: NodeId) -> Option<Self::End> {
        self.counter.paths.get(tables, &node).map(Some)
    }

    fn extend(
        &mut self,
        tables: &Tables,
        caller: Self::End,
        call: Call,
    ) -> ControlFlow<Self::End, Self::End> {
        let counter = &mut *self.counter;
        // One stack can have 2^28 inlined calls: the rest of it is folded.
        if counter.keys.len() > counter.budget.keys.saturating_mul(2) {
            counter.keys.lose(self.samples);
            let other = RowKey { caller, ..RowKey::other() };
            return ControlFlow::Break(Some(counter.keys.intern(other)));
        }
        let function = counter.call_key(tables, call);
        let function = counter.functions.get(function).clone();
        ControlFlow::Continue(Some(counter.keys.intern(RowKey { caller, ..function })))
    }

    fn remember(&mut self, node: NodeId, path: Self::End) {
        if let Some(path) = path {
            self.counter.paths.insert(node, path);
        }
    }
}

#[cfg(test)]
impl StreamCounts {
    /// Returns the counts of one kind of rows in a stream.
    pub(crate) fn of(
        stream: &[u8],
        row_kind: RowKind,
        budget: Budget,
        keys: &mut KeyTable,
    ) -> Self {
        let renames = &mut Renames::default();
        let rows = vec![RowKeys { row_kind, keys, renames }];
        Self::read(budget, "x", stream, Joins::default(), rows).unwrap().remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// main calls fib, which calls itself; `cold` is inlined into a part of fib. Image 2 has no
    /// names; frame 6 is the mark of a truncated stack.
    const STREAM: &str = "@nprof\t1.1\trun=0x1\n\
        @event\tid=1\tname=cpu-clock\tunit=ns\tmeasure=cpu-time\n\
        I\t1\telf\t-\t/opt/demo\nI\t2\telf\t-\t/lib/libx.so.1\n\
        F\t1\t1\t0x10\tu\nF\t2\t1\t0x20\tu,ra\nF\t3\t1\t0x30\tu,ra\nF\t4\t2\t0x40\tu\n\
        F\t5\t2\t0x50\tu,ra\nF\t6\t0\t0x0\tu,stack-truncated\n\
        U\t1\tmain\t-\nU\t2\tfib(int)\t-\nU\t3\tfib(int) [clone .part.0]\t-\nU\t4\tcold\t-\n\
        D\t1\t/src/demo.cc\n\
        Y\t1\tnamed\t4,1,7,0\t3,1,9,0\nY\t2\tnamed\t2,1,11,0\nY\t3\tnamed\t1,1,20,0\n\
        Y\t4\tstripped\nY\t5\tstripped\nY\t6\tanonymous\n\
        N\t1\t0\t3\t2\t2\t1\n\
        N\t5\t0\t6\t5\t4\n\
        S\t1\t1\t0\t0\t4\t100\t1\nS\t2\t1\t0\t0\t4\t100\t1\n\
        S\t3\t1\t0\t0\t7\t100\t1\nS\t4\t1\t0\t0\t0\t100\t1\n\
        @end\tsamples=4\trecords=0\tlost=0\n";

    fn rows(row_kind: RowKind) -> Vec<String> {
        let mut keys = KeyTable::default();
        let budget = Budget::default();
        let recording = StreamCounts::of(STREAM.as_bytes(), row_kind, budget, &mut keys);
        let counts = &recording.counts[&(0, 0)];
        assert_eq!((counts.sum.samples, counts.symbolized, counts.unsymbolized), (4, 2, 0));
        let mut rows: Vec<String> = keys
            .ids()
            .map(|id| {
                let count = counts.keys[&id];
                let (name, image) = (keys.name(id), String::from_utf8_lossy(&keys.get(id).image));
                format!("{name}|{image} {} {}", count.self_.samples, count.total.samples)
            })
            .collect();
        rows.sort();
        rows
    }

    #[test]
    fn counts_function_once_per_sample_without_address() {
        let expected = [
            "[incomplete:stack-truncated]| 0 1",
            "[no stack]| 1 1",
            "[unnamed in libx.so.1]|libx.so.1 1 1",
            "cold|demo 2 2",
            "fib(int)|demo 0 2",
            "main|demo 0 2",
        ];
        assert_eq!(rows(RowKind::Function), expected);
    }

    #[test]
    fn counts_files_lines_and_images() {
        let expected = [
            "/src/demo.cc| 2 2",
            "[incomplete:stack-truncated]| 0 1",
            "[libx.so.1]| 1 1",
            "[no stack]| 1 1",
        ];
        assert_eq!(rows(RowKind::File), expected);
        assert!(rows(RowKind::Line).contains(&"/src/demo.cc:11| 0 2".to_owned()));
        let expected =
            ["[incomplete:stack-truncated]| 0 1", "[no stack]| 1 1", "demo| 2 2", "libx.so.1| 1 1"];
        assert_eq!(rows(RowKind::Image), expected);
    }

    #[test]
    fn counts_every_prefix_of_a_path() {
        let expected = [
            "[incomplete:stack-truncated];[unnamed in libx.so.1];[unnamed in libx.so.1]|libx.so.1 1 1",
            "[incomplete:stack-truncated];[unnamed in libx.so.1]|libx.so.1 0 1",
            "[incomplete:stack-truncated]| 0 1",
            "[no stack]| 1 1",
            "main;fib(int);fib(int);fib(int);cold|demo 2 2",
            "main;fib(int);fib(int);fib(int)|demo 0 2",
            "main;fib(int);fib(int)|demo 0 2",
            "main;fib(int)|demo 0 2",
            "main|demo 0 2",
        ];
        assert_eq!(rows(RowKind::Path), expected);
    }

    #[test]
    fn path_of_one_stack_is_folded_within_the_budget() {
        let budget = Budget { keys: 20, ..Budget::default() };
        let depth = 1000;
        let stack: String = (0..depth).map(|i| format!("N\t{}\t{i}\t1\n", i + 1)).collect();
        let stream = format!(
            "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=e\nI\t1\telf\t-\t/x\n\
             F\t1\t1\t0x10\tu\n{stack}S\t1\t1\t0\t0\t{depth}\t7\t1\n"
        );
        let (tables, mut renames) = (&mut Tables::new(), Renames::default());
        let mut counter = Counter::new(budget, RowKind::Path, &mut renames);
        let mut reader = nprof_stream::reader::Reader::new(stream.as_bytes());
        while let Some(record) = reader.next().unwrap() {
            tables.apply(&record);
        }
        let path = counter.path(tables, NodeId(depth), Sum::of(3, 21)).unwrap();
        assert!(counter.keys.get(path).is_other());
        // The limit, the key beyond it, and `(other)`.
        assert_eq!(counter.keys.len(), 2 * budget.keys + 2);
        // The calls below may lack the samples.
        assert!(counter.keys.ids().take(2 * budget.keys).all(|id| counter.keys.lost(id) == 3));
        assert_eq!(counter.keys.bound(), 3);
    }

    #[test]
    fn counts_threads_by_name() {
        let stream = STREAM.replace("F\t1\t1", "T\t1\t0\t7\t8\t0\tworker\nF\t1\t1");
        let stream = stream.replace("S\t1\t1\t0", "S\t1\t1\t1");
        let mut keys = KeyTable::default();
        let budget = Budget::default();
        let recording = StreamCounts::of(stream.as_bytes(), RowKind::Command, budget, &mut keys);
        let counts = &recording.counts[&(0, 0)];
        let self_ = |id| counts.keys[&id].self_.samples;
        let rows: Vec<_> = keys.ids().map(|id| (keys.name(id), self_(id))).collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows.contains(&("worker".to_owned(), 1)), "{rows:?}");
        assert!(rows.contains(&("[unknown]".to_owned(), 3)), "{rows:?}");
    }

    #[test]
    fn counts_every_segment_as_a_run() {
        let mut keys = KeyTable::default();
        let twice = STREAM.repeat(2);
        let budget = Budget::default();
        let recording = StreamCounts::of(twice.as_bytes(), RowKind::Function, budget, &mut keys);
        assert_eq!(recording.counts.len(), 2);
        assert_eq!(recording.counts[&(0, 0)].keys, recording.counts[&(1, 0)].keys);
    }
}
