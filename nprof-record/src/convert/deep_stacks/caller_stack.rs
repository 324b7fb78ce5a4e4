//! What lies outside of a frame: read from the living process, and unwound. Pure but for the
//! reading, which is asked of a function.

use std::rc::Rc;

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch;
use crate::unwind::stack_copy::StackCopy;
use crate::unwind::{self, CodeMap, FrameAddress, FrameState, FrameVisitor, Registers, UnwindInfo};

/// How much of a stack is read, the next more where the one before did not suffice, bytes.
const SIZES: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];

/// The outer part of a stack.
#[derive(Clone, Debug)]
pub(crate) struct CallerStack {
    /// The registers of its innermost frame, a caller's.
    registers: Registers,
    /// That frame first.
    pub(crate) addresses: Rc<[FrameAddress]>,
    pub(crate) mark: Mark,
}

impl CallerStack {
    /// Whether a frame whose caller has these registers lies in this; the instruction pointer
    /// may be unknown.
    pub(crate) fn matches_caller(&self, caller: &Registers) -> bool {
        let mut caller = *caller;
        if let (Err(_), Ok(ip)) = (caller.get(arch::IP), self.registers.get(arch::IP)) {
            caller.set(arch::IP, ip);
        }
        self.registers.agrees_with(&caller)
    }

    /// Whether it is all there is, or all that is kept.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.mark, Mark::None | Mark::MaxDepth)
    }

    /// One of at most `depth` frames.
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

/// Outer parts that are known, by the CFA of the frame they lie outside of; the walk stops where
/// one of them begins.
struct KnownCallers<'a> {
    parts: &'a [(u64, &'a CallerStack)],
    found: Option<usize>,
}

impl FrameVisitor for KnownCallers<'_> {
    fn visit(&mut self, caller: &Registers, _frames: usize) -> bool {
        let is_it = |(cfa, outer): &(u64, &CallerStack)| {
            caller.get(arch::SP) == Ok(*cfa) && outer.is_complete() && outer.matches_caller(caller)
        };
        self.found = self.parts.iter().position(is_it);
        self.found.is_some()
    }
}

/// Reads a stack.
pub(crate) struct CallerReader<'a, R> {
    /// Reads memory from an address up into a buffer, as far as there is any: how many bytes.
    pub(crate) read: R,
    pub(crate) bytes: &'a mut Vec<u8>,
    /// The most frames of an outer part.
    pub(crate) depth: usize,
}

impl<R: FnMut(u64, &mut [u8]) -> usize> CallerReader<'_, R> {
    /// What lies outside of the frame whose caller has these registers, and which of the known
    /// parts that ends in. `None` when the frame is seen to be gone, or is a signal handler's.
    pub(crate) fn read_callers(
        &mut self,
        mut caller: Registers,
        known: &[(u64, &CallerStack)],
        code: &mut impl CodeMap,
    ) -> Option<(CallerStack, Option<usize>)> {
        let start = arch::return_address_slot(caller.get(arch::SP).ok()?)?;
        let mut addresses = Vec::new();
        for size in SIZES {
            if self.bytes.len() < size {
                self.bytes.resize(size, 0);
            }
            let length = (self.read)(start, &mut self.bytes[..size]);
            let stack = StackCopy::new(start, &self.bytes[..length], Default::default());
            let word = u64::from_le_bytes(*self.bytes[..length].first_chunk()?);
            if caller.get(arch::IP).is_ok_and(|ip| ip != word)
                || is_signal_return(RuntimeAddress(word), code)
            {
                return None;
            }
            caller.set(arch::IP, word);
            let mut known = KnownCallers { parts: known, found: None };
            addresses.clear();
            let from = FrameState::calling(caller).ok()?;
            let mark = unwind::unwind(from, &stack, code, self.depth, &mut addresses, &mut known);
            let is_short = mark == Mark::StackTruncated && length == size;
            if let Some(at) = known.found {
                let rest = known.parts[at].1;
                addresses.extend_from_slice(&rest.addresses);
                return Some((
                    CallerStack::new(caller, addresses, rest.mark, self.depth),
                    Some(at),
                ));
            }
            if !is_short || size == SIZES[SIZES.len() - 1] {
                return Some((CallerStack::new(caller, addresses, mark, self.depth), None));
            }
        }
        None
    }
}

/// Whether a return address is what signal handlers return to.
fn is_signal_return(ip: RuntimeAddress, code: &mut impl CodeMap) -> bool {
    match code.unwind_info(ip.wrapping_sub(1)) {
        UnwindInfo::Rule(row) => row.signal,
        UnwindInfo::SignalReturn => true,
        _ => code.unwind_info(ip) == UnwindInfo::SignalReturn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};

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

    /// What lies outside of the frame at the base of a stack of `length` frames of 0x2001 each.
    fn outside(
        length: usize,
        depth: usize,
        known: &[(u64, &CallerStack)],
    ) -> (Option<(CallerStack, Option<usize>)>, usize) {
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
        let mut reader = CallerReader { read, bytes: &mut Vec::new(), depth };
        let found = reader.read_callers(caller(BASE + 8, 0x2001), known, &mut Program);
        (found, reads)
    }

    #[test]
    fn reads_in_growing_sizes_until_the_stack_is_complete() {
        for (frames, reads) in [(3, 1), (5000, 2), (100_000, 3)] {
            let (found, count) = outside(frames, 1 << 20, &[]);
            let (outer, _) = found.expect("an outer part");
            let shape = (outer.addresses.len(), outer.mark, count);
            assert_eq!(shape, (frames + 1, Mark::None, reads));
        }
        let (outer, _) = outside(1 << 20, 1 << 20, &[]).0.expect("an outer part");
        assert_eq!(outer.mark, Mark::StackTruncated, "there is an end to it");
        assert!(!outer.is_complete());
    }

    #[test]
    fn walk_ends_in_known_callers() {
        let rest: Rc<[FrameAddress]> = [FrameAddress::Return(RuntimeAddress(0x3333)); 3].into();
        let registers = caller(BASE + 8 + 32, 0x2001);
        let known = CallerStack { registers, addresses: rest, mark: Mark::None };
        let (outer, joined) = outside(9, 100, &[(BASE + 8 + 32, &known)]).0.expect("a part");
        assert_eq!((outer.addresses.len(), outer.mark, joined), (2 + 3, Mark::None, Some(0)));
        assert_eq!(outer.addresses[4].value().0, 0x3333);
        let (outer, _) = outside(9, 4, &[(BASE + 8 + 32, &known)]).0.expect("a part");
        assert_eq!((outer.addresses.len(), outer.mark), (4, Mark::MaxDepth));
        let other = CallerStack { registers: caller(BASE + 8 + 32, 0x2009), ..known };
        let (outer, joined) = outside(9, 100, &[(BASE + 8 + 32, &other)]).0.expect("a part");
        assert_eq!((outer.addresses.len(), joined), (10, None), "with other registers it is not");
    }
}
