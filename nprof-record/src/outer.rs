//! What lies outside of a frame: read from the living process, and unwound. Pure but for the
//! reading, which is asked of a function.

use std::rc::Rc;

use nprof_format::Mark;

use crate::arch;
use crate::unwind::{self, Address, Code, Look, Passage, Registers, Stack};

/// How much of a stack is read, the next more where the one before did not suffice, bytes.
const SIZES: [usize; 3] = [64 << 10, 1 << 20, 8 << 20];

/// The outer part of a stack.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    /// The registers of its innermost frame, a caller's.
    registers: Registers,
    /// That frame first.
    pub(crate) addresses: Rc<[Address]>,
    pub(crate) mark: Mark,
}

impl Outer {
    /// Whether a frame whose caller has these registers lies in this; the instruction pointer
    /// may be unknown.
    pub(crate) fn is_around(&self, caller: &Registers) -> bool {
        let mut caller = *caller;
        if let (Err(_), Ok(ip)) = (caller.get(arch::IP), self.registers.get(arch::IP)) {
            caller.set(arch::IP, ip);
        }
        self.registers.agrees_with(&caller)
    }

    /// Whether it is all there is, or all that is kept.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.mark, Mark::None | Mark::Depth)
    }

    /// One of at most `depth` frames.
    fn new(
        registers: Registers,
        mut addresses: Vec<Address>,
        mut mark: Mark,
        depth: usize,
    ) -> Self {
        if addresses.len() > depth {
            addresses.truncate(depth);
            mark = Mark::Depth;
        }
        Self { registers, addresses: addresses.into(), mark }
    }
}

/// Outer parts that are known, by the CFA of the frame they lie outside of; the walk stops where
/// one of them begins.
struct Known<'a> {
    parts: &'a [(u64, &'a Outer)],
    found: Option<usize>,
}

impl Passage for Known<'_> {
    fn pass(&mut self, caller: &Registers, _frames: usize) -> bool {
        let is_it = |(cfa, outer): &(u64, &Outer)| {
            caller.get(arch::SP) == Ok(*cfa) && outer.is_whole() && outer.is_around(caller)
        };
        self.found = self.parts.iter().position(is_it);
        self.found.is_some()
    }
}

/// Reads a stack.
pub(crate) struct Reader<'a, R> {
    /// Reads memory from an address up into a buffer, as far as there is any: how many bytes.
    pub(crate) read: R,
    pub(crate) bytes: &'a mut Vec<u8>,
    /// The most frames of an outer part.
    pub(crate) depth: usize,
}

impl<R: FnMut(u64, &mut [u8]) -> usize> Reader<'_, R> {
    /// What lies outside of the frame whose caller has these registers, and which of the known
    /// parts that ends in. `None` when the frame is seen to be gone, or is a signal handler's.
    pub(crate) fn outside_of(
        &mut self,
        mut caller: Registers,
        known: &[(u64, &Outer)],
        code: &mut impl Code,
    ) -> Option<(Outer, Option<usize>)> {
        let start = caller.get(arch::SP).ok()?.checked_sub(8)?;
        let mut addresses = Vec::new();
        for size in SIZES {
            if self.bytes.len() < size {
                self.bytes.resize(size, 0);
            }
            let length = (self.read)(start, &mut self.bytes[..size]);
            let stack = Stack { start, bytes: &self.bytes[..length] };
            let word = u64::from_le_bytes(*stack.bytes.first_chunk()?);
            if caller.get(arch::IP).is_ok_and(|ip| ip != word) || is_signal_return(word, code) {
                return None;
            }
            caller.set(arch::IP, word);
            let mut known = Known { parts: known, found: None };
            addresses.clear();
            let from = (caller, true);
            let mark = unwind::unwind(from, stack, code, self.depth, &mut addresses, &mut known);
            let is_short = mark == Mark::Copy && length == size;
            if let Some(at) = known.found {
                let rest = known.parts[at].1;
                addresses.extend_from_slice(&rest.addresses);
                return Some((Outer::new(caller, addresses, rest.mark, self.depth), Some(at)));
            }
            if !is_short || size == SIZES[SIZES.len() - 1] {
                return Some((Outer::new(caller, addresses, mark, self.depth), None));
            }
        }
        None
    }
}

/// Whether a return address is what signal handlers return to.
fn is_signal_return(ip: u64, code: &mut impl Code) -> bool {
    match code.look(ip.wrapping_sub(1)) {
        Look::Row(row) => row.signal,
        Look::SignalReturn => true,
        _ => code.look(ip) == Look::SignalReturn,
    }
}
