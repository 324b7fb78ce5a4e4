//! Writes calls: samples with the calls that they represent, and the calls without a sample.

use nprof_object::{FileOffset, ImageOffset, RuntimeAddress};
use nprof_stream::{Cause, EventId, ExtrasBuilder, Mark, NodeId, Record, Sample, TaskId};

use crate::convert::calls::CallState;
use crate::convert::converter::Converter;
use crate::convert::dictionary::{FrameKey, Sink};
use crate::image::key::ImageKey;
use crate::os::code_mapping::Mmap;
use crate::os::task_serial::TaskSerial;
use crate::perf::calls::data::{Call, CallRest, RoutineCount, TakenOff};
use crate::perf::record::{self, SampleId};

impl<S: Sink> Converter<S> {
    /// Takes the event that counts calls.
    pub(crate) fn set_calls(&mut self, state: CallState) {
        self.calls = Some(state);
    }

    /// Writes a sampled call, with the calls before it that have no sample.
    pub(super) fn handle_call(&mut self, id: SampleId, sample: &record::Sample<'_>, call: &Call) {
        let Some(state) = &self.calls else { return };
        let Some(point) = state.list.points.get(call.key.point as usize) else { return };
        let offset = ImageOffset(point.frame);
        let is_kernel = state.list.is_kernel();
        self.resolver.leaf_offset = Some(offset);
        let located = self.locate(id, sample);
        self.resolver.leaf_offset = None;
        let frame = if is_kernel {
            self.point_frame(call.key.point)
        } else {
            self.image_at(id, sample.stack.ip).map(|image| user_frame(image, offset))
        };
        let Some(state) = &mut self.calls else { return };
        let (Some((task, node)), Some(frame)) = (located, frame) else {
            // The task or its mappings are not known: its calls are those of the function all the same.
            let Call { key, calls, slice } = *call;
            return self.handle_rest(id, &CallRest { key, calls, slice, is_living: true });
        };
        state.frames[call.key.point as usize] = Some(frame);
        state.note_sample(call.key, call.slice, node);
        let time = state.time_in(call.slice, id.time);
        self.write_calls(SampleId { time, ..id }, task, node, call.calls);
    }

    /// Writes the calls of a slice after its last sample.
    pub(super) fn handle_rest(&mut self, id: SampleId, rest: &CallRest) {
        // Ids must not change between the stack and its sample.
        if self.resolver.is_full() {
            self.name_all_frames(id.time);
            self.begin_epoch();
        }
        let task = self.counted_task(id.tid, rest.is_living);
        let Some(state) = &self.calls else { return };
        // A random call has the stack of the last sample as likely as any other of its slice.
        let node = match state.stack_in(rest.key, rest.slice) {
            Some(node) => node,
            None => self.path_node(&[rest.key.point]),
        };
        self.write_calls(id, task, node, rest.calls);
    }

    /// Writes the events of a thread in a routine.
    pub(super) fn handle_count(&mut self, id: SampleId, count: &RoutineCount) {
        if self.resolver.is_full() {
            self.name_all_frames(id.time);
            self.begin_epoch();
        }
        let task = self.counted_task(id.tid, count.is_living);
        let node = self.path_node(&count.points);
        let Some(event) = self.calls.as_ref().map(|state| state.counted) else { return };
        self.write_count(id, event, task, node, count.events);
    }

    /// Returns the id of a thread whose events were counted up to a time at which it lived or did not.
    fn counted_task(&self, tid: u32, is_living: bool) -> TaskId {
        let exited = self.calls.as_ref().and_then(|state| state.exited.get(&tid).copied());
        let known = self.tree.task(tid).map(|task| task.id);
        let task = if is_living { known.or(exited) } else { exited.or(known) };
        task.unwrap_or(TaskId::NONE)
    }

    fn write_calls(&mut self, id: SampleId, task: TaskId, node: NodeId, calls: u64) {
        let Some(state) = &mut self.calls else { return };
        let event = state.event;
        state.written += calls;
        self.write_count(id, event, task, node, calls);
    }

    fn write_count(
        &mut self,
        id: SampleId,
        event: EventId,
        task: TaskId,
        node: NodeId,
        weight: u64,
    ) {
        if let Some(sum) = self.sums.get_mut((event.0 as usize).wrapping_sub(1)) {
            sum.samples += 1;
            sum.weight = sum.weight.saturating_add(weight);
        }
        let extras = ExtrasBuilder::new();
        self.sink.take(&Record::Sample(Sample {
            time: id.time,
            event,
            task,
            cpu: id.cpu,
            node,
            weight,
            count: 1,
            extras: extras.extras(),
        }));
    }

    /// Returns the node of functions, of which the first was called by the second. Their other callers are
    /// not known.
    fn path_node(&mut self, points: &[u32]) -> NodeId {
        let frames = points.iter().map_while(|&point| self.point_frame(point));
        let mut keys: Vec<_> = frames.collect();
        if keys.is_empty() {
            return NodeId::NONE;
        }
        keys.push(FrameKey::mark(Mark::NoStack));
        self.resolver.frames.node_of(&keys, &self.tree, &mut self.sink)
    }

    /// Returns the frame of a place, as samples show it, or as its file would be mapped.
    fn point_frame(&mut self, number: u32) -> Option<FrameKey> {
        let state = self.calls.as_ref()?;
        let known = state.frames.get(number as usize)?;
        if known.is_some() {
            return *known;
        }
        let point = &state.list.points[number as usize];
        let image = &state.list.images[point.image];
        if let Some(base) = image.base {
            let address = base.wrapping_add(point.frame);
            return Some(self.resolver.frames.kernel_key(address, false));
        }
        let mmap = Mmap {
            pid: 0,
            start: RuntimeAddress(0),
            length: u64::MAX,
            offset: FileOffset(0),
            identity: image.identity,
            path: image.path.as_slice().into(),
        };
        let (image, _) =
            self.resolver.frames.images.image_of(&mmap, TaskSerial::default(), u64::MAX);
        Some(user_frame(ImageKey::File(image), ImageOffset(point.frame)))
    }

    /// Returns the image at an address of a process. None if nothing is mapped there.
    fn image_at(&mut self, id: SampleId, ip: u64) -> Option<ImageKey> {
        let pid = self.tree.task(id.tid)?.pid;
        let maps = &self.tree.process_mut(pid)?.maps;
        let (image, _) = maps.find(RuntimeAddress(ip))?;
        Some(ImageKey::File(image))
    }

    /// Writes that calls were not counted.
    pub(super) fn handle_missed_calls(&mut self, id: SampleId, missed: u64) {
        let Some(state) = &mut self.calls else { return };
        state.missed = missed;
        let event = state.event;
        self.emit_lost(id, missed, event, Cause::Throttle, ExtrasBuilder::new().extras());
    }

    /// Writes that a function is not counted any more.
    pub(super) fn handle_taken_off(&mut self, id: SampleId, taken_off: TakenOff) {
        let Some(state) = &mut self.calls else { return };
        let Some(point) = state.list.points.get(taken_off.point as usize) else { return };
        let mut extras = ExtrasBuilder::new();
        extras.add("function", &point.name);
        extras.add_number("rate", taken_off.rate);
        state.taken_off.push((point.clone(), taken_off.rate));
        let event = state.event;
        self.emit_lost(id, 0, event, Cause::Throttle, extras.extras());
    }
}

fn user_frame(image: ImageKey, offset: ImageOffset) -> FrameKey {
    let image = Some(image);
    FrameKey { image, offset, kernel: false, return_address: false, mark: Mark::None }
}
