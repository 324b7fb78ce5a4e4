//! The attributes of the events of a plan: `struct perf_event_attr` of
//! include/uapi/linux/perf_event.h. Pure.

use nprof_unwind::arch;
use perf_event_open_sys::bindings as perf;
use perf_event_open_sys::bindings::perf_event_attr;

use crate::event::{CpuMode, Interrupt, PerfEventConfig, SamplingPeriod, StackMode, WeightField};
use crate::perf::event_counts;
use crate::perf::plan::{CommonAttr, KernelFeatures, OpenMode};

impl CommonAttr {
    /// Returns the attributes that all events have in common, for code of the CPU mode `scope`.
    fn base_attr(&self, scope: CpuMode) -> perf_event_attr {
        let mut attr =
            perf_event_attr { size: size_of::<perf_event_attr>() as u32, ..Default::default() };
        attr.sample_type = u64::from(
            perf::PERF_SAMPLE_IDENTIFIER
                | perf::PERF_SAMPLE_TID
                | perf::PERF_SAMPLE_TIME
                | perf::PERF_SAMPLE_CPU,
        );
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set_use_clockid(1);
        attr.set_disabled(1);
        // Adds the sample id to records that are no samples.
        attr.set_sample_id_all(1);
        attr.set_watermark(1);
        attr.set_exclude_kernel(u64::from(scope == CpuMode::User));
        attr.set_exclude_hv(u64::from(scope == CpuMode::User));
        attr.set_exclude_user(u64::from(scope == CpuMode::Kernel));
        if self.counts_lost() {
            attr.read_format = event_counts::LOST;
        }
        if self.open_mode == OpenMode::Task {
            attr.set_inherit(1);
        }
        attr
    }

    /// Returns the attributes of the sideband event (mmap, comm, fork, exit). It has a ring of its
    /// own, so that samples never displace the mappings needed to resolve them. The kernel wakes us
    /// when `watermark` bytes are in it.
    ///
    /// Build IDs are not requested: `perf_event_mmap_output` (kernel/events/core.c, seen up to
    /// Linux 6.18) leaves the build ID flag set in the record for every later listener, and a
    /// perf(1) that runs at the same time and has not requested them then reads past its buffer
    /// and aborts.
    pub(crate) fn sideband_attr(&self, watermark: u32) -> perf_event_attr {
        let mut attr = self.base_attr(self.scope);
        attr.set_enable_on_exec(u64::from(self.open_mode == OpenMode::Task));
        attr.type_ = perf::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(perf::PERF_COUNT_SW_DUMMY);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_ksymbol(u64::from(
            self.features >= KernelFeatures::Ksymbol && self.scope != CpuMode::User,
        ));
        attr.__bindgen_anon_2.wakeup_watermark = watermark;
        attr
    }

    /// Returns the attributes of the event that reports the code that its thread makes the kernel
    /// generate.
    pub(crate) fn code_attr(&self) -> perf_event_attr {
        let mut attr = self.base_attr(self.scope);
        attr.set_disabled(0);
        attr.set_inherit(0);
        attr.type_ = perf::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(perf::PERF_COUNT_SW_DUMMY);
        attr.set_ksymbol(1);
        attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
        attr
    }

    /// Returns the attributes of the event that reports context switches. It wakes no reader: its ring is
    /// read at short intervals.
    pub(crate) fn switch_attr(&self) -> perf_event_attr {
        let mut attr = self.base_attr(self.scope);
        attr.set_enable_on_exec(u64::from(self.open_mode == OpenMode::Task && !self.delayed));
        attr.type_ = perf::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(perf::PERF_COUNT_SW_DUMMY);
        attr.set_context_switch(1);
        attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
        attr
    }

    /// Returns the attributes of the event that writes stack chunks into the ring of samples.
    pub(crate) fn chunk_attr(&self, watermark: u32) -> perf_event_attr {
        let mut attr = self.base_attr(self.scope);
        // It belongs to the CPU: the program writes to it on behalf of any task.
        attr.set_disabled(0);
        attr.set_inherit(0);
        attr.type_ = perf::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(perf::PERF_COUNT_SW_BPF_OUTPUT);
        attr.sample_type |= u64::from(perf::PERF_SAMPLE_IP | perf::PERF_SAMPLE_RAW);
        attr.__bindgen_anon_1.sample_period = 1;
        attr.__bindgen_anon_2.wakeup_watermark = watermark;
        attr
    }

    /// Returns the attributes of the event that writes samples of waits, with the stacks of threads
    /// that are switched in.
    pub(crate) fn wait_attr(&self, scope: CpuMode, watermark: u32) -> perf_event_attr {
        let mut attr = self.chunk_attr(watermark);
        self.with_bpf_copier().set_stack(&mut attr, scope);
        if self.needs_chain_for_leaf() {
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_CALLCHAIN);
            attr.set_exclude_callchain_kernel(u64::from(scope == CpuMode::User));
            attr.set_exclude_callchain_user(1);
        }
        attr
    }

    /// Returns the attributes of the event that writes samples of calls.
    pub(crate) fn call_attr(&self, scope: CpuMode, watermark: u32) -> perf_event_attr {
        let mut attr = self.chunk_attr(watermark);
        self.with_bpf_copier().set_stack(&mut attr, scope);
        attr
    }

    /// Sets the fields that capture stacks.
    fn set_stack(&self, attr: &mut perf_event_attr, scope: CpuMode) {
        if self.has_callchain() {
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_CALLCHAIN);
            // The kernel's part of a call chain needs rights even if the kernel is not sampled.
            attr.set_exclude_callchain_kernel(u64::from(scope == CpuMode::User));
            attr.set_exclude_callchain_user(u64::from(self.unwind == StackMode::Dwarf));
        }
        if self.unwind == StackMode::Dwarf {
            attr.sample_type |=
                u64::from(perf::PERF_SAMPLE_REGS_USER | perf::PERF_SAMPLE_STACK_USER);
            attr.sample_regs_user = arch::MASK;
            attr.sample_stack_user = self.stack_size;
        }
    }

    /// Returns the bits of `read_format` of a sampling event. Only counters are shared by several events.
    fn read_format(&self, encoding: &PerfEventConfig) -> u64 {
        let lost = if self.counts_lost() { event_counts::LOST } else { 0 };
        let is_counter = encoding.interrupt() == Some(Interrupt::Counter);
        lost | if is_counter { event_counts::TIMES } else { 0 }
    }

    /// Returns the number of words of `read_format` in the samples of an event.
    pub(crate) fn words_in_samples(&self, encoding: &PerfEventConfig) -> usize {
        match self.features {
            KernelFeatures::InheritRead => event_counts::words(self.read_format(encoding)),
            _ => 0,
        }
    }

    /// Returns the attributes of a sampling event. The kernel wakes us when `watermark` bytes are in
    /// its ring.
    pub(crate) fn sample_attr(
        &self,
        encoding: &PerfEventConfig,
        period: SamplingPeriod,
        scope: CpuMode,
        watermark: u32,
    ) -> perf_event_attr {
        let mut attr = self.base_attr(scope);
        encoding.describe(&mut attr);
        if encoding.only_kernel {
            attr.set_exclude_kernel(0);
        }
        match period {
            SamplingPeriod::Fixed(events) => attr.__bindgen_anon_1.sample_period = events,
            SamplingPeriod::Adaptive(hertz) => {
                attr.set_freq(1);
                attr.__bindgen_anon_1.sample_freq = hertz;
            }
        }
        attr.set_enable_on_exec(u64::from(self.open_mode == OpenMode::Task && !self.delayed));
        // The idle task would fill the profile of an idle CPU. Counters stand still there, and those of arm64
        // cannot be opened with this bit (`armv8pmu_set_event_filter` in drivers/perf/arm_pmuv3.c).
        attr.set_exclude_idle(u64::from(attr.type_ == perf::PERF_TYPE_SOFTWARE));
        attr.sample_type |= u64::from(perf::PERF_SAMPLE_IP);
        if period.weight().is_none() {
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_PERIOD);
        }
        attr.read_format = self.read_format(encoding);
        if self.features == KernelFeatures::InheritRead {
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_READ);
        }
        if let Some(WeightField::Traced(_)) = encoding.field {
            attr.sample_type |= u64::from(perf::PERF_SAMPLE_RAW);
        }
        self.set_stack(&mut attr, scope);
        attr.__bindgen_anon_2.wakeup_watermark = watermark;
        attr
    }
}

/// True for an event that the kernel's software counts, such as a page fault. The clocks are timers.
pub(crate) fn is_of_software(attr: &perf_event_attr) -> bool {
    let others = [
        perf::PERF_COUNT_SW_CPU_CLOCK,
        perf::PERF_COUNT_SW_TASK_CLOCK,
        perf::PERF_COUNT_SW_DUMMY,
        perf::PERF_COUNT_SW_BPF_OUTPUT,
    ];
    let is_other = others.iter().any(|&number| u64::from(number) == attr.config);
    attr.type_ == perf::PERF_TYPE_SOFTWARE && !is_other
}
