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

use nprof_report::filter::Filter;
use nprof_report::key::{Key, sample_label};
use nprof_report::profile::{Cell, Context, Split, Sum};
use nprof_report::time::TimeSplit;
use nprof_stream::NodeId;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, NameId, Tables};
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
mod tests;
