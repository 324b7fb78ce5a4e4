//! The sums behind the table: how much fell on each row itself (self), and on it and what it
//! called (total).
//!
//! A row is what has all its columns in common. Columns that are properties of a call (function,
//! line, ...) make rows out of every call of a stack; a row counts once per stack however often
//! it is on it, and the innermost call of the leaf is the row's self. Columns that are
//! properties of the sample (thread, CPU, ...) are the same for the whole stack.

use nprof_format::escape::escaped;
use nprof_format::labels::{CallKey, Labels};
use nprof_format::profile::{Cell, Split, Sum};
use nprof_format::tables::{Call, NameId, Tables};
use nprof_format::{NO_CPU, TaskId};
use rustc_hash::FxHashMap;

use crate::key::Column;

/// The name of what a sample without a stack ran.
const NO_STACK: &[u8] = b"[no stack]";

/// The name of a task that no record defines.
const UNKNOWN: &str = "[unknown]";

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Index into the summary's events.
    pub(crate) event: usize,
    /// One name per column, escaped.
    pub(crate) names: Vec<String>,
    /// What fell on the row itself.
    pub(crate) own: Sum,
    /// What fell on it and on what it called.
    pub(crate) total: Sum,
}

/// Names of one row's columns of one sort; equal ones have equal ids.
type PartId = u32;

/// Identifies a row: event, the part of its call columns, the part of its sample columns.
type RowKey = (usize, PartId, PartId);

#[derive(Debug, Default)]
struct RowSums {
    own: Sum,
    total: Sum,
    /// The number of the last stack that was added, so that a row counts once per stack.
    stack: u64,
}

/// Adds up the rows of a table.
#[derive(Debug)]
pub(crate) struct Flat {
    columns: Vec<Column>,
    call_keys: Vec<CallKey>,
    labels: Labels,
    parts: Vec<Box<[NameId]>>,
    part_ids: FxHashMap<Box<[NameId]>, PartId>,
    rows: Vec<RowSums>,
    row_ids: FxHashMap<RowKey, usize>,
    stacks: u64,
    /// Call and task parts of the epoch at hand.
    generation: u64,
    call_parts: FxHashMap<Call, PartId>,
    task_parts: FxHashMap<(TaskId, NameId, u32), PartId>,
}

impl Flat {
    /// No rows yet.
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        let call_keys = columns.iter().filter_map(|column| match column {
            Column::Call(key) => Some(*key),
            _ => None,
        });
        Self {
            call_keys: call_keys.collect(),
            columns,
            labels: Labels::new(),
            parts: Vec::new(),
            part_ids: FxHashMap::default(),
            rows: Vec::new(),
            row_ids: FxHashMap::default(),
            stacks: 0,
            generation: 0,
            call_parts: FxHashMap::default(),
            task_parts: FxHashMap::default(),
        }
    }

    /// What names a row.
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// What the profile must keep apart for these columns.
    pub(crate) fn split(&self) -> Split {
        let task =
            |column: &Column| matches!(column, Column::Thread | Column::Process | Column::Command);
        Split { task: self.columns.iter().any(task), cpu: self.columns.contains(&Column::Cpu) }
    }

    /// Adds what fell on a stack.
    pub(crate) fn add(&mut self, tables: &Tables, cell: &Cell, sum: Sum) {
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.call_parts.clear();
            self.task_parts.clear();
        }
        self.stacks += 1;
        let sample = self.sample_part(tables, cell);
        let mut leaf = true;
        if !self.call_keys.is_empty() {
            for call in tables.stack_calls(cell.node) {
                let part = self.call_part(tables, call);
                self.add_row((cell.event, part, sample), sum, leaf);
                leaf = false;
            }
        }
        if leaf {
            let part = self.stackless_part();
            self.add_row((cell.event, part, sample), sum, true);
        }
    }

    fn add_row(&mut self, key: RowKey, sum: Sum, leaf: bool) {
        let next = self.rows.len();
        let id = *self.row_ids.entry(key).or_insert(next);
        if id == next {
            self.rows.push(RowSums::default());
        }
        let row = &mut self.rows[id];
        if leaf {
            row.own.add(sum);
        }
        if row.stack != self.stacks {
            row.stack = self.stacks;
            row.total.add(sum);
        }
    }

    fn call_part(&mut self, tables: &Tables, call: Call) -> PartId {
        if let Some(&part) = self.call_parts.get(&call) {
            return part;
        }
        let labels = &mut self.labels;
        let names = self.call_keys.iter().map(|&key| labels.label(tables, call, key)).collect();
        let part = self.part(names);
        self.call_parts.insert(call, part);
        part
    }

    fn stackless_part(&mut self) -> PartId {
        let name = self.labels.names.intern(NO_STACK);
        let names = self.call_keys.iter().map(|_| name).collect();
        self.part(names)
    }

    fn sample_part(&mut self, tables: &Tables, cell: &Cell) -> PartId {
        let key = (cell.task, cell.comm, cell.cpu);
        if let Some(&part) = self.task_parts.get(&key) {
            return part;
        }
        let mut names = Vec::new();
        for column in &self.columns {
            let name = match column {
                Column::Call(_) => continue,
                Column::Thread => thread(tables, cell),
                Column::Process => process(tables, cell.task),
                Column::Command => command(tables, cell),
                Column::Cpu if cell.cpu == NO_CPU => UNKNOWN.into(),
                Column::Cpu => cell.cpu.to_string().into_bytes(),
            };
            names.push(self.labels.names.intern(&name));
        }
        let part = self.part(names);
        self.task_parts.insert(key, part);
        part
    }

    fn part(&mut self, names: Vec<NameId>) -> PartId {
        let names = names.into_boxed_slice();
        if let Some(&id) = self.part_ids.get(&names) {
            return id;
        }
        let id = self.parts.len() as PartId;
        self.parts.push(names.clone());
        self.part_ids.insert(names, id);
        id
    }

    /// All rows, in no order.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |(&(event, call, sample), &id): (&RowKey, &usize)| Row {
            event,
            names: self.names(call, sample),
            own: self.rows[id].own,
            total: self.rows[id].total,
        };
        self.row_ids.iter().map(row).collect()
    }

    /// The names of a row in the order of its columns.
    fn names(&self, call: PartId, sample: PartId) -> Vec<String> {
        let mut calls = self.parts[call as usize].iter();
        let mut samples = self.parts[sample as usize].iter();
        let next = |column: &Column| match column {
            Column::Call(_) => calls.next(),
            _ => samples.next(),
        };
        let ids = self.columns.iter().map(next);
        ids.map(|id| escaped(self.labels.names.get(id.copied().unwrap_or_default()))).collect()
    }
}

fn comm(tables: &Tables, comm: NameId) -> &[u8] {
    match tables.names.get(comm) {
        b"" => UNKNOWN.as_bytes(),
        name => name,
    }
}

fn command(tables: &Tables, cell: &Cell) -> Vec<u8> {
    match tables.task(cell.task) {
        None => UNKNOWN.into(),
        Some(_) => comm(tables, cell.comm).to_vec(),
    }
}

fn thread(tables: &Tables, cell: &Cell) -> Vec<u8> {
    let Some(task) = tables.task(cell.task) else {
        return UNKNOWN.into();
    };
    let mut name = format!("{}/{} ", task.pid, task.tid).into_bytes();
    name.extend_from_slice(comm(tables, cell.comm));
    name
}

/// A process is called what its first thread was called last.
fn process(tables: &Tables, id: TaskId) -> Vec<u8> {
    let Some(task) = tables.task(id) else {
        return UNKNOWN.into();
    };
    let parent = tables.task(task.parent).filter(|parent| parent.pid == task.pid);
    let first = if task.pid == task.tid { task } else { parent.unwrap_or(task) };
    let mut name = format!("{} ", task.pid).into_bytes();
    name.extend_from_slice(comm(tables, first.comm));
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, columns};
    use crate::test_stream::{any_stream, stream};
    use nprof_format::profile::Profile;
    use nprof_format::summary::Summary;
    use proptest::prelude::*;

    fn sums(streams: &[Vec<u8>], keys: &[Key]) -> (Vec<Row>, Summary) {
        let mut flat = Flat::new(columns(keys));
        let mut profile = Profile::new(flat.split());
        for stream in streams {
            profile.read("test", &stream[..], |t, c, s| flat.add(t, c, s)).unwrap();
        }
        let mut rows = flat.rows();
        rows.sort_by(|a, b| (a.event, &a.names).cmp(&(b.event, &b.names)));
        (rows, profile.summary)
    }

    /// `event names self_samples/total_samples`, by name.
    fn shown(streams: &[Vec<u8>], keys: &[Key]) -> Vec<String> {
        let (rows, _) = sums(streams, keys);
        let line = |row: &Row| {
            let names = row.names.join(" ");
            format!("{} {names} {}/{}", row.event, row.own.samples, row.total.samples)
        };
        rows.iter().map(line).collect()
    }

    const PROGRAM: &str = "\
I | 1 | elf | - | /bin/prog
D | 1 | /src/p.c
U | 1 | main | -
U | 2 | fib | -
U | 3 | add | -
F | 1 | 1 | 0x10 | u,ra
F | 2 | 1 | 0x20 | u,ra
F | 3 | 1 | 0x28 | u
F | 4 | 0 | 0x0 | u,depth
Y | 1 | named | 1,1,10,0
Y | 2 | named | 2,1,20,0
Y | 3 | named | 3,1,30,0 | 2,1,21,0
N | 1 | 0 | 1 | 2 | 2 | 3
N | 5 | 0 | 4 | 2
T | 1 | 0 | 7 | 7 | 0 | sh
X | 1 | 1 | exec | prog
T | 2 | 0 | 7 | 8 | 1 | pool
";

    #[test]
    fn a_recursive_function_counts_once_and_inlined_calls_count() {
        let samples = "S | 1 | 1 | 1 | 0 | 4 | 10 | 3\nS | 2 | 1 | 1 | 0 | 2 | 10 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        assert_eq!(
            shown(&streams, &[Key::Function]),
            ["0 add prog 3/3", "0 fib prog 1/4", "0 main prog 0/4"]
        );
        assert_eq!(
            shown(&streams, &[Key::Line]),
            ["0 /src/p.c:10 0/4", "0 /src/p.c:20 1/4", "0 /src/p.c:21 0/3", "0 /src/p.c:30 3/3"]
        );
        assert_eq!(shown(&streams, &[Key::Image]), ["0 /bin/prog 4/4"]);
        assert_eq!(
            shown(&streams, &[Key::Address]),
            ["0 prog+0x10 0/4", "0 prog+0x20 1/4", "0 prog+0x28 3/3"]
        );
    }

    #[test]
    fn what_is_missing_has_a_row() {
        let samples = "S | 1 | 1 | 9 | - | 6 | 1 | 1\nS | 1 | 1 | 0 | - | 0 | 1 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        assert_eq!(
            shown(&streams, &[Key::Function]),
            [
                "0 [no stack] [no stack] 1/1",
                "0 [truncated:depth] [truncated:depth] 0/1",
                "0 fib prog 1/1"
            ]
        );
        for key in [Key::Thread, Key::Process, Key::Command, Key::Cpu] {
            assert_eq!(shown(&streams, &[key]), ["0 [unknown] 2/2"]);
        }
    }

    #[test]
    fn keys_of_the_sample_combine_with_keys_of_the_call() {
        let samples = "S | 1 | 1 | 2 | 3 | 1 | 1 | 1\nS | 1 | 1 | 1 | 0 | 1 | 1 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        assert_eq!(shown(&streams, &[Key::Thread]), ["0 7/7 prog 1/1", "0 7/8 pool 1/1"]);
        assert_eq!(shown(&streams, &[Key::Process]), ["0 7 prog 2/2"]);
        assert_eq!(
            shown(&streams, &[Key::Cpu, Key::Function, Key::Command]),
            ["0 0 main prog prog 1/1", "0 3 main prog pool 1/1"]
        );
        assert_eq!(shown(&streams, &[Key::Event]), ["0  2/2"]);
    }

    #[test]
    fn events_are_kept_apart_and_streams_are_merged_by_name() {
        let one = "S | 1 | 1 | 1 | 0 | 1 | 5 | 1\nS | 1 | 2 | 1 | 0 | 1 | 1 | 1\n";
        let other = "I | 9 | elf | - | /usr/bin/prog\nU | 4 | main | -\nF | 6 | 9 | 0x99 | u\n\
                     Y | 6 | named | 4,0,0,0\nN | 8 | 0 | 6\nS | 1 | 2 | 0 | 0 | 8 | 1 | 7\n";
        let streams = [stream(&format!("{PROGRAM}{one}")), stream(other)];
        assert_eq!(shown(&streams, &[Key::Function]), ["0 main prog 1/1", "1 main prog 8/8"]);
    }

    proptest! {
        #[test]
        fn self_sums_to_all_and_total_never_exceeds_it(
            streams in proptest::collection::vec(any_stream(), 1..3),
            by in proptest::sample::select(vec![
                vec![Key::Function], vec![Key::Address, Key::Thread], vec![Key::Line],
                vec![Key::Process], vec![Key::Event],
            ]),
        ) {
            let (rows, summary) = sums(&streams, &by);
            for (i, event) in summary.events.iter().enumerate() {
                let mut own = Sum::default();
                for row in rows.iter().filter(|row| row.event == i) {
                    own.add(row.own);
                    prop_assert!(row.own.samples <= row.total.samples);
                    prop_assert!(row.own.weight <= row.total.weight);
                    prop_assert!(row.total.samples <= event.sum.samples);
                    prop_assert!(row.total.weight <= event.sum.weight);
                }
                prop_assert_eq!(own, event.sum);
            }
            for rows in rows.windows(2) {
                prop_assert_ne!((rows[0].event, &rows[0].names), (rows[1].event, &rows[1].names));
            }
        }
    }
}
