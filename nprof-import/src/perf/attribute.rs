//! The attributes of an event (`perf_event_attr`): its kind, and the layout of its records. Pure.

use nprof_stream::{Event, Measure};

use super::bytes::Bytes;

/// Bits of `sample_type`, which decide on the fields of a sample.
pub(super) mod sample_type {
    pub(in super::super) const IP: u64 = 1;
    pub(in super::super) const TID: u64 = 1 << 1;
    pub(in super::super) const TIME: u64 = 1 << 2;
    pub(in super::super) const ADDR: u64 = 1 << 3;
    pub(in super::super) const READ: u64 = 1 << 4;
    pub(in super::super) const CALLCHAIN: u64 = 1 << 5;
    pub(in super::super) const ID: u64 = 1 << 6;
    pub(in super::super) const CPU: u64 = 1 << 7;
    pub(in super::super) const PERIOD: u64 = 1 << 8;
    pub(in super::super) const STREAM_ID: u64 = 1 << 9;
    pub(in super::super) const RAW: u64 = 1 << 10;
    pub(in super::super) const BRANCH_STACK: u64 = 1 << 11;
    pub(in super::super) const REGS_USER: u64 = 1 << 12;
    pub(in super::super) const STACK_USER: u64 = 1 << 13;
    pub(in super::super) const IDENTIFIER: u64 = 1 << 16;
}

/// The bits of the flags that matter here.
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const FREQ: u64 = 1 << 10;
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// The depth of call chains if the attributes state none (`kernel.perf_event_max_stack`).
const MAX_STACK: u16 = 127;

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attribute {
    kind: u32,
    config: u64,
    period: u64,
    flags: u64,
    /// The fields of its samples.
    pub(super) sample_type: u64,
    /// The layout of counts in samples.
    pub(super) read_format: u64,
    /// The layout of branches in samples.
    pub(super) branch_type: u64,
    /// The registers in samples.
    pub(super) user_registers: u64,
    /// The depth at which the kernel cuts call chains.
    pub(super) max_stack: u16,
    /// The ids of its records.
    pub(super) ids: Vec<u64>,
    /// Its name; empty if unknown.
    pub(super) name: Vec<u8>,
}

impl Attribute {
    /// Decodes the attributes; those of older versions are shorter. None if they are truncated.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut at = Bytes(bytes);
        let kind = at.u32()?;
        let size = at.u32()?;
        let (config, period) = (at.u64()?, at.u64()?);
        let (sample_type, read_format, flags) = (at.u64()?, at.u64()?, at.u64()?);
        // Offset 108 since version 5; a version is identified by its size.
        let size = usize::try_from(size).ok()?.min(bytes.len());
        let max_stack = bytes.get(108..110).filter(|_| size >= 110);
        let max_stack = max_stack.and_then(|bytes| Bytes(bytes).u16()).filter(|&max| max > 0);
        let max_stack = max_stack.unwrap_or(MAX_STACK);
        // Older versions have neither.
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).filter(|_| size >= at + 8);
            word.and_then(|word| Bytes(word).u64()).unwrap_or(0)
        };
        let (branch_type, user_registers) = (word(72), word(80));
        let (ids, name) = (Vec::new(), Vec::new());
        Some(Self {
            kind,
            config,
            period,
            flags,
            sample_type,
            read_format,
            branch_type,
            user_registers,
            max_stack,
            ids,
            name,
        })
    }

    /// True if samples have these fields.
    pub(super) fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// True if records other than samples end with an identification.
    pub(super) fn has_sample_id(&self) -> bool {
        self.flags & SAMPLE_ID_ALL != 0
    }

    /// True if samples have a copy of the user stack (`--call-graph dwarf`).
    pub(super) fn has_stack_copies(&self) -> bool {
        self.has(sample_type::STACK_USER)
    }

    /// Returns the weight of samples that state none.
    pub(super) fn fixed_period(&self) -> u64 {
        if self.flags & FREQ == 0 { self.period.max(1) } else { 1 }
    }

    /// Returns the event for the stream.
    pub(super) fn event(&self) -> Event {
        let measure = match (self.kind, self.config) {
            // PERF_TYPE_SOFTWARE: cpu-clock and task-clock count nanoseconds.
            (1, 0 | 1) => Measure::CpuTime,
            // PERF_TYPE_HARDWARE: cycles.
            (0, 0) => Measure::Cycles,
            _ => Measure::Count,
        };
        let scope: &[u8] = match (self.flags & EXCLUDE_USER != 0, self.flags & EXCLUDE_KERNEL != 0)
        {
            (false, false) => b"user+kernel",
            (false, true) => b"user",
            (true, false) => b"kernel",
            (true, true) => b"",
        };
        let is_frequency = self.flags & FREQ != 0;
        let unwind: &[u8] =
            match (self.has(sample_type::CALLCHAIN), self.has(sample_type::STACK_USER)) {
                (false, _) => b"none",
                (true, false) => b"fp",
                (true, true) => b"dwarf",
            };
        Event {
            name: self.plain_name(),
            unit: measure.unit().into(),
            measure,
            period: Some(self.period).filter(|&period| !is_frequency && period > 0),
            frequency: Some(self.period).filter(|&frequency| is_frequency && frequency > 0),
            scope: scope.to_vec(),
            unwind: unwind.to_vec(),
            ..Event::default()
        }
    }

    /// Returns the name without modifiers: `cycles:P` and `cpu-clock:pppH` are `cycles` and `cpu-clock`.
    fn plain_name(&self) -> Vec<u8> {
        let names: [&[u8]; 2] = [b"cpu-clock", b"task-clock"];
        if self.name.is_empty() {
            let known = usize::try_from(self.config).ok().and_then(|config| names.get(config));
            return match (self.kind, known) {
                (1, Some(name)) => name.to_vec(),
                _ => format!("type={},config={:#x}", self.kind, self.config).into_bytes(),
            };
        }
        let at = self.name.iter().rposition(|&byte| byte == b':');
        let is_modifier = |byte: &u8| b"ukhHGSDpPIWeb".contains(byte);
        match at {
            // A tracepoint has a colon between its system and its name (PERF_TYPE_TRACEPOINT is 2).
            Some(at) if self.kind != 2 && self.name[at + 1..].iter().all(is_modifier) => {
                self.name[..at].to_vec()
            }
            _ => self.name.clone(),
        }
    }
}
