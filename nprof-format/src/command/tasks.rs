//! The tasks in streams, with their samples by event and their losses.
//!
//! A task is identified by its run, pid, tid and start time: pids are reused, and ids change with
//! every epoch.

use std::collections::{HashMap, HashSet};

use nprof_report::layout;
use nprof_report::profile::{GroupKey, Profile, Sum};
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::tables::{Tables, TaskEntry};
use nprof_stream::{Extras, Lost, TaskId};
use serde_json::{Value, json};

/// Most tasks in the output for people.
const SHOWN: usize = 20;

/// The identity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    /// Index into the runs of the summary. None if unknown.
    run: Option<usize>,
    /// Its pid, tid and start time. None if its record is missing.
    task: Option<(u32, u32, u64)>,
}

/// The counts of a task.
#[derive(Clone, Debug, Default)]
struct Row {
    /// Its last name.
    comm: String,
    /// Its samples by event of the summary; trailing events without samples may be missing.
    samples: Vec<u64>,
    /// Its losses, as far as they are attributed to it.
    lost: u64,
}

impl Row {
    fn total(&self) -> u64 {
        total(self.samples.iter().copied())
    }
}

/// The tasks of all streams. Memory grows with their number.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    rows: HashMap<Key, Row>,
    /// The runs with losses that are not attributed to a task.
    unattributed_losses: HashSet<Option<usize>>,
}

impl Tasks {
    /// Returns the number of processes and threads.
    pub(super) fn count(&self) -> usize {
        self.rows.keys().filter(|key| key.task.is_some()).count()
    }

    /// Adds a sum of samples.
    pub(super) fn add(&mut self, tables: &Tables, group: &GroupKey, sum: Sum) {
        let row = self.row(Some(group.run), tables, group.task);
        // Events of later streams are numbered after those seen so far.
        if row.samples.len() <= group.event {
            row.samples.resize(group.event + 1, 0);
        }
        row.samples[group.event] = row.samples[group.event].saturating_add(sum.samples);
    }

    /// Adds a task, or changes its name.
    pub(super) fn name(&mut self, profile: &Profile, task: TaskId) {
        let run = profile.run_of(task, Extras::NONE);
        if run.is_some() && profile.tables().task(task).is_some() {
            self.row(run, profile.tables(), task);
        }
    }

    /// Adds a loss.
    pub(super) fn lose(&mut self, profile: &Profile, lost: &Lost<'_>) {
        // Records of processes and mappings are no samples.
        if lost.count == 0 && lost.records() > 0 {
            return;
        }
        let run = profile.run_of(lost.task, lost.extras);
        // A loss of a CPU's ring can concern any task of the run.
        if lost.task.is_none() {
            self.unattributed_losses.insert(run);
            return;
        }
        let row = self.row(run, profile.tables(), lost.task);
        row.lost = row.lost.saturating_add(lost.count);
    }

    /// Returns the counts of a task, with its current name.
    fn row(&mut self, run: Option<usize>, tables: &Tables, id: TaskId) -> &mut Row {
        let entry: Option<&TaskEntry> = tables.task(id);
        let task = entry.map(|entry| (entry.pid, entry.tid, entry.time));
        let row = self.rows.entry(Key { run, task }).or_default();
        if let Some(entry) = entry {
            row.comm = escaped(tables.names.get(entry.comm));
        }
        row
    }

    /// Returns the losses of a task. None if it has none but its run has unattributed ones.
    fn lost(&self, key: &Key, row: &Row) -> Option<u64> {
        let is_known = !self.unattributed_losses.contains(&key.run)
            && !self.unattributed_losses.contains(&None);
        (row.lost > 0 || is_known).then_some(row.lost)
    }

    /// Returns all tasks, the most sampled first.
    fn sorted(&self) -> Vec<(&Key, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        // Then by key: the order of a hash map differs from run to run.
        rows.sort_by_key(|(key, row)| (std::cmp::Reverse(row.total()), **key));
        rows
    }

    /// Returns all tasks for programs.
    pub(super) fn list(&self, summary: &Summary) -> Value {
        let rows = self.sorted().into_iter();
        rows.map(|(key, row)| self.object(key, row, summary.events.len())).collect()
    }

    /// Returns a task for programs.
    fn object(&self, key: &Key, row: &Row, events: usize) -> Value {
        let mut samples = row.samples.clone();
        // A row ends with the last event that has samples; programs get a number for each event.
        samples.resize(events, 0);
        json!({
            "run": key.run,
            "pid": key.task.map(|(pid, _, _)| pid),
            "tid": key.task.map(|(_, tid, _)| tid),
            "comm": key.task.map(|_| &row.comm),
            "samples": row.total(),
            "lost": self.lost(key, row),
            "events": samples,
        })
    }

    /// Returns a table of the most sampled tasks for people, and the number of omitted ones.
    pub(super) fn lines(&self, summary: &Summary, width: Option<usize>) -> String {
        let rows = self.sorted();
        let columns = Columns::of(summary);
        let mut cells = vec![columns.names(summary)];
        cells.extend(rows.iter().take(SHOWN).map(|(key, row)| {
            let sampled = |event| row.samples.get(event).copied().unwrap_or(0);
            let mut line = vec![row.total().to_string(), number(self.lost(key, row))];
            line.extend((0..columns.events).map(|event| sampled(event).to_string()));
            line.push(number(key.task.map(|(pid, _, _)| pid.into())));
            line.push(number(key.task.map(|(_, tid, _)| tid.into())));
            line.push(key.task.map_or("-".to_owned(), |_| row.comm.clone()));
            if columns.run {
                let run = key.run.and_then(|run| summary.runs.get(run)?.head.as_ref());
                line.push(run.map_or("-".to_owned(), |head| head.run.to_string()));
            }
            line
        }));
        let mut text = layout::lines(&cells, 4 + columns.events, width);
        let rest = &rows[SHOWN.min(rows.len())..];
        if !rest.is_empty() {
            let samples = total(rest.iter().map(|(_, row)| row.total()));
            let count = rest.len();
            text.push_str(&format!("{count} more tasks with {samples} samples\n"));
        }
        text
    }
}

/// The optional columns of the table for people.
struct Columns {
    /// One for each event, if there are several.
    events: usize,
    /// The run, if there are several.
    run: bool,
}

impl Columns {
    fn of(summary: &Summary) -> Self {
        let events = summary.events.len();
        Self { events: if events > 1 { events } else { 0 }, run: summary.runs.len() > 1 }
    }

    fn names(&self, summary: &Summary) -> Vec<String> {
        let mut names = vec!["samples".to_owned(), "lost".to_owned()];
        let events = summary.events.iter().take(self.events);
        names.extend(events.map(|event| escaped(&event.event.name)));
        names.extend(["pid", "tid", "task"].map(str::to_owned));
        names.extend(self.run.then(|| "run".to_owned()));
        names
    }
}

fn number(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}
