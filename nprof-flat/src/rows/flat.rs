//! The sums of each row: samples in the row itself (self), and in the row or its callees (total).
//!
//! A row has one name per column. If columns are properties of a call (function, line, ...), every
//! call of a stack belongs to a row: the innermost call of the leaf counts as the row's self, and
//! a row counts once per stack, however often it is on it. Columns that are properties of the
//! sample (thread, CPU, ...) are the same for the whole stack.
//!
//! Filter rules about samples decide which samples count. Rules about calls decide which calls
//! make rows; the other calls make rows, too, which are only counted and not reported.

use nprof_report::filter::Filter;
use nprof_report::key::{Key, sample_label};
use nprof_report::profile::{Context, GroupBy, GroupKey, OncePerStack, Sum};
use nprof_report::time::TimeSplit;
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{EpochCache, NodeId};
use rustc_hash::FxHashMap;

/// The sums of a row in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples in the row itself.
    pub self_: Sum,
    /// Samples in the row or in its callees.
    pub total: Sum,
}

/// A row of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatRow {
    /// One name per column, escaped.
    pub names: Vec<String>,
    /// The sums by event, in the order of the summary's events.
    pub tallies: Vec<Tally>,
}

/// Id of the names in a row's call columns, or in its sample columns. Equal names have equal ids.
type PartId = u32;

/// The identity of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    calls: PartId,
    samples: PartId,
    /// True if the filter's rules about calls hold.
    is_kept: bool,
}

/// The call columns of a row.
#[derive(Clone, Copy, Debug)]
struct CallPart {
    id: PartId,
    /// True if the filter's rules about calls hold.
    is_kept: bool,
}

/// Adds up samples per row.
#[derive(Clone, Debug)]
pub struct Flat {
    columns: Vec<Key>,
    call_keys: Vec<CallKey>,
    time: TimeSplit,
    filter: Filter,
    /// True if rows depend on the calls of a stack.
    needs_calls: bool,
    labels: Labels,
    parts: Vec<Box<[NameId]>>,
    part_ids: FxHashMap<Box<[NameId]>, PartId>,
    tallies: Vec<Tally>,
    /// Indices into `tallies` by event and row.
    row_ids: FxHashMap<(usize, RowKey), usize>,
    once: OncePerStack,
    /// Samples with at least one kept row, by event.
    counted: Vec<Sum>,
    call_parts: EpochCache<Call, CallPart>,
    /// None for samples that do not count.
    sample_parts: EpochCache<GroupKey, Option<PartId>>,
}

impl Flat {
    /// Creates an empty report with these columns.
    pub fn new(columns: Vec<Key>, time: TimeSplit, filter: Filter) -> Self {
        let mut call_keys = Vec::new();
        for column in &columns {
            if let Key::Call(key) = column {
                call_keys.push(*key);
            }
        }
        Self {
            needs_calls: !call_keys.is_empty() || filter.is_about_calls(),
            columns,
            call_keys,
            time,
            filter,
            labels: Labels::new(),
            parts: Vec::new(),
            part_ids: FxHashMap::default(),
            tallies: Vec::new(),
            row_ids: FxHashMap::default(),
            once: OncePerStack::default(),
            counted: Vec::new(),
            call_parts: EpochCache::default(),
            sample_parts: EpochCache::default(),
        }
    }

    /// Returns the samples of an event that count.
    pub fn counted(&self, event: usize) -> Sum {
        self.counted.get(event).copied().unwrap_or_default()
    }

    /// Returns the sample properties that the profile must keep apart for these columns.
    pub fn group_by(&self) -> GroupBy {
        GroupBy {
            task: self.columns.iter().any(|column| column.needs_task()),
            cpu: self.columns.contains(&Key::Cpu),
            time: self.time,
        }
    }

    /// Adds the samples of one stack.
    pub fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let tables = context.tables;
        let Some(samples) = self.sample_part(context, group) else {
            return;
        };
        self.once.next_stack();
        let mut is_leaf = true;
        let mut counts = false;
        if self.needs_calls {
            for call in tables.stack_calls(group.node) {
                let CallPart { id, is_kept } = self.call_part(tables, call);
                let key = RowKey { calls: id, samples, is_kept };
                self.add_to_row(group.event, key, sum, is_leaf);
                // The first call is the innermost one; self counts only there.
                is_leaf = false;
                counts |= is_kept;
            }
        }
        // The sample has no stack, or the columns do not depend on it.
        if is_leaf {
            let CallPart { id, is_kept } = self.stackless_part(tables);
            let key = RowKey { calls: id, samples, is_kept };
            self.add_to_row(group.event, key, sum, true);
            counts = is_kept;
        }
        if counts {
            if self.counted.len() <= group.event {
                self.counted.resize(group.event + 1, Sum::default());
            }
            self.counted[group.event].add(sum);
        }
    }

    fn add_to_row(&mut self, event: usize, key: RowKey, sum: Sum, is_leaf: bool) {
        // One lookup for known and new rows: this runs for every call of every stack.
        let next = self.tallies.len();
        let id = *self.row_ids.entry((event, key)).or_insert(next);
        if id == next {
            self.tallies.push(Tally::default());
        }
        let tally = &mut self.tallies[id];
        if is_leaf {
            tally.self_.add(sum);
        }
        // A recursive function is on the stack several times.
        if self.once.is_first(id) {
            tally.total.add(sum);
        }
    }

    fn call_part(&mut self, tables: &Tables, call: Call) -> CallPart {
        if let Some(part) = self.call_parts.get(tables, &call) {
            return part;
        }
        let labels = &mut self.labels;
        let names = self.call_keys.iter().map(|&key| labels.label(tables, call, key)).collect();
        let is_kept = self.filter.keeps_call(labels, tables, Some(call));
        let part = CallPart { id: self.part(names), is_kept };
        self.call_parts.insert(call, part);
        part
    }

    /// Returns the call columns of a sample without a stack, or of rows without call columns.
    fn stackless_part(&mut self, tables: &Tables) -> CallPart {
        // All call columns show the same name, as there is no call to take names from.
        let name = self.labels.no_stack();
        let names = self.call_keys.iter().map(|_| name).collect();
        let is_kept = self.filter.keeps_call(&mut self.labels, tables, None);
        CallPart { id: self.part(names), is_kept }
    }

    /// Returns the sample columns. None for a sample that does not count.
    fn sample_part(&mut self, context: &Context<'_>, group: &GroupKey) -> Option<PartId> {
        // Sample columns do not depend on the stack, so all stacks of a thread share one entry.
        let key = GroupKey { node: NodeId::NONE, ..*group };
        if let Some(part) = self.sample_parts.get(context.tables, &key) {
            return part;
        }
        let part = self.filter.keeps_samples(context, group).then(|| {
            let columns = self.columns.iter().filter(|column| !matches!(column, Key::Call(_)));
            let labels = &mut self.labels.names;
            let names = columns
                .map(|&column| labels.intern(&sample_label(context, group, column, self.time)))
                .collect();
            self.part(names)
        });
        self.sample_parts.insert(key, part);
        part
    }

    /// Returns the id of some names.
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

    /// Returns all rows that the filter keeps, or all others, in no order. Each has a tally for
    /// `events` events.
    pub fn rows(&self, events: usize, kept: bool) -> Vec<FlatRow> {
        // The sums of a row are kept apart by event; here they become one row again.
        let mut rows: FxHashMap<RowKey, Vec<Tally>> = FxHashMap::default();
        for (&(event, key), &id) in self.row_ids.iter().filter(|((_, key), _)| key.is_kept == kept)
        {
            let tallies = rows.entry(key).or_insert_with(|| vec![Tally::default(); events]);
            if let Some(tally) = tallies.get_mut(event) {
                *tally = self.tallies[id];
            }
        }
        rows.into_iter().map(|(key, tallies)| FlatRow { names: self.names(key), tallies }).collect()
    }

    /// Returns the names of a row in the order of its columns.
    fn names(&self, key: RowKey) -> Vec<String> {
        // The two parts hold the names of call and sample columns, each in the order of columns.
        let mut calls = self.parts[key.calls as usize].iter();
        let mut samples = self.parts[key.samples as usize].iter();
        let mut names = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let id = match column {
                Key::Call(_) => calls.next(),
                _ => samples.next(),
            };
            names.push(escaped(self.labels.names.get(id.copied().unwrap_or_default())));
        }
        names
    }
}

#[cfg(test)]
mod tests;
