//! The tasks in streams: how often each was sampled, by event, and what it lost.
//!
//! A task is told by its run, its pid and tid, and the time it began: pids are used again, and
//! ids are not those of another epoch.

use std::collections::{HashMap, HashSet};

use nprof_report::layout;
use nprof_report::profile::{Cell, Profile, Sum};
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;
use nprof_stream::number::total;
use nprof_stream::tables::{Tables, TaskEntry};
use nprof_stream::{Extras, Lost, TaskId};
use serde_json::{Value, json};

/// How many tasks people are shown.
const SHOWN: usize = 20;

/// What tells a task from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    /// Index into the summary's runs; `None` where that is not told.
    run: Option<usize>,
    /// Its pid, its tid, and when it began; `None` where its record is lost or never was.
    task: Option<(u32, u32, u64)>,
}

/// What is known of a task.
#[derive(Clone, Debug, Default)]
struct Row {
    /// Its last name.
    comm: String,
    /// Its samples of each event of the summary; events it has none of may be missing at the
    /// end.
    samples: Vec<u64>,
    /// Its losses, as far as they name it.
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
    /// The runs with losses that name no task.
    lost_by_whom: HashSet<Option<usize>>,
}

impl Tasks {
    /// How many processes and threads there are.
    pub(super) fn count(&self) -> usize {
        self.rows.keys().filter(|key| key.task.is_some()).count()
    }

    /// Takes in a sum of samples.
    pub(super) fn add(&mut self, tables: &Tables, cell: &Cell, sum: Sum) {
        let row = self.row(Some(cell.run), tables, cell.task);
        if row.samples.len() <= cell.event {
            row.samples.resize(cell.event + 1, 0);
        }
        row.samples[cell.event] = row.samples[cell.event].saturating_add(sum.samples);
    }

    /// Takes in that a task is there, or has another name.
    pub(super) fn name(&mut self, profile: &Profile, task: TaskId) {
        let run = profile.run_of(task, Extras::NONE);
        if run.is_some() && profile.tables().task(task).is_some() {
            self.row(run, profile.tables(), task);
        }
    }

    /// Takes in a loss.
    pub(super) fn lose(&mut self, profile: &Profile, lost: &Lost<'_>) {
        let run = profile.run_of(lost.task, lost.extras);
        if lost.task.is_none() {
            self.lost_by_whom.insert(run);
            return;
        }
        let row = self.row(run, profile.tables(), lost.task);
        row.lost = row.lost.saturating_add(lost.count);
    }

    /// What is known of a task, under the name it has now.
    fn row(&mut self, run: Option<usize>, tables: &Tables, id: TaskId) -> &mut Row {
        let entry: Option<&TaskEntry> = tables.task(id);
        let task = entry.map(|entry| (entry.pid, entry.tid, entry.time));
        let row = self.rows.entry(Key { run, task }).or_default();
        if let Some(entry) = entry {
            row.comm = escaped(tables.names.get(entry.comm));
        }
        row
    }

    /// What a task lost; `None` where losses of its run may be its own, and none names it.
    fn lost(&self, key: &Key, row: &Row) -> Option<u64> {
        let is_told = !self.lost_by_whom.contains(&key.run) && !self.lost_by_whom.contains(&None);
        (row.lost > 0 || is_told).then_some(row.lost)
    }

    /// All tasks, the most sampled first.
    fn sorted(&self) -> Vec<(&Key, &Row)> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|(key, row)| (std::cmp::Reverse(row.total()), **key));
        rows
    }

    /// All tasks, for programs.
    pub(super) fn list(&self, summary: &Summary) -> Value {
        let task = |(key, row): (&Key, &Row)| {
            let mut samples = row.samples.clone();
            samples.resize(summary.events.len(), 0);
            json!({
                "run": key.run,
                "pid": key.task.map(|(pid, _, _)| pid),
                "tid": key.task.map(|(_, tid, _)| tid),
                "comm": key.task.map(|_| &row.comm),
                "samples": row.total(),
                "lost": self.lost(key, row),
                "events": samples,
            })
        };
        self.sorted().into_iter().map(task).collect()
    }

    /// The most sampled tasks, for people: a table, and what it leaves out.
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
            text.push_str(&format!("and {count} tasks more, with {samples} samples\n"));
        }
        text
    }
}

/// Which columns the table for people has that are there only where they tell something.
struct Columns {
    /// One for each event, where there are several.
    events: usize,
    /// The run, where there are several.
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
