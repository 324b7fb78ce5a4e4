//! From the bytes of a ring to kernel records, as perf_event_open(2) describes them
//! (include/uapi/linux/perf_event.h). Pure, and nothing is believed: a record that is shorter
//! than its fields is no record.

use nprof_stream::NO_CPU;
use perf_event_open_sys::bindings as perf;

use crate::arch;
use crate::perf::stack_chunks::{ExtraStack, SampleKey, StackChunk};

/// The bytes every record begins with.
pub(crate) const HEADER: usize = 8;

/// Bytes of the trailer of records that are not samples: pid, tid, time, cpu, identifier.
const SAMPLE_ID_BYTES: usize = 32;

/// The fields of the samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    /// What a sample weighs; `None` where it tells.
    pub(crate) weight: Option<u64>,
    /// Words of `read_format`, 0 without PERF_SAMPLE_READ.
    pub(crate) read: usize,
    /// With PERF_SAMPLE_CALLCHAIN.
    pub(crate) callchain: bool,
    /// How many user registers, 0 without PERF_SAMPLE_REGS_USER and PERF_SAMPLE_STACK_USER.
    pub(crate) registers: usize,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    kind: u32,
    misc: u16,
    /// Its length in the ring, header included.
    pub(crate) size: usize,
}

impl Header {
    /// The header that stands at the front of `bytes`; `None` when it cannot be one.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = ByteCursor(bytes);
        let kind = fields.u32()?;
        let misc = fields.u16()?;
        let size = usize::from(fields.u16()?);
        (size >= HEADER).then_some(Self { kind, misc, size })
    }

    /// Whether the record is a sample.
    pub(crate) fn is_sample(self) -> bool {
        self.kind == perf::PERF_RECORD_SAMPLE
    }
}

/// When and where a record was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleId {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// ns on the clock of the session.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

impl SampleId {
    /// For what has no record of its own, with the CPU it happened on.
    pub(crate) fn at(time: u64, cpu: Option<u32>) -> Self {
        Self { time, cpu: cpu.unwrap_or(NO_CPU), ..Self::default() }
    }
}

/// A mapping of executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mmap<'a> {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// The offset in the file of what stands at `start`.
    pub(crate) offset: u64,
    pub(crate) identity: Identity,
    /// As the process sees it; ` (deleted)` at the end when it is unlinked.
    pub(crate) path: &'a [u8],
}

/// What the kernel tells to identify a mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The major and minor number of the device.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    /// The inode's generation: inodes are used again.
    pub(crate) generation: u64,
}

/// A task that came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskIds {
    pub(crate) pid: u32,
    /// For a fork the process that forked, which is `pid` itself for a new thread.
    pub(crate) parent_pid: u32,
    pub(crate) tid: u32,
}

/// Code the kernel made at run time, or made no more: a BPF program, a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ksymbol<'a> {
    pub(crate) start: u64,
    pub(crate) size: u64,
    /// Whether it is not there any more.
    pub(crate) is_unregistered: bool,
    pub(crate) name: &'a [u8],
}

/// An observation. Borrows from the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    pub(crate) ip: u64,
    /// Whether `ip` is in the kernel.
    pub(crate) in_kernel: bool,
    pub(crate) period: u64,
    /// Addresses and PERF_CONTEXT marks, leaf first, little-endian words.
    pub(crate) chain: &'a [u8],
    /// User registers in the order of the mask, if there are any.
    pub(crate) registers: &'a [u8],
    /// Whether the registers are those of a 32-bit process.
    pub(crate) compat: bool,
    /// The user stack, from the stack pointer up, as much as could be copied.
    pub(crate) stack: &'a [u8],
    /// What a program copied beyond that; it is not in the record itself. `None` where none did,
    /// as the event runs no program.
    pub(crate) extra_stack: Option<ExtraStack<'a>>,
}

impl Sample<'_> {
    /// The entries of the call chain, marks included, leaf first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = u64> {
        words(self.chain)
    }

    /// The user's stack pointer, if there is one.
    pub(crate) fn stack_pointer(&self) -> Option<u64> {
        let at = arch::NUMBERS.iter().position(|&number| number == arch::SP)?;
        self.registers().nth(at)
    }

    /// The user registers in the order of their bits in the mask; empty when there are none.
    pub(crate) fn registers(&self) -> impl Iterator<Item = u64> {
        words(self.registers)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// What a record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelRecord<'a> {
    Sample(Sample<'a>),
    Mmap(Mmap<'a>),
    /// A task took this name.
    Comm {
        pid: u32,
        tid: u32,
        exec: bool,
        name: &'a [u8],
    },
    Fork(TaskIds),
    Exit(TaskIds),
    Ksymbol(Ksymbol<'a>),
    /// This many records did not fit into the ring.
    Lost(u64),
    /// This many samples of the event were not made at all.
    LostSamples(u64),
    /// The event was stopped until the next tick of the timer.
    Throttle,
    /// Nothing the recorder needs.
    Other,
}

/// Where the trailer of a record that is no sample begins; `bytes` is the whole record.
///
/// That is at its end, but for code of the kernel that comes or goes: of several who are told of
/// it, the later get records that claim to be longer by the trailers of those before, and end in
/// what was in the ring (perf_event_ksymbol_output in kernel/events/core.c, Linux 6.18, adds to the
/// size for each). There it is behind the name.
fn sample_id_offset(header: Header, bytes: &[u8]) -> Option<usize> {
    if header.kind != perf::PERF_RECORD_KSYMBOL {
        return bytes.len().checked_sub(SAMPLE_ID_BYTES);
    }
    let name = HEADER + 16;
    let length = bytes.get(name..)?.iter().position(|&byte| byte == 0)? + 1;
    Some(name + length.next_multiple_of(8))
}

/// When a record was made, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn time(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER + 24 } else { sample_id_offset(header, bytes)? + 8 };
    ByteCursor(bytes.get(at..)?).u64()
}

/// Which thread made a record, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn task(header: Header, bytes: &[u8]) -> Option<u32> {
    let at = if header.is_sample() { HEADER + 20 } else { sample_id_offset(header, bytes)? + 4 };
    ByteCursor(bytes.get(at..)?).u32()
}

/// The id of the event that made a record, as [`crate::sys::event_id`] gives it.
pub(crate) fn event_id(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER } else { sample_id_offset(header, bytes)? + 24 };
    ByteCursor(bytes.get(at..)?).u64()
}

/// Reads a whole record; `None` when it is not what its header says.
pub(crate) fn read<'a>(
    layout: SampleLayout,
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

/// Reads a sample of the event that writes parts of stacks: PERF_SAMPLE_RAW behind what all
/// samples have.
pub(crate) fn read_chunk(bytes: &[u8]) -> Option<(SampleKey, StackChunk<'_>)> {
    let mut fields = ByteCursor(bytes.get(HEADER..)?);
    let _identifier = fields.u64()?;
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
        perf::PERF_RECORD_FORK | perf::PERF_RECORD_EXIT => {
            let (pid, parent_pid, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
            let ids = TaskIds { pid, parent_pid, tid };
            if header.kind == perf::PERF_RECORD_FORK {
                KernelRecord::Fork(ids)
            } else {
                KernelRecord::Exit(ids)
            }
        }
        perf::PERF_RECORD_LOST => {
            let _id = fields.u64()?;
            KernelRecord::Lost(fields.u64()?)
        }
        perf::PERF_RECORD_LOST_SAMPLES => KernelRecord::LostSamples(fields.u64()?),
        perf::PERF_RECORD_KSYMBOL => KernelRecord::Ksymbol(read_ksymbol(fields)?),
        perf::PERF_RECORD_THROTTLE => KernelRecord::Throttle,
        _ => KernelRecord::Other,
    })
}

fn read_mmap(mut fields: ByteCursor<'_>) -> Option<Mmap<'_>> {
    let (pid, _tid) = (fields.u32()?, fields.u32()?);
    let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    // Never a build ID: that was not asked for. The header may say so all the same, where another
    // recorder asked (see `Common::side_attr`).
    let identity = Identity {
        device: (fields.u32()?, fields.u32()?),
        inode: fields.u64()?,
        generation: fields.u64()?,
    };
    let (_protection, _flags) = (fields.u32()?, fields.u32()?);
    Some(Mmap { pid, start, length, offset, identity, path: fields.string() })
}

fn read_ksymbol(mut fields: ByteCursor<'_>) -> Option<Ksymbol<'_>> {
    let (start, size) = (fields.u64()?, u64::from(fields.u32()?));
    let (_kind, flags) = (fields.u16()?, fields.u16()?);
    let is_unregistered = flags & perf::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER as u16 != 0;
    Some(Ksymbol { start, size, is_unregistered, name: fields.string() })
}

fn read_sample(
    layout: SampleLayout,
    header: Header,
    mut fields: ByteCursor<'_>,
) -> Option<(SampleId, KernelRecord<'_>)> {
    let _identifier = fields.u64()?;
    let ip = fields.u64()?;
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let time = fields.u64()?;
    let (cpu, _reserved) = (fields.u32()?, fields.u32()?);
    let period = match layout.weight {
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
    let (mut registers, mut stack, mut compat) = (&[][..], &[][..], false);
    if layout.registers > 0 {
        let abi = fields.u64()?;
        if abi != u64::from(perf::PERF_SAMPLE_REGS_ABI_NONE) {
            registers = fields.take(layout.registers * 8)?;
            compat = abi == u64::from(perf::PERF_SAMPLE_REGS_ABI_32);
        }
        let size = usize::try_from(fields.u64()?).ok()?;
        if size > 0 {
            let copy = fields.take(size)?;
            let filled = usize::try_from(fields.u64()?).ok()?;
            stack = copy.get(..filled)?;
        }
    }
    let mode = u32::from(header.misc) & perf::PERF_RECORD_MISC_CPUMODE_MASK;
    let in_kernel = mode == perf::PERF_RECORD_MISC_KERNEL;
    let sample =
        Sample { ip, in_kernel, period, chain, registers, compat, stack, extra_stack: None };
    Some((SampleId { pid, tid, time, cpu }, KernelRecord::Sample(sample)))
}

/// Fields in the order they stand, little-endian.
struct ByteCursor<'a>(&'a [u8]);

impl<'a> ByteCursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
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

    /// What is left, up to the first NUL.
    fn string(&self) -> &'a [u8] {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..length]
    }
}

#[cfg(test)]
mod tests;
