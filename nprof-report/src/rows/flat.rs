//! The sums of each row: samples in the row itself (self), and in the row or its callees (total).
//!
//! A row has one name per column. If columns are properties of a call (function, line, ...), every
//! call of a stack belongs to a row: the innermost call of the leaf counts as the row's self, and
//! a row counts once per stack, however often it is on it. Columns that are properties of the
//! sample (thread, CPU, ...) are the same for the whole stack.
//!
//! Memory is bounded: when there are `MAX_ROWS` rows or `MAX_NAME_BYTES` of names, the lightest rows
//! are folded into a row `(other)` (lossy counting, as in nprof-paths). Sums of self stay; totals
//! of folded rows overlap, so the total of `(other)` is its self. A row lacks at most the heaviest
//! row of each folding.
//!
//! Filter rules about samples decide which samples count; so do `--exclude` rules about calls, which
//! drop samples with a matching call on their stack. `--match` rules about calls decide which calls make
//! rows; the other calls make rows, too, which are only counted and not reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use std::ops::Range;

use crate::profile::filter::Filter;
use crate::profile::key::Key;
use crate::profile::sample_label::sample_label;
use crate::profile::time::TimeSplit;
use crate::profile::{
    Blocks, Context, FoldedSums, GroupBy, GroupKey, OncePerStack, Sum, add_bounds, raise_bound,
};
use nprof_stream::escape::escaped;
use nprof_stream::labels::{CallKey, Labels, OTHER};
use nprof_stream::tables::{Call, NameId, Tables};
use nprof_stream::{EpochCache, FrameId, NodeId};
use rustc_hash::FxHashMap;

use crate::rows::flat::call_rows::{CallPart, CallRow, CallRows, PartId, RowsOf};

/// The sums of a row in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples in the row itself.
    pub self_: Sum,
    /// Samples in the row or in its callees.
    pub total: Sum,
}

/// The blocks of memory of a row in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockTally {
    /// Those of the samples in the row itself.
    pub self_: Blocks,
    /// Those of the samples in the row or in its callees.
    pub total: Blocks,
}

/// The number of rows above which the lightest are folded; rows of different events count apart. A row
/// takes about 150 bytes while samples are added, and 250 in a report.
const MAX_ROWS: usize = 3 << 16;

/// The memory of names above which the lightest rows are folded. Escaped, names can be four times as
/// long.
const MAX_NAME_BYTES: usize = 16 << 20;

/// A row of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatRow {
    /// One name per column, escaped. Shared: a name of one column is in many rows.
    pub names: Vec<Arc<str>>,
    /// The sums by event, for events with samples in this row, in the order of the summary's events.
    pub tallies: Vec<(usize, Tally)>,
    /// The blocks by event, for events that measure bytes.
    pub blocks: Vec<(usize, BlockTally)>,
}

impl FlatRow {
    /// Returns the sums in an event.
    pub fn tally(&self, event: usize) -> Tally {
        let found = self.tallies.binary_search_by_key(&event, |(event, _)| *event);
        found.map_or(Tally::default(), |index| self.tallies[index].1)
    }

    /// Returns the blocks in an event. None unless it measures bytes.
    pub fn blocks_of(&self, event: usize) -> Option<&BlockTally> {
        self.blocks.iter().find(|(other, _)| *other == event).map(|(_, blocks)| blocks)
    }
}

/// The identity of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RowKey {
    calls: PartId,
    samples: PartId,
    /// True if the filter's `--match` rules about calls hold.
    is_kept: bool,
}

/// The sizes above which rows are folded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) rows: usize,
    pub(crate) name_bytes: usize,
}

/// Adds up samples per row.
#[derive(Clone, Debug)]
pub struct Flat {
    pub(crate) budget: Budget,
    /// By event, the samples that a row may lack because it was folded.
    bounds: Vec<Sum>,
    columns: Vec<Key>,
    call_keys: Vec<CallKey>,
    time: TimeSplit,
    filter: Filter,
    /// True if rows depend on the calls of a stack.
    needs_calls: bool,
    labels: Labels,
    parts: Vec<Box<[NameId]>>,
    part_ids: FxHashMap<Box<[NameId]>, PartId>,
    /// Buffer for the call columns of a row.
    names: Vec<NameId>,
    tallies: Vec<Tally>,
    /// By index into `tallies`, the blocks of the rows of events that measure bytes.
    blocks: FxHashMap<usize, BlockTally>,
    /// Indices into `tallies` by event and row.
    row_ids: FxHashMap<(usize, RowKey), usize>,
    once: OncePerStack,
    /// Samples with at least one kept row, by event.
    counted: Vec<Sum>,
    calls: CallRows,
    /// None for samples that do not count.
    sample_parts: EpochCache<GroupKey, Option<PartId>>,
    /// True for frames with a call that an `--exclude` rule matches.
    excluded_frames: EpochCache<FrameId, bool>,
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
            budget: Budget { rows: MAX_ROWS, name_bytes: MAX_NAME_BYTES },
            bounds: Vec::new(),
            needs_calls: !call_keys.is_empty() || filter.is_about_calls(),
            columns,
            call_keys,
            time,
            filter,
            labels: Labels::new(),
            parts: Vec::new(),
            part_ids: FxHashMap::default(),
            names: Vec::new(),
            tallies: Vec::new(),
            blocks: FxHashMap::default(),
            row_ids: FxHashMap::default(),
            once: OncePerStack::default(),
            counted: Vec::new(),
            calls: CallRows::default(),
            sample_parts: EpochCache::default(),
            excluded_frames: EpochCache::default(),
        }
    }

    /// Returns the samples of an event that count.
    pub fn counted(&self, event: usize) -> Sum {
        self.counted.get(event).copied().unwrap_or_default()
    }

    /// Returns messages about rules of the filter that match nothing.
    pub fn notes(&self) -> Vec<String> {
        self.filter.notes()
    }

    /// Returns the sample properties that the profile must keep apart for these columns.
    pub fn group_by(&self) -> GroupBy {
        let mut group_by = GroupBy { time: self.time, ..GroupBy::default() };
        self.columns.iter().for_each(|&column| group_by.add_key(column));
        group_by
    }

    /// Adds the samples of one stack.
    pub fn add(&mut self, context: &Context<'_>, group: &GroupKey, sum: Sum) {
        let tables = context.tables;
        let Some(samples) = self.sample_part(context, group) else {
            return;
        };
        if self.filter.excludes_by_call() && self.excludes_stack(tables, group.node) {
            return;
        }
        self.once.next_stack();
        let mut is_leaf = true;
        let mut counts = false;
        if self.needs_calls {
            let (generation, event) = (tables.generation(), group.event);
            self.calls.begin(RowsOf { generation, event, samples });
            for frame in tables.stack(group.node) {
                let rows = match self.calls.range(frame) {
                    Some(rows) => rows,
                    None => self.frame_rows(tables, frame, event, samples),
                };
                for index in rows {
                    let CallRow { row, is_kept } = self.calls.row(index);
                    self.add_to_row(row as usize, sum, context.blocks, is_leaf);
                    // The first call is the innermost one; self counts only there.
                    is_leaf = false;
                    counts |= is_kept;
                }
            }
        }
        // The sample has no stack, or the columns do not depend on it.
        if is_leaf {
            let CallPart { id, is_kept } = self.stackless_part(tables);
            let row = self.row(group.event, RowKey { calls: id, samples, is_kept });
            self.add_to_row(row, sum, context.blocks, true);
            counts = is_kept;
        }
        if counts {
            if self.counted.len() <= group.event {
                self.counted.resize(group.event + 1, Sum::default());
            }
            self.counted[group.event].add(sum);
        }
        let Budget { rows, name_bytes } = self.budget;
        if self.row_ids.len() > rows || self.labels.names.bytes() > name_bytes {
            self.fold();
        }
    }

    /// Folds rows until at most half of the budget is used.
    fn fold(&mut self) {
        let mut count = self.budget.rows / 2;
        loop {
            self.fold_to(count);
            if self.labels.names.bytes() <= self.budget.name_bytes / 2 || count == 0 {
                break;
            }
            // A few long names can take more memory than all rows.
            count /= 4;
        }
        // They hold ids of parts and names.
        self.calls = CallRows::default();
        self.sample_parts = EpochCache::default();
        self.once = OncePerStack::default();
    }

    /// Keeps the `count` rows with the largest total shares of their events; equal ones by age.
    fn fold_to(&mut self, count: usize) {
        let mut wholes: Vec<Sum> = Vec::new();
        let mut rows: Vec<((usize, RowKey), usize)> = self.row_ids.drain().collect();
        rows.sort_unstable_by_key(|&(_, id)| id);
        for &((event, _), id) in &rows {
            wholes.resize(wholes.len().max(event + 1), Sum::default());
            // Self adds up to all samples of the event.
            wholes[event].add(self.tallies[id].self_);
        }
        let share = |((event, _), id): &((usize, RowKey), usize)| {
            let (total, whole) = (self.tallies[*id].total, wholes[*event]);
            match whole.weight {
                // Of an event that weighs nothing, samples are all there is.
                0 => total.samples as f64 / whole.samples.max(1) as f64,
                weight => total.weight as f64 / weight as f64,
            }
        };
        if count < rows.len() {
            rows.select_nth_unstable_by(count, |a, b| {
                share(b).total_cmp(&share(a)).then(a.1.cmp(&b.1))
            });
        }
        let light = rows.split_off(count.min(rows.len()));
        rows.sort_unstable_by_key(|&(_, id)| id);
        let mut bounds = Vec::new();
        let mut others: BTreeMap<(usize, bool), Sum> = BTreeMap::new();
        let mut other_blocks: BTreeMap<(usize, bool), Blocks> = BTreeMap::new();
        for ((event, key), id) in light {
            if !self.is_other(key) {
                raise_bound(&mut bounds, event, self.tallies[id].total);
            }
            others.entry((event, key.is_kept)).or_default().add(self.tallies[id].self_);
            if let Some(blocks) = self.blocks.get(&id) {
                other_blocks.entry((event, key.is_kept)).or_default().add(blocks.self_);
            }
        }
        add_bounds(&mut self.bounds, &bounds);
        self.keep(&rows);
        let [calls, samples] = self.other_parts();
        for ((event, is_kept), sum) in others {
            let key = RowKey { calls, samples, is_kept };
            let next = self.tallies.len();
            let id = *self.row_ids.entry((event, key)).or_insert(next);
            if id == next {
                self.tallies.push(Tally::default());
            }
            self.tallies[id].self_.add(sum);
            self.tallies[id].total.add(sum);
            if let Some(&blocks) = other_blocks.get(&(event, is_kept)) {
                let tally = self.blocks.entry(id).or_default();
                tally.self_.add(blocks);
                tally.total.add(blocks);
            }
        }
    }

    /// Keeps these rows alone, with their names.
    fn keep(&mut self, rows: &[((usize, RowKey), usize)]) {
        let names = std::mem::take(&mut self.labels).names;
        let parts = std::mem::take(&mut self.parts);
        let tallies = std::mem::take(&mut self.tallies);
        let blocks = std::mem::take(&mut self.blocks);
        self.part_ids.clear();
        self.row_ids.clear();
        for &((event, key), id) in rows {
            let mut renewed = |part: PartId| {
                let part = parts[part as usize].iter();
                let part = part.map(|&name| self.labels.names.intern(names.get(name)));
                let part: Vec<NameId> = part.collect();
                self.part(&part)
            };
            let (calls, samples) = (renewed(key.calls), renewed(key.samples));
            let next = self.tallies.len();
            self.row_ids.insert((event, RowKey { calls, samples, ..key }), next);
            self.blocks.extend(blocks.get(&id).map(|&blocks| (next, blocks)));
            self.tallies.push(tallies[id]);
        }
    }

    /// Returns the parts of the row `(other)`.
    fn other_parts(&mut self) -> [PartId; 2] {
        let other = self.labels.names.intern(OTHER);
        [self.call_keys.len(), self.columns.len() - self.call_keys.len()]
            .map(|count| self.part(&vec![other; count]))
    }

    /// True if the row has the samples of folded rows.
    fn is_other(&self, key: RowKey) -> bool {
        let names = [key.calls, key.samples].map(|part| self.parts[part as usize].iter());
        let [calls, samples] = names;
        calls.chain(samples).all(|&name| self.labels.names.get(name) == OTHER)
    }

    /// Returns the samples of an event in rows that were folded. None if there are none.
    pub fn folded(&self, event: usize) -> Option<FoldedSums> {
        let bound = *self.bounds.get(event).filter(|bound| bound.samples > 0)?;
        let mut other = Sum::default();
        for (&(of, key), &id) in &self.row_ids {
            // Two rows can be: folded calls that a filter does not match stay apart from the others.
            if of == event && self.is_other(key) {
                other.add(self.tallies[id].self_);
            }
        }
        Some(FoldedSums { other, bound })
    }

    #[inline]
    fn add_to_row(&mut self, row: usize, sum: Sum, blocks: Option<Blocks>, is_leaf: bool) {
        let tally = &mut self.tallies[row];
        if is_leaf {
            tally.self_.add(sum);
        }
        // A recursive function is on the stack several times.
        let is_first = self.once.is_first(row);
        if is_first {
            tally.total.add(sum);
        }
        if let Some(blocks) = blocks {
            let tally = self.blocks.entry(row).or_default();
            if is_leaf {
                tally.self_.add(blocks);
            }
            if is_first {
                tally.total.add(blocks);
            }
        }
    }

    /// Returns the index of a row in `tallies`; adds the row if there is none.
    fn row(&mut self, event: usize, key: RowKey) -> usize {
        let next = self.tallies.len();
        // One lookup for both cases: most rows exist.
        let row = *self.row_ids.entry((event, key)).or_insert(next);
        if row == next {
            self.tallies.push(Tally::default());
        }
        row
    }

    /// Looks up the rows of a frame's calls, and caches them.
    fn frame_rows(
        &mut self,
        tables: &Tables,
        frame: FrameId,
        event: usize,
        samples: PartId,
    ) -> Range<u32> {
        let mut rows = Vec::new();
        for call in tables.calls(frame) {
            let CallPart { id, is_kept } = self.call_part(tables, call);
            let row = self.row(event, RowKey { calls: id, samples, is_kept });
            rows.push(CallRow { row: row as u32, is_kept });
        }
        self.calls.insert(frame, rows.into_iter())
    }

    fn call_part(&mut self, tables: &Tables, call: Call) -> CallPart {
        if let Some(part) = self.calls.parts.get(tables, &call) {
            return part;
        }
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        names.extend(self.call_keys.iter().map(|&key| self.labels.label(tables, call, key)));
        let is_kept = self.keeps_call(tables, Some(call));
        let part = CallPart { id: self.part(&names), is_kept };
        self.names = names;
        self.calls.parts.insert(call, part);
        part
    }

    /// Returns the call columns of a sample without a stack, or of rows without call columns.
    fn stackless_part(&mut self, tables: &Tables) -> CallPart {
        // All call columns show the same name, as there is no call to take names from.
        let name = self.labels.no_stack();
        let names = vec![name; self.call_keys.len()];
        let is_kept = self.keeps_call(tables, None);
        CallPart { id: self.part(&names), is_kept }
    }

    /// True if the `--match` rules about calls match a call. `call` is None for a sample without a stack.
    fn keeps_call(&mut self, tables: &Tables, call: Option<Call>) -> bool {
        self.filter.matches_of(&mut self.labels, tables, call).into_iter().all(|holds| holds)
    }

    /// True if an `--exclude` rule matches a call of a stack.
    fn excludes_stack(&mut self, tables: &Tables, node: NodeId) -> bool {
        if node.is_none() {
            return self.filter.excludes_call(&mut self.labels, tables, None);
        }
        tables.stack(node).any(|frame| self.excludes_frame(tables, frame))
    }

    fn excludes_frame(&mut self, tables: &Tables, frame: FrameId) -> bool {
        if let Some(is_excluded) = self.excluded_frames.get(tables, &frame) {
            return is_excluded;
        }
        let Self { filter, labels, .. } = self;
        let is_excluded =
            tables.calls(frame).any(|call| filter.excludes_call(labels, tables, Some(call)));
        self.excluded_frames.insert(frame, is_excluded);
        is_excluded
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
            let names: Vec<NameId> = columns
                .map(|&column| labels.intern(&sample_label(context, group, column, self.time)))
                .collect();
            self.part(&names)
        });
        self.sample_parts.insert(key, part);
        part
    }

    /// Returns the id of some names.
    fn part(&mut self, names: &[NameId]) -> PartId {
        if let Some(&id) = self.part_ids.get(names) {
            return id;
        }
        // There are fewer parts than rows, which are bounded.
        let id = self.parts.len() as PartId;
        self.parts.push(names.into());
        self.part_ids.insert(names.into(), id);
        id
    }

    /// Returns all rows that the filter keeps, or all others, in no order.
    pub fn rows(&self, kept: bool) -> Vec<FlatRow> {
        // The sums of a row are kept apart by event; here they become one row again.
        let mut rows: FxHashMap<RowKey, Vec<(usize, usize)>> = FxHashMap::default();
        for (&(event, key), &id) in self.row_ids.iter().filter(|((_, key), _)| key.is_kept == kept)
        {
            rows.entry(key).or_default().push((event, id));
        }
        let mut shared = FxHashMap::default();
        let row = |(key, mut ids): (RowKey, Vec<(usize, usize)>)| {
            ids.sort_unstable();
            let tallies = ids.iter().map(|&(event, id)| (event, self.tallies[id])).collect();
            let blocks =
                ids.iter().filter_map(|&(event, id)| Some((event, *self.blocks.get(&id)?)));
            FlatRow { names: self.names(key, &mut shared), tallies, blocks: blocks.collect() }
        };
        rows.into_iter().map(row).collect()
    }

    /// Returns the names of a row in the order of its columns. Equal names are shared.
    fn names(&self, key: RowKey, shared: &mut FxHashMap<NameId, Arc<str>>) -> Vec<Arc<str>> {
        // The two parts hold the names of call and sample columns, each in the order of columns.
        let mut calls = self.parts[key.calls as usize].iter();
        let mut samples = self.parts[key.samples as usize].iter();
        let mut names = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let id = match column {
                Key::Call(_) => calls.next(),
                _ => samples.next(),
            };
            let id = id.copied().unwrap_or_default();
            let name =
                shared.entry(id).or_insert_with(|| escaped(self.labels.names.get(id)).into());
            names.push(Arc::clone(name));
        }
        names
    }
}

mod call_rows;
#[cfg(test)]
mod tests;
