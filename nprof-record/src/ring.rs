//! From the bytes of a ring to kernel records, as perf_event_open(2) describes them
//! (include/uapi/linux/perf_event.h). Pure, and nothing is believed: a record that is shorter
//! than its fields is no record.

use perf_event_open_sys::bindings as perf;

use crate::extension::{Extension, Owner, Part};

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
    /// What a program copied beyond that; it is not in the record itself.
    pub(crate) extension: Extension<'a>,
}

impl Sample<'_> {
    /// The entries of the call chain, marks included, leaf first.
    pub(crate) fn chain(&self) -> impl Iterator<Item = u64> {
        words(self.chain)
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
    /// The event was stopped until the next tick of the timer.
    Throttle,
    /// Nothing the recorder needs.
    Other,
}

/// When a record was made, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn time(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER + 24 } else { bytes.len().checked_sub(TRAILER)? + 8 };
    Fields(bytes.get(at..)?).u64()
}

/// Which thread made a record, without reading the rest of it. `bytes` is the whole record.
pub(crate) fn task(header: Header, bytes: &[u8]) -> Option<u32> {
    let at = if header.is_sample() { HEADER + 20 } else { bytes.len().checked_sub(TRAILER)? + 4 };
    Fields(bytes.get(at..)?).u32()
}

/// The id of the event that made a record, as [`crate::sys::event_id`] gives it.
pub(crate) fn identifier(header: Header, bytes: &[u8]) -> Option<u64> {
    let at = if header.is_sample() { HEADER } else { bytes.len().checked_sub(8)? };
    Fields(bytes.get(at..)?).u64()
}

/// Reads a whole record; `None` when it is not what its header says.
pub(crate) fn read<'a>(layout: Layout, bytes: &'a [u8]) -> Option<(Stamp, Body<'a>)> {
    let header = Header::read(bytes)?;
    let bytes = bytes.get(HEADER..header.size)?;
    if header.is_sample() {
        return read_sample(layout, header, Fields(bytes));
    }
    let at = bytes.len().checked_sub(TRAILER)?;
    let stamp = read_trailer(Fields(&bytes[at..]))?;
    Some((stamp, read_other(header, Fields(&bytes[..at]))?))
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
        perf::PERF_RECORD_LOST_SAMPLES => Body::Lost(fields.u64()?),
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
    let extension = Extension::default();
    let sample = Sample { ip, in_kernel, period, chain, registers, compat, stack, extension };
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
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { weight: None, read: 2, callchain: true, registers: 2 };

    /// A record: its header, and its fields as 32-bit words.
    fn record(kind: u32, misc: u32, words: &[u32]) -> Vec<u8> {
        let size = HEADER + words.len() * 4;
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((misc as u16).to_le_bytes());
        bytes.extend((size as u16).to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    fn sample() -> Vec<u8> {
        let words = [
            9,
            0,
            0x1234,
            0,
            10,
            11,
            77,
            0,
            3,
            0,
            1000,
            0, // identifier .. period
            1,
            0,
            2,
            0, // read
            2,
            0,
            0xffff_ff80,
            0xffff_ffff,
            0x5678,
            0xffff_ffff, // callchain
            2,
            0,
            100,
            0,
            200,
            0, // registers
            16,
            0,
            0xa,
            0,
            0xb,
            0,
            8,
            0, // stack
        ];
        record(perf::PERF_RECORD_SAMPLE, perf::PERF_RECORD_MISC_KERNEL, &words)
    }

    #[test]
    fn a_sample_is_read_in_the_kernels_order() {
        let bytes = sample();
        let (stamp, body) = read(LAYOUT, &bytes).expect("a sample");
        assert_eq!(stamp, Stamp { pid: 10, tid: 11, time: 77, cpu: 3 });
        let Body::Sample(sample) = body else { panic!("{body:?}") };
        assert_eq!((sample.ip, sample.period, sample.in_kernel), (0x1234, 1000, true));
        assert_eq!(
            sample.chain().collect::<Vec<_>>(),
            [perf::PERF_CONTEXT_KERNEL, 0xffff_ffff_0000_5678]
        );
        assert_eq!(sample.registers().collect::<Vec<_>>(), [100, 200]);
        assert_eq!(sample.stack, [0xa, 0, 0, 0, 0, 0, 0, 0]);
        assert!(!sample.compat);
        let header = Header::read(&bytes).expect("a header");
        assert_eq!(time(header, &bytes), Some(77));
        assert_eq!((task(header, &bytes), identifier(header, &bytes)), (Some(11), Some(9)));
    }

    #[test]
    fn no_cut_or_wild_count_panics() {
        let whole = sample();
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            assert_eq!(read(LAYOUT, &cut), None);
            if length >= HEADER {
                cut[6..8].copy_from_slice(&(length as u16).to_le_bytes());
                assert_eq!(read(LAYOUT, &cut), None, "{length}");
            }
        }
        for at in (HEADER..whole.len()).step_by(4) {
            let mut wild = whole.clone();
            wild[at..at + 4].fill(0xff);
            let _ = read(LAYOUT, &wild);
        }
    }

    #[test]
    fn a_mapping_has_an_inode_whatever_another_recorder_asked_for() {
        let mut words = vec![7, 7, 0x1000, 0, 0x2000, 0, 0x3000, 0];
        words.extend([8, 1, 99, 0, 2, 0]);
        words.extend([5, 2, u32::from_le_bytes(*b"/a\0b"), 0]);
        words.extend([7, 7, 500, 0, 1, 0, 0, 0]);
        for misc in [0, perf::PERF_RECORD_MISC_MMAP_BUILD_ID] {
            let bytes = record(perf::PERF_RECORD_MMAP2, misc, &words);
            let Some((stamp, Body::Mmap(mmap))) = read(LAYOUT, &bytes) else { panic!() };
            assert_eq!((stamp.time, stamp.cpu), (500, 1));
            assert_eq!((mmap.start, mmap.length, mmap.offset), (0x1000, 0x2000, 0x3000));
            let identity = Identity { device: (8, 1), inode: 99, generation: 2 };
            assert_eq!((mmap.identity, mmap.path), (identity, &b"/a"[..]));
        }
    }

    #[test]
    fn code_of_the_kernel_comes_and_goes() {
        let name = [*b"bpf_", *b"prog", *b"\0\0\0\0", [0; 4]].map(u32::from_le_bytes);
        for (flags, is_gone) in [(0, false), (1 << 16, true)] {
            let mut words = vec![0xc000_0040, 0xffff_ffff, 77, 1 | flags];
            words.extend(name);
            words.extend([0, 0, 500, 0, 1, 0, 0, 0]);
            let bytes = record(perf::PERF_RECORD_KSYMBOL, 0, &words);
            let Some((_, Body::Ksymbol(symbol))) = read(LAYOUT, &bytes) else { panic!() };
            let expected =
                Ksymbol { start: 0xffff_ffff_c000_0040, size: 77, is_gone, name: b"bpf_prog" };
            assert_eq!(symbol, expected);
        }
    }

    #[test]
    fn an_exec_is_told_from_a_new_name() {
        let words = [3, 4, u32::from_le_bytes(*b"sh\0\0"), 0, 3, 4, 500, 0, 1, 0, 0, 0];
        for (misc, is_exec) in [(perf::PERF_RECORD_MISC_COMM_EXEC, true), (0, false)] {
            let bytes = record(perf::PERF_RECORD_COMM, misc, &words);
            let Some((_, Body::Comm { pid: 3, tid: 4, exec, name: b"sh" })) = read(LAYOUT, &bytes)
            else {
                panic!()
            };
            assert_eq!(exec, is_exec);
        }
    }
}
