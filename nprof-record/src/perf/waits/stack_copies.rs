//! The copies that the programs for waiting make of stacks deeper than the kernel's own copy.

use std::fs::File;
use std::io;
use std::rc::Rc;

use anyhow::Context;

use crate::perf::bpf::object::BpfObject;
use crate::perf::bpf::shared_array;
use crate::perf::bpf::stack_copier::MAX_EXTRA_BYTES;
use crate::sys::{self, SharedWords};

/// The maps for chunks of stacks.
#[derive(Debug)]
pub(crate) struct WaitStackCopies {
    /// The map of the events that write chunks. The kernel empties it on close.
    chunks: File,
    /// The hints, and the bytes in the rings: see [`shared_array`].
    pub(crate) words: Rc<SharedWords>,
    /// The most bytes of a stack that the kernel and the programs copy together.
    pub(crate) max_copy_bytes: u64,
}

impl WaitStackCopies {
    /// Takes the maps of loaded programs, for stacks of which the kernel copies `copied_bytes`, on CPUs
    /// up to `last_cpu`.
    ///
    /// # Errors
    ///
    /// If a map is missing, or cannot be mapped.
    pub(super) fn new(
        object: &mut BpfObject,
        copied_bytes: u32,
        last_cpu: u32,
    ) -> anyhow::Result<Self> {
        let chunks = object.take_map("chunks")?.file;
        let hints = object.take_map("hints")?.file;
        let words = SharedWords::map(&hints, shared_array::word_count(last_cpu))
            .context("cannot map the hints for deep stacks")?;
        let max_copy_bytes = u64::from(copied_bytes + MAX_EXTRA_BYTES - 8);
        Ok(Self { chunks, words: Rc::new(words), max_copy_bytes })
    }

    /// Makes an event that is open on a CPU the one that writes chunks, at most `room` bytes at a time.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(crate) fn set_output_event(&self, cpu: u32, event: &File, room: u64) -> io::Result<()> {
        self.words.set(shared_array::room_word(cpu), room);
        sys::bpf_map_set(&self.chunks, cpu, event)
    }
}
