//! The events to which samples belong.

use nprof_stream::EventId;

use crate::perf::record::SampleLayout;

/// The event, task and sample layout that a perf event id belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventBinding {
    pub(super) event: EventId,
    /// The task the event was opened for; `None` if it was opened for a CPU.
    pub(super) task: Option<u32>,
    /// The fields of its samples.
    pub(super) layout: SampleLayout,
    /// True if a BPF program copies their stacks.
    pub(super) uses_bpf_copier: bool,
}

/// The event of the samples in a ring that have the id of an event of another recorder.
///
/// A page fault or another event of the kernel's software may end the periods of several perf events. Since
/// 6.2, Linux fills the fields of the first one's sample, with its id, and takes them for those of
/// the others (`do_perf_sw_event` and `perf_prepare_sample`, kernel/events/core.c; tracepoints are filled
/// one by one).
#[derive(Clone, Copy, Debug)]
pub(super) enum StrayBinding {
    /// The ring has no event of the kernel's software.
    Unknown,
    Only(EventBinding),
    /// It has several events of which such samples may be.
    Several,
}

impl StrayBinding {
    /// Takes note of an event of the kernel's software.
    pub(super) fn note(&mut self, binding: EventBinding) {
        *self = match self {
            Self::Unknown => Self::Only(binding),
            Self::Only(known) if known.event == binding.event => *self,
            Self::Only(_) | Self::Several => Self::Several,
        };
    }

    /// Returns the event of a sample of a thread whose records come from the events of the task
    /// `supplier`.
    pub(super) fn of(self, supplier: Option<u32>) -> Option<EventBinding> {
        let Self::Only(binding) = self else { return None };
        let task = binding.task.map(|task| supplier.unwrap_or(task));
        Some(EventBinding { task, ..binding })
    }
}
