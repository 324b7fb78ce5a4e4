//! The state from which a walk continues.

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch::{Architecture, Native};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::registers::Registers;

/// A frame with its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameState<A: Architecture = Native> {
    /// Its registers; the instruction pointer is the value of `address`.
    pub registers: Registers<A>,
    /// Its address.
    pub address: FrameAddress,
}

impl<A: Architecture> FrameState<A> {
    /// Creates the state of a frame that was running, or that a signal interrupted.
    ///
    /// # Errors
    ///
    /// [`Mark::UnwindFailed`] if the instruction pointer is unknown.
    #[inline]
    pub fn interrupted(registers: Registers<A>) -> Result<Self, Mark> {
        let ip = RuntimeAddress(registers.get(A::IP)?);
        Ok(Self { registers, address: FrameAddress::Instruction(ip) })
    }

    /// Creates the state of a frame that has called another.
    ///
    /// # Errors
    ///
    /// [`Mark::UnwindFailed`] if the instruction pointer is unknown.
    #[inline]
    pub fn calling(registers: Registers<A>) -> Result<Self, Mark> {
        let ip = RuntimeAddress(registers.get(A::IP)?);
        Ok(Self { registers, address: FrameAddress::Return(ip) })
    }
}
