//! Decodes records (include/uapi/linux/perf_event.h, `perf_event_type`). Pure.

use super::attribute::{Attribute, sample_type};
use super::bytes::Bytes;
use crate::unwind::UserCopy;

/// Types of records; those from 64 on are of perf itself.
pub(super) mod kind {
    pub(in super::super) const MMAP: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const COMM: u32 = 3;
    pub(in super::super) const EXIT: u32 = 4;
    pub(in super::super) const THROTTLE: u32 = 5;
    pub(in super::super) const FORK: u32 = 7;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MMAP2: u32 = 10;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    pub(in super::super) const ATTR: u32 = 64;
    pub(in super::super) const BUILD_ID: u32 = 67;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(in super::super) const AUXTRACE: u32 = 71;
    pub(in super::super) const EVENT_UPDATE: u32 = 78;
    pub(in super::super) const FEATURE: u32 = 80;
    pub(in super::super) const COMPRESSED: u32 = 81;
    pub(in super::super) const COMPRESSED2: u32 = 83;
    /// The first type of perf itself.
    pub(in super::super) const FIRST_OF_PERF: u32 = 64;
}

/// Bits of `misc`.
const MMAP_DATA: u16 = 1 << 13;
const COMM_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_FORK_EXEC`: perf made it up for a process that ran already, of which the mappings follow.
const FORK_WITHOUT_MEMORY: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;
const CPU_MODE: u16 = 7;
const CPU_MODE_KERNEL: u16 = 1;

/// The process id of mappings of the kernel.
pub(super) const KERNEL_PID: u32 = u32::MAX;

/// The protection bit of executable memory.
const PROT_EXEC: u32 = 4;

/// An event of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Sample(SampleContent),
    Mmap(Mmap),
    /// `executed` is the file of an exec, if a later record has shown it.
    Comm {
        pid: u32,
        tid: u32,
        name: Vec<u8>,
        is_exec: bool,
        executed: Option<Vec<u8>>,
    },
    Fork {
        pid: u32,
        parent_pid: u32,
        tid: u32,
        parent_tid: u32,
        is_copy: bool,
    },
    Exit {
        tid: u32,
        pid: u32,
    },
    Lost(u64),
    Throttle,
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleContent {
    pub(super) ip: u64,
    pub(super) is_kernel: bool,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: Option<u32>,
    pub(super) period: Option<u64>,
    /// The number of its attribute.
    pub(super) attribute: usize,
    /// Addresses, leaf first, between markers of their context. None if chains were not recorded.
    pub(super) chain: Option<Box<[u64]>>,
    /// The copy of the user stack. None if it was not recorded.
    pub(super) copy: Option<Box<UserCopy>>,
}

/// Executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mmap {
    /// The process; `u32::MAX` is the kernel.
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) file_offset: u64,
    pub(super) build_id: Vec<u8>,
    pub(super) path: Vec<u8>,
    /// The inode of the file. None if the record has none.
    pub(super) inode: Option<u64>,
}

impl Content {
    /// Returns its approximate memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let own = match self {
            Self::Sample(sample) => {
                let copy = sample.copy.as_ref();
                sample.chain.as_ref().map_or(0, |chain| size_of_val(&**chain))
                    + copy.map_or(0, |copy| copy.bytes())
            }
            Self::Mmap(mmap) => mmap.path.len() + mmap.build_id.len(),
            Self::Comm { name, .. } => name.len(),
            _ => 0,
        };
        size_of::<Self>() + own
    }
}

/// Returns the id of a record's attribute and its time, from the place that the first attribute states:
/// all attributes of a file agree on it. 0 if the record has none.
pub(super) fn identification(kind: u32, body: &[u8], attribute: &Attribute) -> (u64, u64) {
    if kind == kind::SAMPLE {
        let mut at = Bytes(body);
        let mut field = |bit| if attribute.has(bit) { at.u64().unwrap_or(0) } else { 0 };
        let identifier = field(sample_type::IDENTIFIER);
        field(sample_type::IP);
        field(sample_type::TID);
        let time = field(sample_type::TIME);
        field(sample_type::ADDR);
        let id = field(sample_type::ID);
        return (if identifier > 0 { identifier } else { id }, time);
    }
    if kind >= kind::FIRST_OF_PERF || !attribute.has_sample_id() {
        return (0, 0);
    }
    use sample_type::{CPU, ID, IDENTIFIER, STREAM_ID, TID, TIME};
    let fields = [TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER];
    let count = fields.iter().filter(|&&bit| attribute.has(bit)).count();
    let Some(start) = body.len().checked_sub(8 * count) else { return (0, 0) };
    let mut at = Bytes(&body[start..]);
    let mut field = |bit| if attribute.has(bit) { at.u64().unwrap_or(0) } else { 0 };
    field(TID);
    let (time, id) = (field(TIME), field(ID));
    field(STREAM_ID);
    field(CPU);
    let identifier = field(IDENTIFIER);
    (if identifier > 0 { identifier } else { id }, time)
}

/// Decodes the body of a record. `Some(None)` for one that does not matter, None for a malformed one.
pub(super) fn content(
    kind: u32,
    misc: u16,
    body: &[u8],
    number: usize,
    attribute: &Attribute,
) -> Option<Option<Content>> {
    let mut at = Bytes(body);
    let content = match kind {
        kind::SAMPLE => Content::Sample(sample(misc, at, number, attribute)?),
        kind::MMAP => {
            let (pid, _) = (at.u32()?, at.u32()?);
            let (start, length, file_offset) = (at.u64()?, at.u64()?, at.u64()?);
            // Other mappings hold data.
            if misc & MMAP_DATA != 0 {
                return Some(None);
            }
            let (build_id, path) = (Vec::new(), at.text().to_vec());
            let inode = None;
            Content::Mmap(Mmap { pid, start, length, file_offset, build_id, path, inode })
        }
        kind::MMAP2 => {
            let (pid, _) = (at.u32()?, at.u32()?);
            let (start, length, file_offset) = (at.u64()?, at.u64()?, at.u64()?);
            let mut id = Bytes(at.take(24)?);
            let (mut build_id, mut inode) = (Vec::new(), None);
            if misc & MMAP_BUILD_ID != 0 {
                let size = usize::from(id.u8()?);
                id.take(3)?;
                build_id = id.take(size.min(20))?.to_vec();
            } else {
                // Major and minor number of the device; the kernel has no inode 0.
                id.take(8)?;
                inode = Some(id.u64()?).filter(|&inode| inode != 0);
            }
            let (protection, _) = (at.u32()?, at.u32()?);
            // perf states no protection for the kernel (--buildid-mmap).
            if protection & PROT_EXEC == 0 && pid != KERNEL_PID {
                return Some(None);
            }
            let path = at.text().to_vec();
            Content::Mmap(Mmap { pid, start, length, file_offset, build_id, path, inode })
        }
        kind::COMM => {
            let (pid, tid, name) = (at.u32()?, at.u32()?, at.text().to_vec());
            Content::Comm { pid, tid, name, is_exec: misc & COMM_EXEC != 0, executed: None }
        }
        kind::FORK | kind::EXIT => {
            let (pid, parent_pid, tid, parent_tid) = (at.u32()?, at.u32()?, at.u32()?, at.u32()?);
            match kind {
                kind::FORK => {
                    let is_copy = misc & FORK_WITHOUT_MEMORY == 0;
                    Content::Fork { pid, parent_pid, tid, parent_tid, is_copy }
                }
                _ => Content::Exit { tid, pid },
            }
        }
        kind::LOST => {
            at.u64()?;
            Content::Lost(at.u64()?)
        }
        kind::LOST_SAMPLES => Content::Lost(at.u64()?),
        kind::THROTTLE => Content::Throttle,
        _ => return Some(None),
    };
    Some(Some(content))
}

fn sample(
    misc: u16,
    mut at: Bytes<'_>,
    number: usize,
    attribute: &Attribute,
) -> Option<SampleContent> {
    use sample_type::*;
    let mut sample = SampleContent {
        is_kernel: misc & CPU_MODE == CPU_MODE_KERNEL,
        attribute: number,
        ..SampleContent::default()
    };
    if attribute.has(IDENTIFIER) {
        at.u64()?;
    }
    if attribute.has(IP) {
        sample.ip = at.u64()?;
    }
    if attribute.has(TID) {
        (sample.pid, sample.tid) = (at.u32()?, at.u32()?);
    }
    for bit in [TIME, ADDR, ID, STREAM_ID] {
        if attribute.has(bit) {
            at.u64()?;
        }
    }
    if attribute.has(CPU) {
        sample.cpu = Some(at.u32()?);
        at.u32()?;
    }
    if attribute.has(PERIOD) {
        sample.period = Some(at.u64()?);
    }
    if attribute.has(READ) {
        skip_counts(&mut at, attribute.read_format)?;
    }
    if attribute.has(CALLCHAIN) {
        let count = usize::try_from(at.u64()?).ok()?;
        let bytes = at.take(count.checked_mul(8)?)?;
        let address = |bytes: &[u8]| Bytes(bytes).u64().unwrap_or_default();
        sample.chain = Some(bytes.chunks_exact(8).map(address).collect());
    }
    if attribute.has(RAW) {
        let size = usize::try_from(at.u32()?).ok()?;
        at.take(size)?;
    }
    if attribute.has(BRANCH_STACK) {
        skip_branches(&mut at, attribute.branch_type)?;
    }
    if attribute.has(REGS_USER) && attribute.has(STACK_USER) {
        sample.copy = Some(Box::new(user_copy(&mut at, attribute.user_registers)?));
    }
    Some(sample)
}

/// Reads user registers and the copy of the user stack.
fn user_copy(at: &mut Bytes<'_>, mask: u64) -> Option<UserCopy> {
    // PERF_SAMPLE_REGS_ABI_NONE, 32 and 64.
    let abi = at.u64()?;
    let mut registers = Vec::new();
    if abi != 0 {
        for _ in 0..mask.count_ones() {
            registers.push(at.u64()?);
        }
    }
    let requested_bytes = usize::try_from(at.u64()?).ok()?;
    let mut stack: &[u8] = &[];
    if requested_bytes > 0 {
        let bytes = at.take(requested_bytes)?;
        // The bytes after these could not be read.
        let length = usize::try_from(at.u64()?).ok()?;
        stack = bytes.get(..length)?;
    }
    let (registers, stack) = (registers.into(), stack.into());
    Some(UserCopy { is_compat: abi == 1, mask, registers, stack, requested_bytes })
}

/// Skips the branches of a sample (`branch_sample_type`).
fn skip_branches(at: &mut Bytes<'_>, branch_type: u64) -> Option<()> {
    // PERF_SAMPLE_BRANCH_HW_INDEX and COUNTERS.
    let [has_index, has_counters] = [1 << 17, 1 << 19].map(|bit| u64::from(branch_type & bit != 0));
    let count = at.u64()?;
    // From, to and flags; a word for the counters of each.
    let words = count.checked_mul(3 + has_counters)?.checked_add(has_index)?;
    at.take(usize::try_from(words.checked_mul(8)?).ok()?)?;
    Some(())
}

/// Skips the counts of a sample (`read_format`).
fn skip_counts(at: &mut Bytes<'_>, format: u64) -> Option<()> {
    // PERF_FORMAT_TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, ID, GROUP, LOST.
    // In the order of the bits, which is not that of the fields.
    let [enabled, running, id, group, lost] =
        [1, 2, 4, 8, 16].map(|bit| u64::from(format & bit != 0));
    let first = at.u64()?;
    let (values, per_value) = if group == 1 { (first, 1 + id + lost) } else { (0, 0) };
    let single = if group == 1 { 0 } else { id + lost };
    let words = values.checked_mul(per_value)?.checked_add(enabled + running + single)?;
    at.take(usize::try_from(words.checked_mul(8)?).ok()?)?;
    Some(())
}
