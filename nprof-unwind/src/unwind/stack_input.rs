//! The input of the unwinder: a captured stack, from any source of samples. Pure.

use crate::arch;
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::stack_copy::StackSegments;

/// Little-endian words in a buffer that need not be aligned, such as a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a>(pub &'a [u8]);

impl<'a> Words<'a> {
    /// Returns the words in order; bytes after the last whole word are ignored.
    pub fn iter(self) -> impl Iterator<Item = u64> + use<'a> {
        self.0.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    }
}

/// The stack of a sample as it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackInput<'a> {
    /// The instruction pointer at the sample.
    pub ip: u64,
    /// True if `ip` is in the kernel.
    pub in_kernel: bool,
    /// The addresses of the kernel's frames, leaf first. Empty if the kernel did not walk them.
    pub kernel: Words<'a>,
    /// The user part.
    pub user: UserStack<'a>,
}

/// The user part of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserStack<'a> {
    /// Not captured: only the instruction pointer is known.
    #[default]
    NotCaptured,
    /// Copied, to be unwound.
    Copied(CopiedStack<'a>),
    /// Walked by the source: its addresses, leaf first.
    Walked(Words<'a>),
    /// Complete and walked before, leaf first.
    Known(&'a [FrameAddress]),
}

/// User registers and a copy of the user stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedStack<'a> {
    /// Values of the registers in the order of [`arch::NUMBERS`]. Empty if there is no user code.
    pub registers: Words<'a>,
    /// True if only those of a system call are known, see
    /// [`Registers::of_system_call`](super::registers::Registers::of_system_call); the others are 0.
    pub is_of_system_call: bool,
    /// True if the registers are those of a 32-bit process.
    pub is_compat: bool,
    /// True if the instruction pointer is the return address of a call, captured in the call.
    pub is_after_call: bool,
    /// The stack from the stack pointer up.
    pub bytes: &'a [u8],
    /// The number of bytes that were requested: more than were copied if a page was not in memory.
    pub requested_bytes: usize,
    /// Further segments of the stack.
    pub segments: StackSegments<'a>,
}

impl CopiedStack<'_> {
    /// Returns the stack pointer. None if there are no registers.
    pub fn stack_pointer(&self) -> Option<u64> {
        let at = arch::NUMBERS.iter().position(|&number| number == arch::SP)?;
        self.registers.iter().nth(at)
    }
}
