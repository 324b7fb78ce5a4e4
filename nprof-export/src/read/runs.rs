//! The runs of the streams, and the runs of tasks in merged streams. Pure.

use nprof_stream::escape::escaped;
use nprof_stream::{Extras, Head, Lost, Record, RunId, TaskId};
use rustc_hash::FxHashMap;

use crate::model::Run;

/// The runs so far.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    numbers: FxHashMap<RunId, u32>,
    /// The run of the current segment; of merged segments the first one.
    current: u32,
    /// The first run of the current input.
    first_of_input: usize,
    /// The runs of tasks that name one.
    of_tasks: FxHashMap<TaskId, u32>,
}

impl Runs {
    /// Takes a record of any kind.
    pub(super) fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(head) => {
                self.of_tasks.clear();
                self.current = self.number(head);
            }
            Record::Run(head) => {
                self.number(head);
            }
            Record::Epoch(_) => self.of_tasks.clear(),
            Record::Task(task) => {
                if let Some(run) = self.named(task.extras) {
                    self.of_tasks.insert(task.id, run);
                }
            }
            _ => {}
        }
    }

    /// Returns the number of the run of a head.
    fn number(&mut self, head: &Head) -> u32 {
        let next = self.runs.len() as u32;
        let number = *self.numbers.entry(head.run).or_insert(next);
        if number == next {
            self.runs.push(Run {
                id: head.run.0,
                host: escaped(&head.host),
                service: escaped(&head.service),
                version: escaped(&head.service_version),
                command: escaped(&head.command),
                start: i64::MAX,
                end: i64::MIN,
                ..Run::default()
            });
        }
        number
    }

    /// Returns the run that extras name.
    fn named(&self, extras: Extras<'_>) -> Option<u32> {
        let run = extras.get("run")?;
        let digits = std::str::from_utf8(&run).ok()?.strip_prefix("0x")?;
        let run = RunId(u64::from_str_radix(digits, 16).ok()?);
        self.numbers.get(&run).copied()
    }

    /// Returns the run of a task.
    pub(super) fn of_task(&mut self, task: TaskId) -> u32 {
        // Damage can hide the head of a stream.
        if self.runs.is_empty() {
            self.number(&Head::default());
        }
        self.of_tasks.get(&task).copied().unwrap_or(self.current)
    }

    /// Notes the time of samples of a run.
    pub(super) fn note_time(&mut self, run: u32, time: i64) {
        if let Some(run) = self.runs.get_mut(run as usize) {
            (run.start, run.end) = (run.start.min(time), run.end.max(time));
        }
    }

    /// Notes lost samples of an event.
    pub(super) fn note_lost(&mut self, lost: &Lost<'_>, event: u32) {
        let run = self.named(lost.extras).unwrap_or_else(|| self.of_task(lost.task));
        if let Some(run) = self.runs.get_mut(run as usize) {
            let sum = run.lost.entry(event).or_default();
            *sum = sum.saturating_add(lost.count);
        }
    }

    /// Ends an input.
    pub(super) fn end_input(&mut self, is_complete: bool) {
        for run in &mut self.runs[self.first_of_input..] {
            run.is_complete = is_complete;
        }
        self.first_of_input = self.runs.len();
        self.of_tasks.clear();
    }

    /// Returns the runs.
    pub(super) fn finish(self) -> Vec<Run> {
        self.runs
    }
}
