//! Writes the calls of functions that the compiler instrumented.

use nprof_preload::protocol::{Called, CalledAgain};
use nprof_stream::{ExtrasBuilder, NodeId, TaskId};

use crate::convert::converter::Converter;
use crate::convert::converter::library_samples::Written;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::perf::record::SampleId;

impl<S: Sink> Converter<S> {
    /// Takes a sampled call.
    pub(super) fn handle_called(&mut self, id: SampleId, ring: u64, called: &Called<'_>) {
        let Some((task, node)) = self.locate_captured(id, &called.capture) else { return };
        self.remember_stack(id, ring, &called.capture, node);
        self.write_called(id.time, task, node, called.weight);
    }

    /// Takes a call at a known stack.
    pub(super) fn handle_called_again(&mut self, id: SampleId, ring: u64, called: &CalledAgain) {
        if let Some((task, node)) = self.locate_known(id, ring, called.stack) {
            self.write_called(id.time, task, node, 1);
        }
    }

    fn write_called(&mut self, time_ns: u64, task: TaskId, node: NodeId, weight: u64) {
        let event = PreloadedEvent::Calls;
        let written = Written { event, time_ns, task, node, weight, count: 1 };
        self.write_preloaded(&written, &ExtrasBuilder::new());
    }
}
