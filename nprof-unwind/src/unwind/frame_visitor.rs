//! A visitor of the frames of a walk, for callers that need more than their addresses.

use crate::arch::{Architecture, Native};
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackReadRange;

/// Visits the frames of a walk from the leaf outwards.
pub trait FrameVisitor<A: Architecture = Native> {
    /// Visits a frame that has its return address in the word below its CFA, by its unwind table.
    /// Returns true to stop the walk.
    ///
    /// `caller` are the registers of its caller: the stack pointer is the CFA, and the instruction
    /// pointer is unknown if the return address lies outside of the copy. `frames` is the number of
    /// addresses found so far.
    fn visit(&mut self, caller: &Registers<A>, frames: usize) -> bool;

    /// Ends the walk, which read this range of the stack. `absent` is the address of the last word that
    /// was not read because its page was not in memory.
    fn end(&mut self, _read_range: StackReadRange, _absent: Option<u64>) {}
}

/// A visitor that ignores all frames.
impl<A: Architecture> FrameVisitor<A> for () {
    fn visit(&mut self, _caller: &Registers<A>, _frames: usize) -> bool {
        false
    }
}
