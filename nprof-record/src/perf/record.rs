//! Decodes the records of a ring (perf_event_open(2), include/uapi/linux/perf_event.h). Pure. No
//! field is trusted: a record shorter than its fields is rejected.

use std::ops::Range;

use nprof_object::{FileOffset, RuntimeAddress};
use nprof_stream::NO_CPU;
use nprof_unwind::unwind::stack_input::{CopiedStack, StackInput, UserStack, Words};
use perf_event_open_sys::bindings as perf;

use crate::event::WeightField;
use crate::os::code_mapping::{Identity, Ksymbol, Mmap};
use crate::perf::calls::data::{Call, CallRest, RoutineCount, TakenOff};
use crate::perf::preloaded::PreloadRecord;
use crate::perf::stack_chunks::{CHUNK_HEADER_BYTES, ExtraStack, SampleKey, StackChunk};
use crate::perf::waits::data::{Peek, ThreadNote, Wait, WaitState, WaitingThread, Wake};

/// Bytes of the header of a record.
pub(crate) const HEADER: usize = 8;

/// Bytes of `sample_id` at the end of other records than samples: pid, tid, time, cpu, event id.
const SAMPLE_ID_BYTES: usize = 32;

/// The fields of the samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    /// The weight of each sample; `None` if each sample states its own (PERF_SAMPLE_PERIOD).
    pub(crate) weight: Option<u64>,
    /// Words of `read_format`; 0 without PERF_SAMPLE_READ.
    pub(crate) read: usize,
    /// True with PERF_SAMPLE_CALLCHAIN.
    pub(crate) callchain: bool,
    /// Number of user registers; 0 without PERF_SAMPLE_REGS_USER and PERF_SAMPLE_STACK_USER.
    pub(crate) registers: usize,
    pub(crate) raw: RawData,
    /// The field that the weight comes from, in place of the period.
    pub(crate) field: Option<WeightField>,
}

/// The meaning of PERF_SAMPLE_RAW, which BPF programs write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RawData {
    #[default]
    None,
    /// A wait that has ended; the sample has its stack.
    Wait,
    /// A note on a thread.
    Note,
    /// A wake-up; the sample has the stack of the waker.
    Wake,
    /// A call; the sample has its stack.
    Call,
}

/// A moment at which the threads that waited were looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) time_ns: u64,
    /// The latest time at which it could have been: it was chosen at random, after the one before.
    pub(crate) latest_ns: u64,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u32,
    misc: u16,
    /// Bytes of the record in the ring, header included.
    pub(crate) size: usize,
}

impl Header {
    /// Reads the header at the start of `bytes`. None if it cannot be one.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let &[k0, k1, k2, k3, m0, m1, s0, s1] = bytes.first_chunk::<HEADER>()?;
        let kind = u32::from_le_bytes([k0, k1, k2, k3]);
        let (misc, size) = (u16::from_le_bytes([m0, m1]), u16::from_le_bytes([s0, s1]));
        let size = usize::from(size);
        (size >= HEADER).then_some(Self { kind, misc, size })
    }

    /// True if the record is a sample.
    pub(crate) fn is_sample(self) -> bool {
        self.kind == perf::PERF_RECORD_SAMPLE
    }
}

/// The time, CPU and thread of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleId {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// CLOCK_MONOTONIC, in ns.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

impl SampleId {
    /// Returns the id of an event that no record reports.
    pub(crate) fn at(time: u64, cpu: Option<u32>) -> Self {
        Self { time, cpu: cpu.unwrap_or(NO_CPU), ..Self::default() }
    }
}

/// The ids of a task that was created or has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskIds {
    pub(crate) pid: u32,
    /// For a fork the process that forked, which is `pid` itself for a new thread.
    pub(crate) parent_pid: u32,
    pub(crate) tid: u32,
}

/// A sample. Borrows from the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    pub(crate) weight: u64,
    pub(crate) stack: StackInput<'a>,
    /// The part of the stack that a BPF program copied; it is not in the record itself. `None` if
    /// the event runs no program.
    pub(crate) extra_stack: Option<ExtraStack<'a>>,
    /// The wait at the end of which it was taken; `None` for samples of other events.
    pub(crate) wait: Option<Wait>,
}

impl<'a> Sample<'a> {
    /// Returns the copy of the user stack. None if it was not copied.
    pub(crate) fn copied_stack(&self) -> Option<&CopiedStack<'a>> {
        match &self.stack.user {
            UserStack::Copied(copied) => Some(copied),
            _ => None,
        }
    }

    /// Adds the part of the stack that a BPF program copied.
    pub(crate) fn set_extra_stack(&mut self, extra_stack: ExtraStack<'a>) {
        self.extra_stack = Some(extra_stack);
        if let UserStack::Copied(copied) = &mut self.stack.user {
            copied.segments = extra_stack.segments;
        }
    }
}

/// A context switch of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    /// It runs from now on.
    In,
    /// It waits from now on for something else than a CPU.
    Blocked,
    /// It could go on running, and waits for a CPU.
    Preempted,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelRecord<'a> {
    Sample(Sample<'a>),
    /// A sample of which the field that weighs it is zero or negative.
    NotPositive {
        is_negative: bool,
    },
    /// A wake-up, with a sample of the waker.
    Wake(Sample<'a>, Wake),
    /// A call of a function that is counted.
    Call(Sample<'a>, Call),
    /// Calls of the thread that have no sample.
    CallRest(CallRest),
    /// Events of the thread by routine.
    RoutineCount(RoutineCount),
    /// A function that is not counted any more.
    TakenOff(TakenOff),
    /// The calls of functions of the kernel that were not counted.
    MissedCalls(u64),
    /// A record of the preloaded library.
    Preloaded(PreloadRecord<'a>),
    /// A note on the thread by the programs that measure waiting.
    Note(ThreadNote),
    /// The thread was switched in or out.
    Switch(Switch),
    /// A moment at which the threads that waited were looked at. The first is the start of sampling.
    Tick(Tick),
    /// The state of a thread at the start of sampling.
    Existing(WaitState),
    /// The place at which a blocked thread waits.
    Peek(&'a Peek),
    /// The start of a window in which waits are recorded, with its times.
    WindowOpened(Range<u64>),
    /// The end of a window, with the threads that wait.
    WindowClosed(&'a [WaitingThread]),
    Mmap(Mmap<'a>),
    /// A task changed its name, by execve(2) or prctl(2).
    Comm {
        pid: u32,
        tid: u32,
        exec: bool,
        name: &'a [u8],
    },
    Fork(TaskIds),
    Exit(TaskIds),
    Ksymbol(Ksymbol<'a>),
    /// The number of records that did not fit into the ring.
    Lost(u64),
    /// The number of samples of the event that the kernel dropped before writing them.
    LostSamples(u64),
    /// The event was stopped until the next timer tick.
    Throttle,
    /// A record without meaning for the recorder.
    Other,
}

/// Returns the offset of `sample_id` in a record that is no sample. `bytes` is the whole record.
///
/// It lies at the end, except in PERF_RECORD_KSYMBOL: `perf_event_ksymbol_output`
/// (kernel/events/core.c, Linux 6.18) adds its length to the header once for each listening event,
/// so later listeners get records that claim to be longer, with stale bytes of the ring at the
/// end. There it follows the name.
fn sample_id_offset(header: Header, bytes: &[u8]) -> Option<usize> {
    if header.kind != perf::PERF_RECORD_KSYMBOL {
        return bytes.len().checked_sub(SAMPLE_ID_BYTES);
    }
    let name = HEADER + 16;
    let length = bytes.get(name..)?.iter().position(|&byte| byte == 0)? + 1;
    Some(name + length.next_multiple_of(8))
}

/// Returns the time of a record without decoding the rest. `bytes` is the whole record.
#[inline]
pub(crate) fn time(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER + 24 } else { sample_id_offset(header, bytes)? + 8 };
    ByteCursor(bytes.get(at..)?).u64()
}

/// Returns the thread of a record without decoding the rest. `bytes` is the whole record.
#[inline]
pub(crate) fn task(header: Header, bytes: &[u8]) -> Option<u32> {
    let at = if header.is_sample() { HEADER + 20 } else { sample_id_offset(header, bytes)? + 4 };
    ByteCursor(bytes.get(at..)?).u32()
}

/// Returns the id of the event that wrote a record, see [`crate::sys::event_id`].
#[inline]
pub(crate) fn event_id(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER } else { sample_id_offset(header, bytes)? + 24 };
    ByteCursor(bytes.get(at..)?).u64()
}

/// Decodes a record. None if it is shorter than its fields.
pub(crate) fn read<'a>(
    layout: &SampleLayout,
    bytes: &'a [u8],
) -> Option<(SampleId, KernelRecord<'a>)> {
    let header = Header::read(bytes)?;
    let bytes = bytes.get(..header.size)?;
    if header.is_sample() {
        return read_sample(layout, header, ByteCursor(&bytes[HEADER..]));
    }
    let at = sample_id_offset(header, bytes)?;
    let sample_id = read_sample_id(ByteCursor(bytes.get(at..)?))?;
    Some((sample_id, read_other(header, ByteCursor(bytes.get(HEADER..at)?))?))
}

/// The offset of the stack in the record of a stack chunk, see [`read_chunk`].
pub(crate) const CHUNK_OFFSET: usize = HEADER + 44 + CHUNK_HEADER_BYTES;

/// Decodes a sample of the event that writes stack chunks: PERF_SAMPLE_RAW follows the fields that
/// all samples have.
pub(crate) fn read_chunk(bytes: &[u8]) -> Option<(SampleKey, StackChunk<'_>)> {
    let mut fields = ByteCursor(bytes.get(HEADER..)?);
    let _event_id = fields.u64()?;
    let ip = fields.u64()?;
    let (_pid, tid) = (fields.u32()?, fields.u32()?);
    let _time = fields.u64()?;
    let (_cpu, _reserved) = (fields.u32()?, fields.u32()?);
    let size = usize::try_from(fields.u32()?).ok()?;
    Some((SampleKey { tid, ip }, StackChunk::read(fields.take(size)?)?))
}

fn read_sample_id(mut fields: ByteCursor<'_>) -> Option<SampleId> {
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let time = fields.u64()?;
    let cpu = fields.u32()?;
    Some(SampleId { pid, tid, time, cpu })
}

fn read_other<'a>(header: Header, mut fields: ByteCursor<'a>) -> Option<KernelRecord<'a>> {
    Some(match header.kind {
        perf::PERF_RECORD_MMAP2 => KernelRecord::Mmap(read_mmap(fields)?),
        perf::PERF_RECORD_COMM => {
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let exec = header.misc & perf::PERF_RECORD_MISC_COMM_EXEC as u16 != 0;
            KernelRecord::Comm { pid, tid, exec, name: fields.string() }
        }
        perf::PERF_RECORD_FORK => KernelRecord::Fork(read_task_ids(fields)?),
        perf::PERF_RECORD_EXIT => KernelRecord::Exit(read_task_ids(fields)?),
        perf::PERF_RECORD_LOST => {
            let _event_id = fields.u64()?;
            KernelRecord::Lost(fields.u64()?)
        }
        perf::PERF_RECORD_LOST_SAMPLES => KernelRecord::LostSamples(fields.u64()?),
        perf::PERF_RECORD_KSYMBOL => KernelRecord::Ksymbol(read_ksymbol(fields)?),
        perf::PERF_RECORD_SWITCH | perf::PERF_RECORD_SWITCH_CPU_WIDE => {
            let has = |bit: u32| u32::from(header.misc) & bit != 0;
            KernelRecord::Switch(if !has(perf::PERF_RECORD_MISC_SWITCH_OUT) {
                Switch::In
            } else if has(perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) {
                Switch::Preempted
            } else {
                Switch::Blocked
            })
        }
        perf::PERF_RECORD_THROTTLE => KernelRecord::Throttle,
        _ => KernelRecord::Other,
    })
}

fn read_task_ids(mut fields: ByteCursor<'_>) -> Option<TaskIds> {
    let (pid, parent_pid, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
    Some(TaskIds { pid, parent_pid, tid })
}

fn read_mmap(mut fields: ByteCursor<'_>) -> Option<Mmap<'_>> {
    let (pid, _tid) = (fields.u32()?, fields.u32()?);
    let (start, length) = (RuntimeAddress(fields.u64()?), fields.u64()?);
    let offset = FileOffset(fields.u64()?);
    // Never a build ID, since we do not request it. PERF_RECORD_MISC_MMAP_BUILD_ID may be set all
    // the same if another recorder does (see `CommonAttr::sideband_attr`).
    let identity = Identity {
        device: (fields.u32()?, fields.u32()?),
        inode: fields.u64()?,
        generation: fields.u64()?,
    };
    let (_protection, _flags) = (fields.u32()?, fields.u32()?);
    Some(Mmap { pid, start, length, offset, identity, path: fields.string().into() })
}

fn read_ksymbol(mut fields: ByteCursor<'_>) -> Option<Ksymbol<'_>> {
    let (start, size) = (RuntimeAddress(fields.u64()?), u64::from(fields.u32()?));
    let (_kind, flags) = (fields.u16()?, fields.u16()?);
    let is_unregistered = flags & perf::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER as u16 != 0;
    Some(Ksymbol { start, size, is_unregistered, name: fields.string() })
}

fn read_sample<'a>(
    layout: &SampleLayout,
    header: Header,
    mut fields: ByteCursor<'a>,
) -> Option<(SampleId, KernelRecord<'a>)> {
    let &[_event_id, ip, thread, time, cpu] = fields.words::<5>()?;
    let [ip, thread, time, cpu] = [ip, thread, time, cpu].map(u64::from_le_bytes);
    // Two fields of 32 bits each; the upper part of the CPU is reserved.
    let (pid, tid, cpu) = (thread as u32, (thread >> 32) as u32, cpu as u32);
    let mut weight = match layout.weight {
        Some(weight) => weight,
        None => fields.u64()?,
    };
    fields.take(layout.read * 8)?;
    let chain = if layout.callchain {
        let count = usize::try_from(fields.u64()?).ok()?;
        fields.take(count.checked_mul(8)?)?
    } else {
        &[]
    };
    let mode = u32::from(header.misc) & perf::PERF_RECORD_MISC_CPUMODE_MASK;
    let in_kernel = mode == perf::PERF_RECORD_MISC_KERNEL;
    let (mut wait, mut wake, mut call) = (None, None, None);
    if layout.raw != RawData::None {
        let size = usize::try_from(fields.u32()?).ok()?;
        let raw = fields.take(size)?;
        let sample_id = SampleId { pid, tid, time, cpu };
        match layout.raw {
            RawData::Note => return Some((sample_id, KernelRecord::Note(ThreadNote::read(raw)?))),
            RawData::Wake => wake = Some(Wake::read(raw)?),
            RawData::Call => call = Some(Call::read(raw)?),
            _ => wait = Some(Wait::read(raw)?),
        }
    }
    let mut value = None;
    if let Some(WeightField::Traced(field)) = layout.field {
        let size = usize::try_from(fields.u32()?).ok()?;
        value = Some(field.value(fields.take(size)?)?);
    }
    // The user part is either copied or walked by the kernel, see `CommonAttr::sample_attr`.
    let user = if layout.registers > 0 {
        UserStack::Copied(read_copied_stack(layout, &mut fields)?)
    } else if layout.callchain {
        UserStack::Walked(part_of_chain(chain, perf::PERF_CONTEXT_USER))
    } else {
        UserStack::NotCaptured
    };
    if let Some(WeightField::Register(at)) = layout.field {
        let UserStack::Copied(copied) = &user else { return None };
        value = Some(copied.registers.iter().nth(at)? as i64);
    }
    if let Some(value) = value {
        match u64::try_from(value) {
            Ok(positive) if positive > 0 => weight = positive,
            refused => {
                let not_positive = KernelRecord::NotPositive { is_negative: refused.is_err() };
                return Some((SampleId { pid, tid, time, cpu }, not_positive));
            }
        }
    }
    let kernel = match in_kernel {
        true => part_of_chain(chain, perf::PERF_CONTEXT_KERNEL),
        false => Words::default(),
    };
    let stack = StackInput { ip, in_kernel, kernel, user };
    let sample = Sample { weight, stack, extra_stack: None, wait };
    let record = match (wake, call) {
        (Some(wake), _) => KernelRecord::Wake(sample, wake),
        (None, Some(call)) => KernelRecord::Call(sample, call),
        (None, None) => KernelRecord::Sample(sample),
    };
    Some((SampleId { pid, tid, time, cpu }, record))
}

fn read_copied_stack<'a>(
    layout: &SampleLayout,
    fields: &mut ByteCursor<'a>,
) -> Option<CopiedStack<'a>> {
    let mut copied = CopiedStack::default();
    let abi = fields.u64()?;
    if abi != u64::from(perf::PERF_SAMPLE_REGS_ABI_NONE) {
        copied.registers = Words(fields.take(layout.registers * 8)?);
        copied.is_compat = abi == u64::from(perf::PERF_SAMPLE_REGS_ABI_32);
    }
    let size = usize::try_from(fields.u64()?).ok()?;
    // The size of the copy that was filled follows the copy, but only if there is one.
    if size > 0 {
        let copy = fields.take(size)?;
        copied.requested_bytes = size;
        let filled = usize::try_from(fields.u64()?).ok()?;
        copied.bytes = copy.get(..filled)?;
    }
    Some(copied)
}

/// Returns the addresses of a call chain that follow the mark `context`, up to the next mark.
fn part_of_chain(chain: &[u8], context: u64) -> Words<'_> {
    let mut entries = Words(chain).iter();
    let Some(mark) = entries.position(|entry| entry == context) else { return Words::default() };
    let length = entries.take_while(|&entry| entry < perf::PERF_CONTEXT_MAX).count();
    let start = (mark + 1) * 8;
    Words(chain.get(start..start + length * 8).unwrap_or_default())
}

/// Reads little-endian fields one after the other.
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes words that are not decoded yet.
    #[inline]
    fn words<const N: usize>(&mut self) -> Option<&'a [[u8; 8]; N]> {
        let (words, _) = self.0.as_chunks::<8>();
        let taken = words.first_chunk::<N>()?;
        self.0 = &self.0[N * 8..];
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Returns the rest up to the first NUL.
    fn string(&self) -> &'a [u8] {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..length]
    }
}

#[cfg(test)]
mod tests;
