//! A copy of a user stack, and its walk. Pure.

use nprof_stream::{Mark, limits};
use nprof_unwind::arch::aarch64::Aarch64;
use nprof_unwind::arch::x86_64::X86_64;
use nprof_unwind::arch::{Architecture, Machine};
use nprof_unwind::unwind::stack_copy::{StackCopy, StackSegments};
use nprof_unwind::unwind::{FrameAddress, FrameState, Registers, unwind};

use super::process_code::ProcessCode;

/// User registers and a copy of the user stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserCopy {
    /// True if the process has 32 bits.
    pub(crate) is_compat: bool,
    /// The bits of the registers (`sample_regs_user`).
    pub(crate) mask: u64,
    /// Their values, in the order of the bits. Empty if the thread has no user code.
    pub(crate) registers: Box<[u64]>,
    /// The stack from the stack pointer up.
    pub(crate) stack: Box<[u8]>,
    /// The bytes that were to be copied.
    pub(crate) requested_bytes: usize,
}

/// Returns the architecture with a name of uname(2). None if its stacks are not unwound.
pub(crate) fn machine_of(name: &[u8]) -> Option<Machine> {
    match name {
        b"x86_64" => Some(Machine::X86_64),
        b"aarch64" => Some(Machine::Aarch64),
        _ => None,
    }
}

impl UserCopy {
    /// Returns its memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.registers) + self.stack.len()
    }

    /// Unwinds the stack of a thread on a machine, and appends its addresses, leaf first. Returns the reason why
    /// the stack is incomplete. None without registers of user code.
    pub(crate) fn walk(
        &self,
        machine: Machine,
        code: &mut ProcessCode<'_>,
        addresses: &mut Vec<FrameAddress>,
    ) -> Option<Mark> {
        match machine {
            Machine::X86_64 => self.walk_of::<X86_64>(code, addresses),
            Machine::Aarch64 => self.walk_of::<Aarch64>(code, addresses),
        }
    }

    fn walk_of<A: Architecture>(
        &self,
        code: &mut ProcessCode<'_>,
        addresses: &mut Vec<FrameAddress>,
    ) -> Option<Mark> {
        let registers = Registers::<A>::from_mask(self.mask, self.registers.iter().copied());
        let sp = registers.get(A::SP).ok()?;
        let frame = FrameState::interrupted(registers).ok()?;
        if self.is_compat {
            // The tables of 32-bit images number other registers.
            addresses.push(frame.address);
            return Some(Mark::Bits32);
        }
        let segments = StackSegments::default();
        let stack = StackCopy::with_segments(sp, &self.stack, self.requested_bytes, segments);
        Some(unwind(frame, &stack, code, limits::DEPTH, addresses, &mut ()))
    }
}
