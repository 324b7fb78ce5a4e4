//! One side of the comparison: its runs, and how many samples each key has in each of them.
//!
//! A run is a segment of a stream. Samples are counted per run and not added up over the side,
//! because what differs between runs of the same program is what a difference between the sides
//! is judged by.

use std::collections::BTreeMap;
use std::io::Read;

use nprof_report::profile::{Cell, Profile, Split, Sum};
use nprof_report::summary::Summary;
use nprof_stream::labels::Labels;
use nprof_stream::tables::{Call, Tables};
use nprof_stream::{Error, Mark};
use rustc_hash::FxHashMap;

use crate::input::key::{self, By, KeyId, KeyTable, RowKey};
use crate::input::rename::Renames;

/// How much fell on a key in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyCount {
    /// On the key itself.
    pub(crate) own: Sum,
    /// On it and on what it called.
    pub(crate) total: Sum,
}

/// The samples of one event in one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCounts {
    /// All of them.
    pub(crate) sum: Sum,
    /// Those of each key; a key that is absent has none.
    pub(crate) keys: FxHashMap<KeyId, KeyCount>,
    /// How many stacks have a leaf with a name, or a reason why it has none.
    pub(crate) symbolized: u64,
    /// How many stacks have a leaf that symbolizing has not touched.
    pub(crate) unsymbolized: u64,
}

/// What one operand held.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    /// What is known of it.
    pub(crate) summary: Summary,
    /// By run and event, as numbered in the summary.
    pub(crate) counts: BTreeMap<(usize, usize), RunCounts>,
}

impl StreamCounts {
    /// Reads a stream to its end. `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub(crate) fn read(
        name: &str,
        input: impl Read,
        by: By,
        keys: &mut KeyTable,
        renames: &mut Renames,
    ) -> Result<Self, Error> {
        let split = Split { task: by == By::Thread, ..Split::default() };
        let mut profile = Profile::new(split);
        let mut counter = Counter::new(by, keys, renames);
        profile.read(name, input, |tables, cell, sum| counter.add(tables, cell, sum))?;
        Ok(Self { counts: counter.counts, summary: profile.summary })
    }
}

/// Adds up the samples of one operand.
#[derive(Debug)]
struct Counter<'a> {
    by: By,
    keys: &'a mut KeyTable,
    renames: &'a mut Renames,
    /// The functions that paths are made of.
    functions: KeyTable,
    /// Path by the path of its caller and its last function.
    paths: FxHashMap<(Option<KeyId>, KeyId), KeyId>,
    counts: BTreeMap<(usize, usize), RunCounts>,
    labels: Labels,
    /// Keys of the calls of the epoch at hand; of paths, in `functions`.
    calls: FxHashMap<Call, KeyId>,
    generation: u64,
    /// By key, the number of the last stack it was met on: a key counts once per stack.
    met: Vec<u64>,
    stacks: u64,
}

impl<'a> Counter<'a> {
    fn new(by: By, keys: &'a mut KeyTable, renames: &'a mut Renames) -> Self {
        Self {
            by,
            keys,
            renames,
            functions: KeyTable::default(),
            paths: FxHashMap::default(),
            counts: BTreeMap::new(),
            labels: Labels::new(),
            calls: FxHashMap::default(),
            generation: 0,
            met: Vec::new(),
            stacks: 0,
        }
    }

    fn add(&mut self, tables: &Tables, cell: &Cell, sum: Sum) {
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.calls.clear();
        }
        self.stacks += 1;
        let mut counts = self.counts.remove(&(cell.run, cell.event)).unwrap_or_default();
        counts.sum.add(sum);
        let leaf = tables.stack(cell.node).next().and_then(|frame| tables.frame(frame));
        match leaf.map(|frame| (frame.status, frame.mark)) {
            Some((Some(_), _)) => counts.symbolized += 1,
            Some((None, Mark::None)) => counts.unsymbolized += 1,
            _ => {}
        }
        match self.by {
            By::Thread => {
                let name = tables.task(cell.task).map(|_| tables.names.get(cell.comm));
                let key = self.named(key::thread_key(name.unwrap_or_default()));
                self.add_key(&mut counts, key, sum, true);
            }
            By::Path => self.add_path(&mut counts, tables, cell, sum),
            _ => self.add_calls(&mut counts, tables, cell, sum),
        }
        self.counts.insert((cell.run, cell.event), counts);
    }

    fn add_calls(&mut self, counts: &mut RunCounts, tables: &Tables, cell: &Cell, sum: Sum) {
        let mut is_leaf = true;
        for call in tables.stack_calls(cell.node) {
            let key = self.key(tables, call);
            self.add_key(counts, key, sum, is_leaf);
            is_leaf = false;
        }
        if is_leaf {
            let key = self.keys.intern(key::no_stack_key());
            self.add_key(counts, key, sum, true);
        }
    }

    /// Every path from the outermost call to another is a key; the whole one is the leaf's.
    fn add_path(&mut self, counts: &mut RunCounts, tables: &Tables, cell: &Cell, sum: Sum) {
        let mut functions: Vec<KeyId> =
            tables.stack_calls(cell.node).map(|call| self.key(tables, call)).collect();
        if functions.is_empty() {
            functions.push(self.functions.intern(key::no_stack_key()));
        }
        let mut caller = None;
        for (depth, &function) in functions.iter().rev().enumerate() {
            let path = match self.paths.get(&(caller, function)) {
                Some(&path) => path,
                None => {
                    let key = RowKey { caller, ..self.functions.get(function).clone() };
                    let path = self.keys.intern(key);
                    self.paths.insert((caller, function), path);
                    path
                }
            };
            self.add_key(counts, path, sum, depth + 1 == functions.len());
            caller = Some(path);
        }
    }

    /// The id of a key, by its name on the new side.
    fn named(&mut self, key: RowKey) -> KeyId {
        let key = self.renames.renamed(key, self.by);
        self.keys.intern(key)
    }

    fn key(&mut self, tables: &Tables, call: Call) -> KeyId {
        if let Some(&key) = self.calls.get(&call) {
            return key;
        }
        let key = key::call_key(&mut self.labels, tables, call, self.by);
        let key = self.renames.renamed(key, self.by);
        let keys = if self.by == By::Path { &mut self.functions } else { &mut *self.keys };
        let key = keys.intern(key);
        self.calls.insert(call, key);
        key
    }

    fn add_key(&mut self, counts: &mut RunCounts, key: KeyId, sum: Sum, is_leaf: bool) {
        if self.met.len() <= key.index() {
            self.met.resize(key.index() + 1, 0);
        }
        let met = std::mem::replace(&mut self.met[key.index()], self.stacks) == self.stacks;
        if met {
            return;
        }
        let count = counts.keys.entry(key).or_default();
        count.total.add(sum);
        if is_leaf {
            count.own.add(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// main calls fib, which calls itself; `cold` is inlined in a part of fib. Image 2 has no
    /// names; frame 6 is the mark of a stack that was cut.
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

    fn rows(by: By) -> Vec<String> {
        let mut keys = KeyTable::default();
        let recording =
            StreamCounts::read("x", STREAM.as_bytes(), by, &mut keys, &mut Renames::default());
        let recording = recording.unwrap();
        let counts = &recording.counts[&(0, 0)];
        assert_eq!((counts.sum.samples, counts.symbolized, counts.unsymbolized), (4, 2, 0));
        let mut rows: Vec<String> = keys
            .ids()
            .map(|id| {
                let count = counts.keys[&id];
                let (name, image) = (keys.name(id), String::from_utf8_lossy(&keys.get(id).image));
                format!("{name}|{image} {} {}", count.own.samples, count.total.samples)
            })
            .collect();
        rows.sort();
        rows
    }

    #[test]
    fn a_function_counts_once_per_sample_and_never_by_address() {
        let expected = [
            "[incomplete:stack-truncated]| 0 1",
            "[no stack]| 1 1",
            "[unnamed in libx.so.1]|libx.so.1 1 1",
            "cold|demo 2 2",
            "fib(int)|demo 0 2",
            "main|demo 0 2",
        ];
        assert_eq!(rows(By::Function), expected);
    }

    #[test]
    fn files_lines_and_images_are_keys_as_well() {
        let expected = [
            "/src/demo.cc| 2 2",
            "[incomplete:stack-truncated]| 0 1",
            "[libx.so.1]| 1 1",
            "[no stack]| 1 1",
        ];
        assert_eq!(rows(By::File), expected);
        assert!(rows(By::Line).contains(&"/src/demo.cc:11| 0 2".to_owned()));
        let expected =
            ["[incomplete:stack-truncated]| 0 1", "[no stack]| 1 1", "demo| 2 2", "libx.so.1| 1 1"];
        assert_eq!(rows(By::Image), expected);
    }

    #[test]
    fn a_path_is_a_row_with_all_that_hangs_under_it() {
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
        assert_eq!(rows(By::Path), expected);
    }

    #[test]
    fn threads_are_told_by_name() {
        let stream = STREAM.replace("F\t1\t1", "T\t1\t0\t7\t8\t0\tworker\nF\t1\t1");
        let stream = stream.replace("S\t1\t1\t0", "S\t1\t1\t1");
        let mut keys = KeyTable::default();
        let recording = StreamCounts::read(
            "x",
            stream.as_bytes(),
            By::Thread,
            &mut keys,
            &mut Renames::default(),
        );
        let counts = &recording.unwrap().counts[&(0, 0)];
        let own = |id| counts.keys[&id].own.samples;
        let rows: Vec<_> = keys.ids().map(|id| (keys.name(id), own(id))).collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows.contains(&("worker".to_owned(), 1)), "{rows:?}");
        assert!(rows.contains(&("[no name]".to_owned(), 3)), "{rows:?}");
    }

    #[test]
    fn every_segment_is_a_run() {
        let mut keys = KeyTable::default();
        let twice = STREAM.repeat(2);
        let recording = StreamCounts::read(
            "x",
            twice.as_bytes(),
            By::Function,
            &mut keys,
            &mut Renames::default(),
        )
        .unwrap();
        assert_eq!(recording.counts.len(), 2);
        assert_eq!(recording.counts[&(0, 0)].keys, recording.counts[&(1, 0)].keys);
    }
}
