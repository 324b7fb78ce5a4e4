//! Samples of the events of the preloaded library: the stacks that it copied, and the written records.

use nprof_preload::protocol::Capture;
use nprof_stream::{EventId, ExtrasBuilder, NO_CPU, NodeId, Record, Sample, TaskId};
use nprof_unwind::arch;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack, Words};

use crate::convert::converter::Converter;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::perf::record::{self, SampleId};

/// A sample of an event of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) event: PreloadedEvent,
    pub(super) time_ns: u64,
    pub(super) task: TaskId,
    pub(super) node: NodeId,
    pub(super) weight: u64,
    pub(super) count: u64,
}

impl<S: Sink> Converter<S> {
    pub(super) fn write_preloaded(&mut self, written: &Written, extras: &ExtrasBuilder) {
        let id = self.allocations.as_ref().and_then(|state| state.id(written.event));
        let Some(event) = id else { return };
        let &Written { time_ns, task, node, weight, count, .. } = written;
        self.count_sample(event, weight);
        let extras = extras.extras();
        self.sink.take(&Record::Sample(Sample {
            time: time_ns,
            event,
            task,
            cpu: NO_CPU,
            node,
            weight,
            count,
            extras,
        }));
    }

    fn count_sample(&mut self, event: EventId, weight: u64) {
        if let Some(sum) = self.sums.get_mut((event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
    }

    /// Returns the task of a record; none if it is unknown.
    pub(super) fn task_of(&mut self, id: SampleId) -> TaskId {
        let known = self.known_thread(id).tid;
        let task = self.tree.task(known).map_or(TaskId::NONE, |task| task.id);
        self.exited_task(id).unwrap_or(task)
    }

    /// Returns the id of a record with a thread that lives: its own, or the first of its process. The record may have
    /// waited in the ring for that of a thread that did not run, until after the exit of its own.
    fn known_thread(&mut self, id: SampleId) -> SampleId {
        self.add_if_new(id.pid, id.tid, id.time);
        if self.tree.lives(id.tid) { id } else { SampleId { tid: id.pid, ..id } }
    }

    /// Returns the task of the thread of a record if it has exited. None if it lives or is unknown.
    fn exited_task(&self, id: SampleId) -> Option<TaskId> {
        let state = self.allocations.as_ref().filter(|_| !self.tree.lives(id.tid))?;
        state.exited(id.pid, id.tid)
    }

    /// Returns the task and the node of a record with its stack. None if it is not of a process of the tree.
    pub(super) fn locate_record(
        &mut self,
        id: SampleId,
        stack: StackInput<'_>,
    ) -> Option<(TaskId, NodeId)> {
        let known = self.known_thread(id);
        let (task, node) =
            self.locate(known, &record::Sample { stack, ..record::Sample::default() })?;
        Some((self.exited_task(id).unwrap_or(task), node))
    }

    /// Returns the task and the node of a call of the library. None if it is not of a process of the tree.
    pub(super) fn locate_captured(
        &mut self,
        id: SampleId,
        capture: &Capture<'_>,
    ) -> Option<(TaskId, NodeId)> {
        let registers = registers(capture);
        let copied = CopiedStack {
            registers: Words(&registers),
            bytes: capture.stack,
            requested_bytes: capture.stack.len(),
            is_after_call: true,
            ..CopiedStack::default()
        };
        let user = UserStack::Copied(copied);
        let stack = StackInput { ip: capture.registers.ip, user, ..StackInput::default() };
        self.locate_record(id, stack)
    }
}

/// Returns the registers of a call in the order of [`arch::NUMBERS`]. Those that a call does not
/// preserve are 0: no caller needs them.
fn registers(capture: &Capture<'_>) -> Vec<u8> {
    let known = &capture.registers;
    let value = |number: u16| match number {
        arch::IP => known.ip,
        arch::SP => known.sp,
        arch::FP => known.fp,
        number => {
            let at = arch::CALL_SAVED.iter().position(|saved| *saved == number);
            at.and_then(|at| known.saved.get(at)).copied().unwrap_or(0)
        }
    };
    arch::NUMBERS.iter().flat_map(|&number| value(number).to_le_bytes()).collect()
}
