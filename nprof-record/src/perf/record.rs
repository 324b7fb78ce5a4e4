//! From the bytes of a ring to kernel records, as perf_event_open(2) describes them
//! (include/uapi/linux/perf_event.h). Pure, and nothing is believed: a record that is shorter
//! than its fields is no record.

use nprof_stream::NO_CPU;
use perf_event_open_sys::bindings as perf;

use crate::arch;
use crate::perf::stack_chunks::{Extension, Owner, Part};

/// The bytes every record begins with.
pub(crate) const HEADER: usize = 8;

/// Bytes of the trailer of records that are not samples: pid, tid, time, cpu, identifier.
const TRAILER: usize = 32;

/// The fields of the samples of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
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
        let mut fields = Fields(bytes);
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
pub(crate) struct Stamp {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// ns on the clock of the session.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
}

impl Stamp {
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
pub(crate) struct Kin {
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
    pub(crate) is_gone: bool,
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
    pub(crate) extension: Option<Extension<'a>>,
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
pub(crate) enum Body<'a> {
    Sample(Sample<'a>),
    Mmap(Mmap<'a>),
    /// A task took this name.
    Comm {
        pid: u32,
        tid: u32,
        exec: bool,
        name: &'a [u8],
    },
    Fork(Kin),
    Exit(Kin),
    Ksymbol(Ksymbol<'a>),
    /// This many records did not fit into the ring.
    Lost(u64),
    /// This many samples of the event were not made at all.
    Unmade(u64),
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
fn trailer(header: Header, bytes: &[u8]) -> Option<usize> {
    if header.kind != perf::PERF_RECORD_KSYMBOL {
        return bytes.len().checked_sub(TRAILER);
    }
    let name = HEADER + 16;
    let length = bytes.get(name..)?.iter().position(|&byte| byte == 0)? + 1;
    Some(name + length.next_multiple_of(8))
}

/// When a record was made, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn time(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER + 24 } else { trailer(header, bytes)? + 8 };
    Fields(bytes.get(at..)?).u64()
}

/// Which thread made a record, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn task(header: Header, bytes: &[u8]) -> Option<u32> {
    let at = if header.is_sample() { HEADER + 20 } else { trailer(header, bytes)? + 4 };
    Fields(bytes.get(at..)?).u32()
}

/// The id of the event that made a record, as [`crate::sys::event_id`] gives it.
pub(crate) fn identifier(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER } else { trailer(header, bytes)? + 24 };
    Fields(bytes.get(at..)?).u64()
}

/// Reads a whole record; `None` when it is not what its header says.
pub(crate) fn read<'a>(layout: Layout, bytes: &'a [u8]) -> Option<(Stamp, Body<'a>)> {
    let header = Header::read(bytes)?;
    let bytes = bytes.get(..header.size)?;
    if header.is_sample() {
        return read_sample(layout, header, Fields(&bytes[HEADER..]));
    }
    let at = trailer(header, bytes)?;
    let stamp = read_trailer(Fields(bytes.get(at..)?))?;
    Some((stamp, read_other(header, Fields(bytes.get(HEADER..at)?))?))
}

/// Reads a sample of the event that writes parts of stacks: PERF_SAMPLE_RAW behind what all
/// samples have.
pub(crate) fn read_part(bytes: &[u8]) -> Option<(Owner, Part<'_>)> {
    let mut fields = Fields(bytes.get(HEADER..)?);
    let _identifier = fields.u64()?;
    let ip = fields.u64()?;
    let (_pid, tid) = (fields.u32()?, fields.u32()?);
    let _time = fields.u64()?;
    let (_cpu, _reserved) = (fields.u32()?, fields.u32()?);
    let size = usize::try_from(fields.u32()?).ok()?;
    Some((Owner { tid, ip }, Part::read(fields.take(size)?)?))
}

fn read_trailer(mut fields: Fields<'_>) -> Option<Stamp> {
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let time = fields.u64()?;
    let cpu = fields.u32()?;
    Some(Stamp { pid, tid, time, cpu })
}

fn read_other<'a>(header: Header, mut fields: Fields<'a>) -> Option<Body<'a>> {
    Some(match header.kind {
        perf::PERF_RECORD_MMAP2 => Body::Mmap(read_mmap(fields)?),
        perf::PERF_RECORD_COMM => {
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let exec = header.misc & perf::PERF_RECORD_MISC_COMM_EXEC as u16 != 0;
            Body::Comm { pid, tid, exec, name: fields.string() }
        }
        perf::PERF_RECORD_FORK | perf::PERF_RECORD_EXIT => {
            let (pid, parent_pid, tid) = (fields.u32()?, fields.u32()?, fields.u32()?);
            let kin = Kin { pid, parent_pid, tid };
            if header.kind == perf::PERF_RECORD_FORK { Body::Fork(kin) } else { Body::Exit(kin) }
        }
        perf::PERF_RECORD_LOST => {
            let _id = fields.u64()?;
            Body::Lost(fields.u64()?)
        }
        perf::PERF_RECORD_LOST_SAMPLES => Body::Unmade(fields.u64()?),
        perf::PERF_RECORD_KSYMBOL => Body::Ksymbol(read_ksymbol(fields)?),
        perf::PERF_RECORD_THROTTLE => Body::Throttle,
        _ => Body::Other,
    })
}

fn read_mmap(mut fields: Fields<'_>) -> Option<Mmap<'_>> {
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

fn read_ksymbol(mut fields: Fields<'_>) -> Option<Ksymbol<'_>> {
    let (start, size) = (fields.u64()?, u64::from(fields.u32()?));
    let (_kind, flags) = (fields.u16()?, fields.u16()?);
    let is_gone = flags & perf::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER as u16 != 0;
    Some(Ksymbol { start, size, is_gone, name: fields.string() })
}

fn read_sample(
    layout: Layout,
    header: Header,
    mut fields: Fields<'_>,
) -> Option<(Stamp, Body<'_>)> {
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
    let sample = Sample { ip, in_kernel, period, chain, registers, compat, stack, extension: None };
    Some((Stamp { pid, tid, time, cpu }, Body::Sample(sample)))
}

/// Fields in the order they stand, little-endian.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
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
