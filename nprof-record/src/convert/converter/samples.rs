//! Writes samples, after the definitions that they need.

use nprof_stream::{EventId, ExtrasBuilder, Mark, NodeId, Record, Sample, TaskId};

use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::perf::record::{self, SampleId};

impl<S: Sink> Converter<S> {
    pub(super) fn handle_sample(
        &mut self,
        sample_id: SampleId,
        sample: &record::Sample<'_>,
        event: EventId,
    ) {
        let Some((weight, count)) = self.by_value.weight(event, sample.weight) else { return };
        let SampleId { cpu, tid, time, .. } = sample_id;
        let state = self.waiting.as_mut();
        let times = state.map_or(1, |state| state.samples_in(event, cpu, tid, time));
        let (weight, count) = (weight.saturating_mul(times), count * times);
        let sampled_ns = if event == self.clock { weight } else { 0 };
        let located = self.locate_with(sample_id, sample, sampled_ns);
        let Some((task, node)) = located else { return };
        let mut extras = ExtrasBuilder::new();
        if self.stitched > 0 {
            extras.add_number("stitched", self.stitched as u64);
        }
        if let Some(sum) = self.sums.get_mut((event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
        self.sink.take(&Record::Sample(Sample {
            time: sample_id.time,
            event,
            task,
            cpu: sample_id.cpu,
            node,
            weight,
            count,
            extras: extras.extras(),
        }));
    }

    /// Returns the task and the node of a sample, after defining all that they need. None if it is not
    /// of a task of the tree.
    pub(super) fn locate(
        &mut self,
        sample_id: SampleId,
        sample: &record::Sample<'_>,
    ) -> Option<(TaskId, NodeId)> {
        self.locate_with(sample_id, sample, 0)
    }

    /// The same for a sample that is CPU time of its process.
    fn locate_with(
        &mut self,
        sample_id: SampleId,
        sample: &record::Sample<'_>,
        sampled_ns: u64,
    ) -> Option<(TaskId, NodeId)> {
        let (task, mark) = self.resolve(sample_id, sample, sampled_ns)?;
        Some(self.define_resolved(sample_id, task, mark))
    }

    /// Resolves the stack of a sample, which is CPU time of its process. Returns its task, and the reason why the
    /// stack is incomplete. None if it is not of a task of the tree.
    pub(super) fn resolve(
        &mut self,
        sample_id: SampleId,
        sample: &record::Sample<'_>,
        sampled_ns: u64,
    ) -> Option<(TaskId, Mark)> {
        let (task, process) = match self.tree.settled(sample_id.pid, sample_id.tid) {
            Some(settled) => settled,
            None => {
                self.settle(sample_id, sample.stack.in_kernel)?;
                self.tree.task_and_process(sample_id.tid)?
            }
        };
        process.sampled_ns = process.sampled_ns.saturating_add(sampled_ns);
        let is_unreadable = process.is_unreadable;
        let mut mark = self.resolver.resolve(process, sample_id, sample);
        if mark == Mark::Unmapped && self.may_read_maps_again(sample_id.tid) {
            self.read_maps_again(sample_id.tid)?;
            let (_, process) = self.tree.task_and_process(sample_id.tid)?;
            mark = self.resolver.resolve(process, sample_id, sample);
        }
        self.counts.unreadable += u64::from(is_unreadable && mark == Mark::Unmapped);
        Some((task, mark))
    }

    /// Returns the task and the node of the stack that was resolved last, after defining all that they need.
    pub(super) fn define_resolved(
        &mut self,
        sample_id: SampleId,
        mut task: TaskId,
        mark: Mark,
    ) -> (TaskId, NodeId) {
        if mark != Mark::None {
            *self.counts.incomplete.entry(mark).or_default() += 1;
        }
        if mark == Mark::Bits32 {
            self.note_compat(sample_id.tid);
        }
        self.stitched = self.resolver.stitched();
        self.counts.stitched += u64::from(self.stitched > 0);
        // Ids must not change between the frames of a stack and its sample.
        if self.resolver.is_full() {
            // The last chance: a location must be in the epoch of its frame.
            self.name_all_frames(sample_id.time);
            self.begin_epoch();
            task = self.tree.task(sample_id.tid).map_or(TaskId::NONE, |task| task.id);
        }
        (task, self.resolver.node(&self.tree, &mut self.sink))
    }

    /// Finds out what a sample of a task needs: adds the task if it is new to the tree, and reads the
    /// mappings of its process. None if the task does not belong to the tree.
    fn settle(&mut self, sample_id: SampleId, in_kernel: bool) -> Option<()> {
        self.drop_reused(sample_id);
        self.add_if_new(sample_id.pid, sample_id.tid, sample_id.time);
        // A task that exits still runs in the kernel.
        if !in_kernel {
            self.note_life(sample_id.tid, sample_id.time);
        }
        let pid = self.tree.task(sample_id.tid)?.pid;
        if self.tree.needs_maps(pid) {
            self.read_maps(pid);
        } else if self.tree.take_lost_maps(pid) {
            self.read_lost_maps(pid);
        }
        Some(())
    }

    /// Counts a sample of a 32-bit program.
    fn note_compat(&mut self, tid: u32) {
        let compat = &mut self.counts.compat;
        if compat.samples == 0 {
            compat.comm = self.tree.task(tid).map(|task| task.comm.clone()).unwrap_or_default();
        }
        compat.samples += 1;
    }

    /// Drops all ids, and defines the events and the live tasks again.
    pub(super) fn begin_epoch(&mut self) {
        self.resolver.begin_epoch(&mut self.sink);
        self.resolver.frames.images.begin_epoch(self.tree.images());
        self.define_events();
        if let Some(state) = &mut self.waiting {
            state.begin_epoch();
        }
        if let Some(state) = &mut self.allocations {
            state.begin_epoch();
        }
        if let Some(state) = &mut self.calls {
            state.begin_epoch();
        }
        self.tasks = 0;
        for tid in self.tree.living() {
            self.define_task(tid);
        }
        self.note_leaders();
    }
}
