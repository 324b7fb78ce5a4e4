//! The runs of the streams, and the runs of tasks in merged streams. Pure.

use std::collections::BTreeMap;

use nprof_stream::escape::escaped;
use nprof_stream::{Extras, Head, Lost, Record, RunId, TaskId};
use rustc_hash::FxHashMap;

use crate::model::Run;

/// The runs so far.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    numbers: FxHashMap<RunId, u32>,
    /// The run of the current segment; of merged segments the first one. None before the head of an input.
    current: Option<u32>,
    /// The runs of the current input, and whether an earlier one has them.
    of_input: BTreeMap<u32, bool>,
    /// The runs of tasks that name one.
    of_tasks: FxHashMap<TaskId, u32>,
}

impl Runs {
    /// Takes a record of any kind.
    pub(super) fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Head(head) => {
                self.of_tasks.clear();
                self.current = Some(self.number(head));
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
            self.of_input.insert(number, false);
        }
        self.of_input.entry(number).or_insert(true);
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
        if let Some(&run) = self.of_tasks.get(&task) {
            return run;
        }
        // Damage can hide the head of a stream.
        let run = self.current.unwrap_or_else(|| self.number(&Head::default()));
        self.current = Some(run);
        run
    }

    /// Notes the time of samples of a run.
    pub(super) fn note_time(&mut self, run: u32, time: i64) {
        if let Some(run) = self.runs.get_mut(run as usize) {
            (run.start, run.end) = (run.start.min(time), run.end.max(time));
        }
    }

    /// Notes lost samples of an event, at a time like that of samples.
    pub(super) fn note_lost(&mut self, lost: &Lost<'_>, event: u32, time: i64) {
        let run = self.named(lost.extras).unwrap_or_else(|| self.of_task(lost.task));
        if let Some(run) = self.runs.get_mut(run as usize) {
            let sum = run.lost.entry(event).or_default();
            *sum = sum.saturating_add(lost.count);
            run.first_loss.get_or_insert(time);
        }
    }

    /// Ends an input.
    pub(super) fn end_input(&mut self, is_complete: bool) {
        for (number, is_earlier) in std::mem::take(&mut self.of_input) {
            let run = &mut self.runs[number as usize];
            run.is_complete = is_complete && (run.is_complete || !is_earlier);
        }
        self.current = None;
        self.of_tasks.clear();
    }

    /// Returns the runs.
    pub(super) fn finish(self) -> Vec<Run> {
        self.runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(run: u64) -> Record<'static> {
        Record::Head(Box::new(Head { run: RunId(run), ..Head::default() }))
    }

    #[test]
    fn samples_without_a_head_are_not_those_of_the_input_before() {
        let mut runs = Runs::default();
        runs.take(&head(7));
        assert_eq!(runs.of_task(TaskId(1)), 0);
        runs.end_input(true);
        assert_eq!(runs.of_task(TaskId(1)), 1);
        runs.end_input(false);
        let ids: Vec<(u64, bool)> =
            runs.finish().iter().map(|run| (run.id, run.is_complete)).collect();
        assert_eq!(ids, [(7, true), (0, false)]);
    }

    #[test]
    fn run_of_two_inputs_is_complete_if_both_are() {
        for (inputs, expected) in
            [([true, true], true), ([true, false], false), ([false, true], false)]
        {
            let mut runs = Runs::default();
            for is_complete in inputs {
                runs.take(&head(7));
                runs.end_input(is_complete);
            }
            assert_eq!(runs.finish()[0].is_complete, expected, "{inputs:?}");
        }
    }
}
