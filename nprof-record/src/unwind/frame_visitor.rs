//! The frames of a walk, for those who need more than their addresses.

use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackReadRange;

/// Is told of the frames a walk leaves.
pub trait FrameVisitor {
    /// A frame was left by its unwind table and returns through the word below its CFA. `caller`
    /// are its caller's registers: the stack pointer is the CFA, and the instruction pointer is
    /// not known when the return address lies beyond the copy. `frames` addresses are known so
    /// far. Whether to stop here.
    fn visit(&mut self, caller: &Registers, frames: usize) -> bool;

    /// The walk is over; this much of the stack was read.
    fn end(&mut self, _seen: StackReadRange) {}
}

/// Nobody wants to know.
impl FrameVisitor for () {
    fn visit(&mut self, _caller: &Registers, _frames: usize) -> bool {
        false
    }
}
