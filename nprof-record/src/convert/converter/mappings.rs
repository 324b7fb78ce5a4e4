//! Follows the mappings of processes, by records and by /proc.

use nprof_object::RuntimeAddress;
use nprof_stream::ImageKind;

use crate::convert::address_space::Mapping;
use crate::convert::converter::Converter;
use crate::convert::converter::gaps::CHECK_TIMES;
use crate::convert::dictionary::Sink;
use crate::os::code_mapping::Mmap;
use crate::os::procfs;
use crate::perf::record::SampleId;
use crate::perf::synthesize;
use crate::sys;

impl<S: Sink> Converter<S> {
    /// Reads the mappings of a process that existed before the recording from /proc.
    pub(crate) fn read_maps(&mut self, pid: u32) {
        let (time, text) = (sys::monotonic_ns(), procfs::maps(pid));
        self.set_maps(pid, time, text.as_deref());
    }

    /// Sets the mappings of a process as /proc showed them at `time`. None if they could not be read.
    pub(super) fn set_maps(&mut self, pid: u32, time: u64, text: Option<&[u8]>) {
        // If the process has exited, its records are all there will ever be: accept all of them.
        self.tree.set_maps_known_until(pid, if text.is_some() { time } else { 0 });
        if let Some(process) = self.tree.process_mut(pid) {
            process.is_unreadable = text.is_none() && procfs::are_maps_refused(pid);
            process.has_unknown_maps = !process.is_unreadable && text.is_none_or(<[u8]>::is_empty);
        }
        for mmap in synthesize::executable(text.unwrap_or_default(), pid) {
            self.handle_mmap(SampleId { time, ..SampleId::default() }, &mmap);
        }
    }

    /// Adds the mappings of a process that are in /proc, because records of some may have been lost.
    pub(super) fn read_lost_maps(&mut self, pid: u32) {
        // While records are lost again and again, the time for this is bounded, too.
        let interval_ns = self.add_mappings(pid).saturating_mul(CHECK_TIMES);
        self.check_interval_ns = self.check_interval_ns.saturating_add(interval_ns);
    }

    /// Adds the mappings of a process that are in /proc and not known. Returns the time that it took, in ns.
    pub(super) fn add_mappings(&mut self, pid: u32) -> u64 {
        let time = sys::monotonic_ns();
        let text = procfs::maps(pid).unwrap_or_default();
        for mmap in synthesize::executable(&text, pid) {
            let Some(process) = self.tree.process_mut(pid) else { break };
            // /proc lacks a part of the identity in records: a known file would become two images.
            let known = process.maps.find(mmap.start);
            let is_known = known.is_some_and(|(image, offset)| {
                self.resolver.frames.images.is_mapping_of(&mmap, image, offset)
            });
            if !is_known {
                self.handle_mmap(SampleId { time, ..SampleId::default() }, &mmap);
            }
        }
        sys::monotonic_ns().saturating_sub(time)
    }

    pub(super) fn handle_mmap(&mut self, sample_id: SampleId, mmap: &Mmap<'_>) {
        self.drop_reused(sample_id);
        self.note_life(sample_id.tid, sample_id.time);
        let Some(process) = self.tree.process_mut(mmap.pid) else { return };
        let serial = process.serial;
        if let Some(exec) = &mut process.exec {
            exec.has_mappings = true;
        }
        process.jit.mapped(mmap, &self.resolver.frames.files);
        let (image, offset) = self.resolver.frames.images.image_of(mmap, serial, sample_id.time);
        // The first file that is mapped after an exec is the executed image.
        if self.resolver.frames.images.get(image).kind == ImageKind::Elf
            && let Some(exec) = process.exec.take()
        {
            self.emit_exec(exec, &mmap.path);
        }
        if self.resolver.frames.images.get(image).kind == ImageKind::Elf
            && let Some(state) = &mut self.allocations
        {
            state.note_image(mmap.pid, &mmap.path);
        }
        let end = RuntimeAddress(mmap.start.0.saturating_add(mmap.length));
        let mapping = Mapping { start: mmap.start, end, offset, image };
        self.tree.map(mmap.pid, sample_id.time, mapping);
    }
}
