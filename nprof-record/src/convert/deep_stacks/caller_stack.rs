//! The callers of a frame: reads the rest of the stack from the live process and unwinds it. Memory
//! is read through a function. Pure otherwise.

use std::rc::Rc;

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;
use nprof_unwind::arch;
use nprof_unwind::unwind::stack_copy::StackCopy;
use nprof_unwind::unwind::{
    self, CodeMap, FrameAddress, FrameState, FrameVisitor, Registers, UnwindInfo,
};

/// Bytes of a stack that are read, each more if the one before was not enough. Linux limits a main
/// thread's stack to 8 MiB by default.
const READ_SIZES: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];

/// The callers of a frame.
#[derive(Clone, Debug)]
pub(crate) struct CallerStack {
    /// The registers of the first caller.
    registers: Registers,
    /// The addresses of the callers, the first caller first.
    pub(crate) addresses: Rc<[FrameAddress]>,
    pub(crate) mark: Mark,
}

impl CallerStack {
    /// True if `caller` are the registers of the first caller. Their instruction pointer may be
    /// unknown.
    pub(crate) fn matches_caller(&self, caller: &Registers) -> bool {
        let mut caller = *caller;
        if let (Err(_), Ok(ip)) = (caller.get(arch::IP), self.registers.get(arch::IP)) {
            caller.set(arch::IP, ip);
        }
        self.registers.agrees_with(&caller)
    }

    /// True if it reaches to the end of the stack, or to the depth limit.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.mark, Mark::None | Mark::MaxDepth)
    }

    /// Creates callers, of which at most `depth` are kept.
    fn new(
        registers: Registers,
        mut addresses: Vec<FrameAddress>,
        mut mark: Mark,
        depth: usize,
    ) -> Self {
        if addresses.len() > depth {
            addresses.truncate(depth);
            mark = Mark::MaxDepth;
        }
        Self { registers, addresses: addresses.into(), mark }
    }
}

/// Callers that were read before, by the CFA of the frame they are the callers of. The walk stops
/// where one of them begins.
struct KnownCallers<'a> {
    callers: &'a [(u64, &'a CallerStack)],
    /// The index of the callers at which the walk stopped.
    found: Option<usize>,
}

impl FrameVisitor for KnownCallers<'_> {
    fn visit(&mut self, caller: &Registers, _frames: usize) -> bool {
        self.found = self.callers.iter().position(|(cfa, known)| {
            caller.get(arch::SP) == Ok(*cfa) && known.is_complete() && known.matches_caller(caller)
        });
        self.found.is_some()
    }
}

/// Callers read from the process.
pub(crate) struct ReadCallers {
    pub(crate) callers: CallerStack,
    /// The index of the known callers that they end in; `None` if all were read.
    pub(crate) joined: Option<usize>,
}

/// Reads stacks of a process.
pub(crate) struct CallerReader<'a, R> {
    /// Reads memory from an address on into a buffer. Returns the number of bytes read, up to the
    /// first that is not mapped.
    pub(crate) read: R,
    pub(crate) buffer: &'a mut Vec<u8>,
    /// The most callers that are kept.
    pub(crate) depth: usize,
}

impl<R: FnMut(u64, &mut [u8]) -> usize> CallerReader<'_, R> {
    /// Reads the callers of a frame, given the registers of the first. None if the frame has
    /// returned since, or was called by the kernel for a signal.
    pub(crate) fn read_callers(
        &mut self,
        mut caller: Registers,
        known: &[(u64, &CallerStack)],
        code: &mut impl CodeMap,
    ) -> Option<ReadCallers> {
        let start = arch::return_address_slot(caller.get(arch::SP).ok()?)?;
        let mut addresses = Vec::new();
        for size in READ_SIZES {
            // The buffer is shared by all reads and never shrinks: most reads need the smallest
            // size.
            if self.buffer.len() < size {
                self.buffer.resize(size, 0);
            }
            let length = (self.read)(start, &mut self.buffer[..size]);
            let bytes = &self.buffer[..length];
            let ip = u64::from_le_bytes(*bytes.first_chunk()?);
            // Another return address: the frame has returned, and another one is in its place.
            if caller.get(arch::IP).is_ok_and(|expected| expected != ip) {
                return None;
            }
            // The kernel wrote this frame, and no breakpoint sees that, so it cannot be watched.
            if is_signal_return(RuntimeAddress(ip), code) {
                return None;
            }
            caller.set(arch::IP, ip);
            let stack = StackCopy::new(start, bytes);
            let mut visitor = KnownCallers { callers: known, found: None };
            addresses.clear();
            let from = FrameState::calling(caller).ok()?;
            let mark = unwind::unwind(from, &stack, code, self.depth, &mut addresses, &mut visitor);
            if let Some(joined) = visitor.found {
                let rest = known[joined].1;
                addresses.extend_from_slice(&rest.addresses);
                let callers = CallerStack::new(caller, addresses, rest.mark, self.depth);
                return Some(ReadCallers { callers, joined: Some(joined) });
            }
            // Less than was asked for is all there is: the walk cannot get further.
            let is_too_short = mark == Mark::StackTruncated && length == size;
            if !is_too_short || size == READ_SIZES[READ_SIZES.len() - 1] {
                let callers = CallerStack::new(caller, addresses, mark, self.depth);
                return Some(ReadCallers { callers, joined: None });
            }
        }
        None
    }
}

/// True if signal handlers return to an address. It may be the first of its function, so the byte
/// before it is not enough.
fn is_signal_return(ip: RuntimeAddress, code: &mut impl CodeMap) -> bool {
    match code.unwind_info(ip.wrapping_sub(1)) {
        UnwindInfo::Rule(rule) => rule.signal,
        UnwindInfo::SignalReturn => true,
        _ => code.unwind_info(ip) == UnwindInfo::SignalReturn,
    }
}

#[cfg(test)]
mod tests {
    use nprof_unwind::arch::rule::{Cfa, RegisterRule, UnwindRule};

    use super::*;

    /// Frames of two words; the stack ends at 0x3000.
    struct Program;

    impl CodeMap for Program {
        fn unwind_info(&mut self, RuntimeAddress(address): RuntimeAddress) -> UnwindInfo {
            let return_address = if address >= 0x3000 {
                RegisterRule::Undefined
            } else {
                RegisterRule::AtCfaOffset(-8)
            };
            let cfa = Cfa::Register(arch::SP, 16);
            let registers = [].into();
            UnwindInfo::Rule(Rc::new(UnwindRule { cfa, return_address, registers, signal: false }))
        }
    }

    const BASE: u64 = 0x7000_0000;

    fn caller(cfa: u64, ip: u64) -> Registers {
        let mut registers = Registers::default();
        registers.set(arch::SP, cfa);
        registers.set(arch::IP, ip);
        registers
    }

    /// Reads the callers of the frame at the start of a stack of `length` frames of 0x2001 each.
    /// Returns them with the number of reads.
    fn read_callers(
        length: usize,
        depth: usize,
        known: &[(u64, &CallerStack)],
    ) -> (Option<ReadCallers>, usize) {
        let mut words = [0x2001u64, 0].repeat(length);
        words.extend([0x3001, 0]);
        let memory: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut reads = 0;
        let read = |address: u64, bytes: &mut [u8]| {
            reads += 1;
            let rest = &memory[(address - BASE) as usize..];
            let length = rest.len().min(bytes.len());
            bytes[..length].copy_from_slice(&rest[..length]);
            length
        };
        let mut reader = CallerReader { read, buffer: &mut Vec::new(), depth };
        let found = reader.read_callers(caller(BASE + 8, 0x2001), known, &mut Program);
        (found, reads)
    }

    #[test]
    fn reads_in_growing_sizes_until_the_stack_is_complete() {
        for (frames, reads) in [(3, 1), (5000, 2), (100_000, 3)] {
            let (found, count) = read_callers(frames, 1 << 20, &[]);
            let callers = found.expect("callers").callers;
            let shape = (callers.addresses.len(), callers.mark, count);
            assert_eq!(shape, (frames + 1, Mark::None, reads));
        }
        let callers = read_callers(1 << 20, 1 << 20, &[]).0.expect("callers").callers;
        assert_eq!(callers.mark, Mark::StackTruncated, "no more than the last size is read");
        assert!(!callers.is_complete());
    }

    #[test]
    fn walk_ends_in_known_callers() {
        let rest: Rc<[FrameAddress]> = [FrameAddress::Return(RuntimeAddress(0x3333)); 3].into();
        let cfa = BASE + 8 + 32;
        let known =
            CallerStack { registers: caller(cfa, 0x2001), addresses: rest, mark: Mark::None };
        let read = |known: &CallerStack, depth| {
            let ReadCallers { callers, joined } =
                read_callers(9, depth, &[(cfa, known)]).0.expect("callers");
            (callers, joined)
        };
        let (callers, joined) = read(&known, 100);
        assert_eq!((callers.addresses.len(), callers.mark, joined), (2 + 3, Mark::None, Some(0)));
        assert_eq!(callers.addresses[4].value().0, 0x3333);
        let (callers, _) = read(&known, 4);
        assert_eq!((callers.addresses.len(), callers.mark), (4, Mark::MaxDepth));
        let other = CallerStack { registers: caller(cfa, 0x2009), ..known };
        let (callers, joined) = read(&other, 100);
        assert_eq!((callers.addresses.len(), joined), (10, None), "with other registers it is not");
    }
}
