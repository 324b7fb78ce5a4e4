//! Assigns samples to runs: the segment's own run, or one of the runs merged into it.

use nprof_stream::extras::Extras;
use nprof_stream::meta::{End, Head, RunEnd, RunId};
use nprof_stream::tables::Tables;
use nprof_stream::*;
use rustc_hash::FxHashMap;

use crate::profile::summary::Run;

/// The runs of the current segment, as indices into the runs of the summary.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// The segment's own run. In a merged segment None, until a sample belongs to none of its runs.
    own: Option<usize>,
    /// True if there are samples of it.
    own_is_used: bool,
    /// The segment's head, if the segment is merged.
    merged: Option<Box<Head>>,
    by_id: FxHashMap<RunId, usize>,
    /// Runs by task of the epoch; empty unless the segment is merged.
    by_task: FxHashMap<TaskId, usize>,
}

impl Runs {
    /// Begins a segment. Its own run is the last one of `runs`.
    pub(crate) fn begin(&mut self, runs: &[Run]) {
        *self = Self { own: runs.len().checked_sub(1), ..Self::default() };
    }

    /// Adds a run that was merged into the segment. The first one replaces the segment's own run.
    pub(crate) fn declare(&mut self, head: &Head, runs: &mut Vec<Run>) {
        if self.by_id.contains_key(&head.run) {
            return;
        }
        // The head of a merged segment describes the merge, not a run: its entry in the summary is
        // reused for the first real run, unless samples have already been assigned to it.
        let is_first = self.merged.is_none();
        if is_first {
            let own = self.own.and_then(|own| runs.get(own)?.head.clone());
            self.merged = Some(Box::new(own.unwrap_or_default()));
        }
        let index = match self.own.filter(|_| is_first && !self.own_is_used) {
            Some(own) => {
                self.own = None;
                own
            }
            None => push(runs),
        };
        runs[index].head = Some(head.clone());
        // A merged segment's clock is the time of day.
        runs[index].start = head.utc;
        self.by_id.insert(head.run, index);
    }

    /// Adds a number to all indices: other runs now come before these.
    pub(crate) fn renumber(&mut self, added: usize) {
        let maps = self.by_id.values_mut().chain(self.by_task.values_mut());
        maps.chain(&mut self.own).for_each(|run| *run += added);
    }

    /// True if the segment is merged: the run of a sample depends on its task.
    pub(crate) fn are_merged(&self) -> bool {
        self.merged.is_some()
    }

    /// Notes the run of a task.
    pub(crate) fn task(&mut self, task: &Task<'_>) {
        match self.run_in_extras(task.extras) {
            Some(run) => self.by_task.insert(task.id, run),
            // A task id can be defined again, without a run.
            None => self.by_task.remove(&task.id),
        };
    }

    /// Forgets the tasks at the end of an epoch.
    pub(crate) fn forget_tasks(&mut self) {
        self.by_task.clear();
    }

    /// Returns the index of a sample's run: the run of its task, else the run in its extras, else the
    /// segment's own.
    pub(crate) fn of(
        &mut self,
        sample: &Sample<'_>,
        tables: &Tables,
        runs: &mut Vec<Run>,
    ) -> usize {
        if self.merged.is_some()
            && let Some(run) = self.run_of_record(sample.task, sample.extras, tables)
        {
            return run;
        }
        self.own_is_used = true;
        *self.own.get_or_insert_with(|| {
            let head = self.merged.as_deref();
            let same = head.and_then(|head| self.by_id.get(&head.run)).copied();
            same.unwrap_or_else(|| {
                let own = push(runs);
                runs[own].head = head.cloned();
                own
            })
        })
    }

    /// Returns the index of the run of a record with this task and these extras. None if it has
    /// neither, in a merged segment.
    pub(crate) fn run_of_record(
        &self,
        task: TaskId,
        extras: Extras<'_>,
        tables: &Tables,
    ) -> Option<usize> {
        match (&self.merged, tables.task(task)) {
            (None, _) => self.own,
            // The task's definition names its run, so its records need not repeat it.
            (Some(_), Some(_)) => self.by_task.get(&task).copied(),
            (Some(_), None) => self.run_in_extras(extras),
        }
    }

    fn run_in_extras(&self, extras: Extras<'_>) -> Option<usize> {
        self.merged.as_ref()?;
        self.by_id.get(&RunId(extras.number("run")?)).copied()
    }

    /// Notes the end of a run that was merged into the segment.
    pub(crate) fn ran(&self, ran: &RunEnd, runs: &mut [Run]) {
        if let Some(run) = self.by_id.get(&ran.run).and_then(|&index| runs.get_mut(index)) {
            run.end = Some(ran.end.clone());
        }
    }

    /// Notes the end of the segment, which is the end of its own run unless the segment is merged.
    pub(crate) fn end(&self, end: &End, runs: &mut [Run]) {
        // In a merged segment each run has its own @run_end.
        if self.merged.is_none()
            && let Some(run) = self.own.and_then(|own| runs.get_mut(own))
        {
            run.end = Some(end.clone());
        }
    }
}

/// Adds a run in the same stream as the last one.
fn push(runs: &mut Vec<Run>) -> usize {
    let input = runs.last().map_or("", |run| &run.input).to_owned();
    runs.push(Run::new(&input));
    runs.len() - 1
}

#[cfg(test)]
mod tests {
    use crate::profile::stack_sums::{GroupBy, Profile};

    /// Returns the command, the status and the samples of every run.
    fn runs(stream: &str) -> Vec<(String, Option<u64>, u64)> {
        let mut profile = Profile::new(GroupBy::default());
        profile.read("x", stream.as_bytes(), |_, _, _| {}).unwrap();
        let runs = profile.summary.runs.into_iter().map(|run| {
            let command = run.head.map(|head| head.command).unwrap_or_default();
            let status = run.end.and_then(|end| end.status);
            (String::from_utf8_lossy(&command).into_owned(), status, run.samples)
        });
        runs.collect()
    }

    const MERGED: &str = "\
@nprof\t1.1\trun=0x3\tclock=realtime\ttime=0\tutc=0\tcommand=merged
@run\trun=0x1\tcommand=one
@run\trun=0x2\tcommand=two
T\t1\t5\t10\t10\t0\ta\trun=0x1
T\t2\t5\t10\t10\t0\ta\trun=0x2
S\t6\t1\t1\t0\t0\t1\t1
S\t6\t1\t2\t0\t0\t1\t2
S\t7\t1\t0\t0\t0\t1\t4\trun=0x2
";

    #[test]
    fn sample_belongs_to_the_run_of_its_task_or_its_extras() {
        let stream = format!(
            "{MERGED}@run_end\trun=0x2\tstatus=7\tsamples=2\trecords=3\tlost=0\n\
             @epoch\tnumber=1\nT\t1\t5\t10\t10\t0\ta\trun=0x2\nS\t8\t1\t1\t0\t0\t1\t8\n\
             @end\tstatus=9\tsamples=4\trecords=11\tlost=0\n"
        );
        let wanted = [("one".to_owned(), None, 1), ("two".to_owned(), Some(7), 14)];
        assert_eq!(runs(&stream), wanted);
        // A stream appended with `cat` is another run.
        let appended = "@nprof\t1.1\trun=0x5\tcommand=three\nS\t1\t1\t1\t0\t0\t1\t1\n\
                        @end\tstatus=4\tsamples=1\trecords=1\tlost=0\n";
        let wanted = [&wanted[..], &[("three".to_owned(), Some(4), 1)]].concat();
        assert_eq!(runs(&[&stream, appended].concat()), wanted);
    }

    #[test]
    fn sample_without_a_run_belongs_to_the_segment() {
        // The definition of the task is lost to damage.
        let stream = format!("{MERGED}S\t8\t1\t9\t0\t0\t1\t8\n");
        let wanted = [("one", 1), ("two", 6), ("merged", 8)];
        assert_eq!(runs(&stream), wanted.map(|(name, count)| (name.to_owned(), None, count)));
    }

    #[test]
    fn samples_before_the_first_run_belong_to_the_segment() {
        let stream = MERGED.replacen("@run\t", "S\t6\t1\t1\t0\t0\t1\t8\n@run\t", 1);
        let wanted = [("merged", 8), ("one", 1), ("two", 6)];
        assert_eq!(runs(&stream), wanted.map(|(name, count)| (name.to_owned(), None, count)));
    }

    #[test]
    fn run_extra_is_ignored_unless_the_segment_is_merged() {
        let stream = MERGED.replace("@run\t", "# ");
        assert_eq!(runs(&stream), [("merged".to_owned(), None, 7)]);
    }
}
