//! Opens the event that the program for calls writes to.

use anyhow::Context;
use nprof_stream::EventId;

use crate::event::CpuMode;
use crate::perf::event_binding::EventBinding;
use crate::perf::open::{EventOpener, OpenFailure};
use crate::sys::{self, EventTarget};

impl EventOpener<'_> {
    /// Opens the event that the program for calls writes to on a CPU.
    pub(super) fn open_call_event(
        &mut self,
        cpu: u32,
        event: EventId,
        scope: CpuMode,
    ) -> Result<(), OpenFailure> {
        let (common, layout) = (&self.plan.common, self.plan.common.call_layout());
        let attr = common.call_attr(scope, self.watermark());
        let binding = EventBinding { event, task: None, layout, uses_bpf_copier: false };
        self.add(&attr, cpu, EventTarget::AllTasks, binding, self.size)?;
        let ring = self.rings.get_mut(&(cpu, false));
        if let (Some(calls), Some(ring)) = (&self.calls, ring)
            && let Some(added) = ring.events.last().filter(|added| added.event == event)
        {
            let set = calls.set_output_event(cpu, &added.file);
            set.context("cannot connect a BPF program with an event")?;
            let id = sys::event_id(&added.file).context("cannot read the id of an event")?;
            ring.late_writer.get_or_insert(id);
        }
        Ok(())
    }
}
