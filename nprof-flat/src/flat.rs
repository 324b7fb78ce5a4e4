//! The sums behind the table: how much fell on each row itself (self), and on it and what it
//! called (total).
//!
//! A row is what has all its columns in common. Columns that are properties of a call (function,
//! line, ...) make rows out of every call of a stack; a row counts once per stack however often
//! it is on it, and the innermost call of the leaf is the row's self. Columns that are
//! properties of the sample (thread, CPU, ...) are the same for the whole stack.
//!
//! What the filter says of samples decides whether they are counted at all; what it says of calls
//! decides which calls make rows. The others make rows, too, which are not shown but counted.

use nprof_format::NodeId;
use nprof_format::escape::escaped;
use nprof_format::filter::Filter;
use nprof_format::key::{Key, sample_label};
use nprof_format::labels::{CallKey, Labels};
use nprof_format::profile::{Cell, Context, Split, Sum};
use nprof_format::tables::{Call, NameId, Tables};
use nprof_format::time::TimeSplit;
use rustc_hash::FxHashMap;

/// What fell on a row in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// What fell on the row itself.
    pub(crate) own: Sum,
    /// What fell on it and on what it called.
    pub(crate) total: Sum,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// One name per column, escaped.
    pub(crate) names: Vec<String>,
    /// By event, as the summary has them.
    pub(crate) tallies: Vec<Tally>,
}

/// Names of one row's columns of one sort; equal ones have equal ids.
type PartId = u32;

/// Identifies a row: the part of its call columns, the part of its sample columns, and whether
/// the filter keeps it.
type RowKey = (PartId, PartId, bool);

#[derive(Clone, Debug, Default)]
struct RowSums {
    tally: Tally,
    /// The number of the last stack that was added, so that a row counts once per stack.
    stack: u64,
}

/// Adds up the rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    columns: Vec<Key>,
    call_keys: Vec<CallKey>,
    time: TimeSplit,
    filter: Filter,
    /// Whether a stack's calls must be looked at.
    walks: bool,
    labels: Labels,
    parts: Vec<Box<[NameId]>>,
    part_ids: FxHashMap<Box<[NameId]>, PartId>,
    rows: Vec<RowSums>,
    row_ids: FxHashMap<(usize, RowKey), usize>,
    stacks: u64,
    /// By event, what the filter kept: samples on rows that are shown.
    kept: Vec<Sum>,
    /// Call and sample parts of the epoch at hand, and whether they are kept.
    generation: u64,
    call_parts: FxHashMap<Call, (PartId, bool)>,
    sample_parts: FxHashMap<Cell, Option<PartId>>,
}

impl Flat {
    /// No rows yet.
    pub(crate) fn new(columns: Vec<Key>, time: TimeSplit, filter: Filter) -> Self {
        let call_key = |column: &Key| match column {
            Key::Call(key) => Some(*key),
            _ => None,
        };
        let call_keys: Vec<CallKey> = columns.iter().filter_map(call_key).collect();
        Self {
            walks: !call_keys.is_empty() || filter.is_about_calls(),
            columns,
            call_keys,
            time,
            filter,
            labels: Labels::new(),
            parts: Vec::new(),
            part_ids: FxHashMap::default(),
            rows: Vec::new(),
            row_ids: FxHashMap::default(),
            stacks: 0,
            kept: Vec::new(),
            generation: 0,
            call_parts: FxHashMap::default(),
            sample_parts: FxHashMap::default(),
        }
    }

    /// What names a row.
    pub(crate) fn columns(&self) -> &[Key] {
        &self.columns
    }

    /// What the filter kept of an event.
    pub(crate) fn kept(&self, event: usize) -> Sum {
        self.kept.get(event).copied().unwrap_or_default()
    }

    /// What the profile must keep apart for these columns.
    pub(crate) fn split(&self) -> Split {
        Split {
            task: self.columns.iter().any(|column| column.needs_task()),
            cpu: self.columns.contains(&Key::Cpu),
            time: self.time,
        }
    }

    /// Adds what fell on a stack.
    pub(crate) fn add(&mut self, context: &Context<'_>, cell: &Cell, sum: Sum) {
        let tables = context.tables;
        if self.generation != tables.generation() {
            self.generation = tables.generation();
            self.call_parts.clear();
            self.sample_parts.clear();
        }
        let Some(sample) = self.sample_part(context, cell) else {
            return;
        };
        self.stacks += 1;
        let mut leaf = true;
        let mut kept = false;
        if self.walks {
            for call in tables.stack_calls(cell.node) {
                let (part, is_kept) = self.call_part(tables, call);
                self.add_row(cell.event, (part, sample, is_kept), sum, leaf);
                leaf = false;
                kept |= is_kept;
            }
        }
        if leaf {
            let (part, is_kept) = self.stackless_part(tables);
            self.add_row(cell.event, (part, sample, is_kept), sum, true);
            kept = is_kept;
        }
        if kept {
            if self.kept.len() <= cell.event {
                self.kept.resize(cell.event + 1, Sum::default());
            }
            self.kept[cell.event].add(sum);
        }
    }

    fn add_row(&mut self, event: usize, key: RowKey, sum: Sum, leaf: bool) {
        let next = self.rows.len();
        let id = *self.row_ids.entry((event, key)).or_insert(next);
        if id == next {
            self.rows.push(RowSums::default());
        }
        let row = &mut self.rows[id];
        if leaf {
            row.tally.own.add(sum);
        }
        if row.stack != self.stacks {
            row.stack = self.stacks;
            row.tally.total.add(sum);
        }
    }

    fn call_part(&mut self, tables: &Tables, call: Call) -> (PartId, bool) {
        if let Some(&part) = self.call_parts.get(&call) {
            return part;
        }
        let labels = &mut self.labels;
        let names = self.call_keys.iter().map(|&key| labels.label(tables, call, key)).collect();
        let is_kept = self.filter.keeps_call(labels, tables, Some(call));
        let part = (self.part(names), is_kept);
        self.call_parts.insert(call, part);
        part
    }

    /// The part of a sample whose calls are not known, or not asked for.
    fn stackless_part(&mut self, tables: &Tables) -> (PartId, bool) {
        let name = self.labels.no_stack();
        let names = self.call_keys.iter().map(|_| name).collect();
        let is_kept = self.filter.keeps_call(&mut self.labels, tables, None);
        (self.part(names), is_kept)
    }

    /// The part of a sample; `None` for one that does not count.
    fn sample_part(&mut self, context: &Context<'_>, cell: &Cell) -> Option<PartId> {
        let key = Cell { node: NodeId::NONE, ..*cell };
        if let Some(&part) = self.sample_parts.get(&key) {
            return part;
        }
        let part = self.filter.keeps_samples(context, cell).then(|| {
            let names = self.columns.iter().filter(|column| !matches!(column, Key::Call(_)));
            let labels = &mut self.labels.names;
            let intern = |&key: &Key| labels.intern(&sample_label(context, cell, key, self.time));
            let names = names.map(intern).collect();
            self.part(names)
        });
        self.sample_parts.insert(key, part);
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

    /// All rows that the filter keeps, or all others, in no order. The tallies are of so many
    /// events.
    pub(crate) fn rows(&self, events: usize, kept: bool) -> Vec<Row> {
        let mut rows: FxHashMap<RowKey, Vec<Tally>> = FxHashMap::default();
        for (&(event, key), &id) in self.row_ids.iter().filter(|((_, key), _)| key.2 == kept) {
            let tallies = rows.entry(key).or_insert_with(|| vec![Tally::default(); events]);
            if let Some(tally) = tallies.get_mut(event) {
                *tally = self.rows[id].tally;
            }
        }
        let row = |((call, sample, _), tallies)| Row { names: self.names(call, sample), tallies };
        rows.into_iter().map(row).collect()
    }

    /// The names of a row in the order of its columns.
    fn names(&self, call: PartId, sample: PartId) -> Vec<String> {
        let mut calls = self.parts[call as usize].iter();
        let mut samples = self.parts[sample as usize].iter();
        let next = |column: &Key| match column {
            Key::Call(_) => calls.next(),
            _ => samples.next(),
        };
        let ids = self.columns.iter().map(next);
        ids.map(|id| escaped(self.labels.names.get(id.copied().unwrap_or_default()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::columns;
    use nprof_format::filter::Rule;
    use nprof_format::key::By;
    use nprof_format::profile::Profile;
    use nprof_format::summary::Summary;
    use nprof_tests::{any_stream, stream};
    use proptest::prelude::*;

    fn sums(streams: &[Vec<u8>], keys: &[&str], filter: Filter) -> (Flat, Summary) {
        let by: Vec<By> = keys.iter().map(|key| key.parse().unwrap()).collect();
        let slice = by.iter().find_map(|by| by.slice);
        let time = TimeSplit { slice, span: None };
        let mut split = filter.split();
        let mut flat = Flat::new(columns(&by), time, filter);
        split.task |= flat.split().task;
        split.cpu |= flat.split().cpu;
        let mut profile = Profile::new(Split { time, ..split });
        for stream in streams {
            profile.read("test", &stream[..], |c, cell, s| flat.add(c, cell, s)).unwrap();
        }
        (flat, profile.summary)
    }

    fn rows(flat: &Flat, summary: &Summary, kept: bool) -> Vec<Row> {
        let mut rows = flat.rows(summary.events.len(), kept);
        rows.sort_by(|a, b| a.names.cmp(&b.names));
        rows
    }

    /// `event names self_samples/total_samples`, by event and name.
    fn shown(streams: &[Vec<u8>], keys: &[&str]) -> Vec<String> {
        lines(streams, keys, &[], true)
    }

    fn lines(streams: &[Vec<u8>], keys: &[&str], matching: &[&str], kept: bool) -> Vec<String> {
        let rules: Vec<Rule> = matching.iter().map(|rule| rule.parse().unwrap()).collect();
        let (flat, summary) = sums(streams, keys, Filter::new(&rules, &[]));
        let mut lines = Vec::new();
        for event in 0..summary.events.len() {
            for row in rows(&flat, &summary, kept) {
                let (names, tally) = (row.names.join(" "), row.tallies[event]);
                if tally.total.samples > 0 {
                    let (own, total) = (tally.own.samples, tally.total.samples);
                    lines.push(format!("{event} {names} {own}/{total}"));
                }
            }
        }
        lines
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
            shown(&streams, &["function"]),
            ["0 add prog 3/3", "0 fib prog 1/4", "0 main prog 0/4"]
        );
        assert_eq!(
            shown(&streams, &["line"]),
            ["0 /src/p.c:10 0/4", "0 /src/p.c:20 1/4", "0 /src/p.c:21 0/3", "0 /src/p.c:30 3/3"]
        );
        assert_eq!(shown(&streams, &["image"]), ["0 /bin/prog 4/4"]);
        assert_eq!(
            shown(&streams, &["address"]),
            ["0 prog+0x10 0/4", "0 prog+0x20 1/4", "0 prog+0x28 3/3"]
        );
    }

    #[test]
    fn what_is_missing_has_a_row() {
        let samples = "S | 1 | 1 | 9 | - | 6 | 1 | 1\nS | 1 | 1 | 0 | - | 0 | 1 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        assert_eq!(
            shown(&streams, &["function"]),
            [
                "0 [no stack] [no stack] 1/1",
                "0 [truncated:depth] [truncated:depth] 0/1",
                "0 fib prog 1/1"
            ]
        );
        for key in ["thread", "process", "command", "cpu"] {
            assert_eq!(shown(&streams, &[key]), ["0 [unknown] 2/2"]);
        }
    }

    #[test]
    fn keys_of_the_sample_combine_with_keys_of_the_call() {
        let samples = "S | 1 | 1 | 2 | 3 | 1 | 1 | 1\nS | 1 | 1 | 1 | 0 | 1 | 1 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        assert_eq!(shown(&streams, &["thread"]), ["0 7/7 prog 1/1", "0 7/8 pool 1/1"]);
        assert_eq!(shown(&streams, &["process"]), ["0 7 prog 2/2"]);
        assert_eq!(
            shown(&streams, &["cpu", "function", "command"]),
            ["0 0 main prog prog 1/1", "0 3 main prog pool 1/1"]
        );
        assert_eq!(shown(&streams, &["event"]), ["0  2/2"]);
    }

    #[test]
    fn events_are_kept_apart_and_streams_are_merged_by_name() {
        let one = "S | 1 | 1 | 1 | 0 | 1 | 5 | 1\nS | 1 | 2 | 1 | 0 | 1 | 1 | 1\n";
        let other = "I | 9 | elf | - | /usr/bin/prog\nU | 4 | main | -\nF | 6 | 9 | 0x99 | u\n\
                     Y | 6 | named | 4,0,0,0\nN | 8 | 0 | 6\nS | 1 | 2 | 0 | 0 | 8 | 1 | 7\n";
        let streams = [stream(&format!("{PROGRAM}{one}")), stream(other)];
        assert_eq!(shown(&streams, &["function"]), ["0 main prog 1/1", "1 main prog 8/8"]);
    }

    proptest! {
        #[test]
        fn self_sums_to_all_and_total_never_exceeds_it(
            streams in proptest::collection::vec(any_stream(), 1..3),
            by in proptest::sample::select(vec![
                vec!["function"], vec!["address", "thread"], vec!["line"],
                vec!["process"], vec!["event"],
            ]),
        ) {
            let (flat, summary) = sums(&streams, &by, Filter::default());
            let rows = rows(&flat, &summary, true);
            for (i, event) in summary.events.iter().enumerate() {
                let mut own = Sum::default();
                for tally in rows.iter().map(|row| row.tallies[i]) {
                    own.add(tally.own);
                    prop_assert!(tally.own.samples <= tally.total.samples);
                    prop_assert!(tally.own.weight <= tally.total.weight);
                    prop_assert!(tally.total.samples <= event.sum.samples);
                    prop_assert!(tally.total.weight <= event.sum.weight);
                }
                prop_assert_eq!(own, event.sum);
                prop_assert_eq!(flat.kept(i), event.sum);
            }
            for rows in rows.windows(2) {
                prop_assert_ne!(&rows[0].names, &rows[1].names);
            }
        }

        #[test]
        fn what_a_filter_keeps_and_what_it_does_not_are_all(
            streams in proptest::collection::vec(any_stream(), 1..3),
            rule in proptest::sample::select(vec![
                "function=^[ab]$", "image=libx", "thread=w;o", "event=faults", "line=nowhere",
            ]),
        ) {
            let rules = [rule.parse::<Rule>().unwrap()];
            let (with, summary) = sums(&streams, &["function"], Filter::new(&rules, &[]));
            let (without, _) = sums(&streams, &["function"], Filter::new(&[], &rules));
            let (all, _) = sums(&streams, &["function"], Filter::default());
            let of_calls = with.filter.is_about_calls();
            for i in 0..summary.events.len() {
                let own = |flat: &Flat, kept| {
                    let mut own = Sum::default();
                    rows(flat, &summary, kept).iter().for_each(|row| own.add(row.tallies[i].own));
                    own
                };
                let mut sum = own(&with, true);
                sum.add(own(&without, true));
                prop_assert_eq!(sum, summary.events[i].sum);
                if of_calls {
                    prop_assert_eq!(own(&with, false), own(&without, true));
                }
            }
            if of_calls {
                // A rule about calls takes rows away and leaves the others as they are.
                let kept = rows(&with, &summary, true);
                let all = rows(&all, &summary, true);
                prop_assert!(kept.iter().all(|row| all.contains(row)));
            }
        }
    }

    #[test]
    fn a_rule_about_calls_counts_within_other_rows() {
        let samples = "S | 1 | 1 | 1 | 0 | 4 | 10 | 3\nS | 2 | 1 | 2 | 0 | 1 | 10 | 1\n\
                       S | 2 | 1 | 2 | 0 | 0 | 10 | 1\n";
        let streams = [stream(&format!("{PROGRAM}{samples}"))];
        let by = |rule, kept| lines(&streams, &["thread"], &[rule], kept);
        assert_eq!(by("function=^fib$", true), ["0 7/7 prog 0/3"]);
        assert_eq!(by("function=main", true), ["0 7/7 prog 0/3", "0 7/8 pool 1/1"]);
        assert_eq!(by("function=main", false), ["0 7/7 prog 3/3", "0 7/8 pool 1/1"]);
        assert_eq!(by("function=no stack", true), ["0 7/8 pool 1/1"]);
        assert_eq!(by("thread=pool", true), ["0 7/8 pool 2/2"]);
        assert_eq!(by("image=^prog$", true), by("image=^/bin/prog$", true));
    }

    #[test]
    fn slices_count_from_the_beginning_of_a_run() {
        let at =
            |ms: u64| format!("S | {} | 1 | 1 | 0 | 1 | 10 | 1\n", 5_000_000_000 + ms * 1_000_000);
        let samples = [at(0), at(99), at(100), at(250)].concat();
        let streams =
            [stream(&format!("{PROGRAM}{samples}")), stream(&format!("{PROGRAM}{}", at(7)))];
        assert_eq!(shown(&streams, &["slice=100ms"]), ["0 0.0 3/3", "0 0.1 1/1", "0 0.2 1/1"]);
        assert_eq!(shown(&streams, &["run", "slice=1s"]), ["0 1 prog 0 4/4", "0 2 prog 0 1/1"]);
    }
}
