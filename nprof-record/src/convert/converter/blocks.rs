//! Writes the allocations and releases of blocks, and the blocks that processes have.

use nprof_preload::WalkedStack;
use nprof_preload::protocol::{Allocated, Capture, Registers, Repeated};
use nprof_stream::{ExtrasBuilder, NodeId, TaskId};
use nprof_unwind::unwind::stack_input::{StackInput, UserStack, Words};

use crate::convert::allocations::block::Block;
use crate::convert::allocations::state::Allocator;
use crate::convert::allocations::sums::{Blocks, mean_period};
use crate::convert::converter::Converter;
use crate::convert::converter::library_samples::Written;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::perf::record::SampleId;

impl<S: Sink> Converter<S> {
    pub(super) fn allocate(&mut self, id: SampleId, ring: u64, allocated: &Allocated<'_>) {
        let Some((task, node)) = self.locate_captured(id, &allocated.capture) else { return };
        let &Allocated { pointer, size, weight, .. } = allocated;
        let count = u64::from(allocated.count).max(1);
        self.note_leader(ring, id.pid);
        self.remember_stack(id, ring, &allocated.capture, node);
        let block = Block { node, size, weight, count, time_ns: id.time };
        self.add_block(ring, task, pointer, block);
    }

    /// Takes an allocation at a known stack.
    pub(super) fn allocate_again(&mut self, id: SampleId, ring: u64, repeated: &Repeated) {
        let Some((task, node)) = self.locate_known(id, ring, repeated.stack) else { return };
        let &Repeated { pointer, size, weight, .. } = repeated;
        let count = u64::from(repeated.count).max(1);
        let block = Block { node, size, weight, count, time_ns: id.time };
        self.add_block(ring, task, pointer, block);
    }

    /// Returns the task and the node of a known stack. None if it is not of a process of the tree.
    pub(super) fn locate_known(
        &mut self,
        id: SampleId,
        ring: u64,
        number: u32,
    ) -> Option<(TaskId, NodeId)> {
        let process = self.allocations.as_ref()?.processes.get(&ring)?;
        let stack = process.known.as_ref()?.get(number);
        let owner = self.tree.task(id.tid).filter(|task| task.pid == id.pid);
        let task = owner.map_or(TaskId::NONE, |task| task.id);
        let maps = self.tree.process_mut(id.pid).map(|process| process.maps.clone());
        if let (Some(maps), Some(stack), false) = (&maps, stack, task.is_none())
            && let Some(node) = stack.node(maps)
        {
            return Some((task, node));
        }
        // A number that the program has made up leads to no stack.
        let addresses = stack.map(|stack| stack.addresses.clone());
        let user = addresses.as_deref().map_or(UserStack::Walked(Words(&[])), UserStack::Known);
        let stack = StackInput { user, ..StackInput::default() };
        let found = self.locate_record(id, stack);
        if let (Some((_, node)), Some(process)) = (found, self.tree.process_mut(id.pid)) {
            let maps = process.maps.clone();
            let state = self.allocations.as_mut()?;
            if let Some(known) = &mut state.processes.get_mut(&ring)?.known {
                known.set_node(number, node, &maps);
            }
        }
        found
    }

    /// Makes the current stack known to the library, if its walk depends on few words.
    pub(super) fn remember_stack(
        &mut self,
        id: SampleId,
        ring: u64,
        capture: &Capture<'_>,
        node: NodeId,
    ) {
        let Some((words, addresses)) = self.resolver.words() else { return };
        let Some(process) = self.tree.process_mut(id.pid) else { return };
        let state = self.allocations.as_mut();
        let allocator = state.and_then(|state| state.processes.get_mut(&ring));
        let Some(known) = allocator.and_then(|allocator| allocator.known.as_mut()) else { return };
        let &Registers { ip, sp, fp, .. } = &capture.registers;
        let frame_pointer = words.has_frame_pointer.then_some(fp);
        let walked = WalkedStack { ip, sp, frame_pointer, words: &words.words };
        known.add(&walked, addresses, node, &process.maps);
    }

    /// Adds a block, and writes its allocation.
    fn add_block(&mut self, ring: u64, task: TaskId, pointer: u64, block: Block) {
        let Some(state) = &mut self.allocations else { return };
        let mut replaced = None;
        if state.has_room()
            && let Some(process) = state.processes.get_mut(&ring)
        {
            let before = process.heap.len();
            replaced = process.heap.allocate(pointer, block);
            state.blocks += process.heap.len().saturating_sub(before);
        }
        // The record of its release was lost.
        if let Some(replaced) = replaced {
            self.write_release(block.time_ns, task, &replaced);
        }
        self.write_block(PreloadedEvent::HeapAlloc, block.time_ns, task, &block, None);
    }

    pub(super) fn release(&mut self, id: SampleId, ring: u64, address: u64) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let Some(block) = process.heap.release(address, id.time) else { return };
        state.blocks = state.blocks.saturating_sub(1);
        let task = self.task_of(id);
        self.write_release(id.time, task, &block);
    }

    /// Takes back a release that did not happen: it is followed by an allocation of the same block, so
    /// that what is allocated less what is released stays what is live.
    pub(super) fn keep(&mut self, id: SampleId, ring: u64, address: u64) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let Some(block) = process.heap.keep(address, id.time) else { return };
        state.blocks += 1;
        let task = self.task_of(id);
        self.write_block(PreloadedEvent::HeapAlloc, id.time, task, &block, None);
    }

    fn write_release(&mut self, time_ns: u64, task: TaskId, block: &Block) {
        let age_ns = time_ns.saturating_sub(block.time_ns);
        self.write_block(PreloadedEvent::HeapFree, time_ns, task, block, Some(age_ns));
    }

    fn write_block(
        &mut self,
        event: PreloadedEvent,
        time_ns: u64,
        task: TaskId,
        block: &Block,
        age_ns: Option<u64>,
    ) {
        let Some(state) = &mut self.allocations else { return };
        let mut extras = std::mem::take(&mut state.extras);
        extras.clear();
        if block.size != block.weight {
            extras.add_number("size", block.size);
        }
        if let Some(age_ns) = age_ns {
            extras.add_number("age", age_ns);
        }
        let &Block { node, weight, count, .. } = block;
        self.write_preloaded(&Written { event, time_ns, task, node, weight, count }, &extras);
        if let Some(state) = &mut self.allocations {
            state.extras = extras;
        }
    }

    /// Writes the blocks that all processes have now.
    pub(crate) fn write_snapshot(&mut self, time_ns: u64) {
        let Some(state) = &self.allocations else { return };
        if state.id(PreloadedEvent::HeapSnapshot).is_none() {
            return;
        }
        let row = |it: &Allocator| (it.pid, it.task, it.heap.live());
        let with_heap = state.processes.values().filter(|process| !process.is_heap_written);
        let mut processes: Vec<_> = with_heap.map(row).collect();
        processes.sort_unstable_by_key(|(pid, ..)| *pid);
        for (_, task, rows) in processes {
            self.write_rows(PreloadedEvent::HeapSnapshot, task, time_ns, &rows, None);
        }
    }

    /// Writes the blocks of each stack; `peak_ns` is the time at which the process had them.
    pub(super) fn write_rows(
        &mut self,
        event: PreloadedEvent,
        task: TaskId,
        time_ns: u64,
        rows: &[(NodeId, Blocks)],
        peak_ns: Option<u64>,
    ) {
        let period = mean_period(rows);
        for (node, blocks) in rows {
            let (weight, count) = (blocks.weight(), blocks.count(period));
            let mut extras = ExtrasBuilder::new();
            extras.add_number("blocks", blocks.blocks());
            extras.add_number("largest", blocks.largest);
            if let Some(peak_ns) = peak_ns {
                extras.add_number("peak", peak_ns);
            }
            let written = Written { event, time_ns, task, node: *node, weight, count };
            self.write_preloaded(&written, &extras);
        }
    }
}
