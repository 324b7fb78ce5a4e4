//! The code of the BPF programs that this process loads, as the kernel reports it. Without it, the first
//! sample in one of them reads /proc/kallsyms, which takes some 40 ms.
//!
//! The event is one of a CPU, on which the thread stays until it has loaded them. An event of a task would make each
//! context switch of the machine a seventh longer, from its start to a second after its end: the time
//! after which the kernel removes its hooks of such events (`perf_sched_delayed` in kernel/events/core.c).

use std::fs::File;

use rustix::thread::sched_getcpu;

use crate::os::code_mapping::LoadedCode;
use crate::perf::plan::CommonAttr;
use crate::perf::record::{self, KernelRecord, SampleLayout};
use crate::perf::ring_cursor::RingCursor;
use crate::sys::{self, EventTarget, Ring, SavedAffinity};

/// An event that reports the code that this thread loads. The thread stays on its CPU.
pub(crate) struct CodeListener {
    _affinity: SavedAffinity,
    ring: RingCursor,
    /// The ring has records as long as it is open.
    _event: File,
}

impl CodeListener {
    /// Opens the event. None if the kernel or these rights do not allow it.
    pub(crate) fn open(common: &CommonAttr) -> Option<Self> {
        let (affinity, cpu) = (SavedAffinity::of_this_thread().ok()?, sched_getcpu());
        affinity.stay_on(cpu).ok()?;
        let (attr, cpu) = (common.code_attr(), i32::try_from(cpu).ok()?);
        let event = sys::perf_event_open(&attr, EventTarget::AllTasks, cpu).ok()?;
        let ring = RingCursor::new(Ring::map(&event, sys::page_size()).ok()?);
        Some(Self { _affinity: affinity, ring, _event: event })
    }

    /// Returns the code that was loaded since.
    pub(crate) fn take(mut self) -> Vec<LoadedCode> {
        let mut loaded = Vec::new();
        self.ring.head = self.ring.ring.head();
        while let Some((header, bytes)) = self.ring.oldest() {
            let size = header.size;
            if let Some((_, KernelRecord::Ksymbol(symbol))) =
                record::read(&SampleLayout::default(), bytes)
                && !symbol.is_unregistered
            {
                let (start, name) = (symbol.start, symbol.name.to_vec());
                loaded.push(LoadedCode { start, size: symbol.size, name });
            }
            self.ring.ring.advance(size);
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::event::{CpuMode, StackMode};
    use crate::perf::plan::{KernelFeatures, OpenMode};
    use crate::perf::waits::tracer::{WaitConfig, WaitTracer};

    #[test]
    fn kernel_reports_the_code_of_loaded_programs() {
        let common = CommonAttr {
            open_mode: OpenMode::Task,
            scope: CpuMode::Both,
            unwind: StackMode::Dwarf,
            stack_size: 8192,
            features: KernelFeatures::Ksymbol,
            delayed: false,
        };
        let jit = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
        if jit.is_ok_and(|jit| jit.trim() == "0") {
            return eprintln!("SKIPPED: this kernel interprets programs");
        }
        let Some(listener) = CodeListener::open(&common) else {
            return eprintln!("SKIPPED: no reports of code");
        };
        if let Err(error) = WaitTracer::load(WaitConfig::default(), 0) {
            return eprintln!("SKIPPED: {error:#}");
        }
        let code = listener.take();
        let has = |name: &str| {
            code.iter()
                .any(|it| it.name.ends_with(name.as_bytes()) && it.size > 0 && it.start.0 > 0)
        };
        assert!(has("_on_switch") && has("_on_switched_in") && has("_on_task"), "{code:?}");
    }
}
