//! The differences between processor architectures in a walk of a stack.

use std::fmt::Debug;

/// The registers and frames of a processor architecture. A walk is compiled for each.
///
/// Registers are numbers of DWARF.
pub trait Architecture: Clone + Copy + Debug + Default + PartialEq + Eq + 'static {
    /// The values of all registers.
    type Values: Clone + Copy + Debug + PartialEq + Eq + AsRef<[u64]> + AsMut<[u64]>;
    /// A byte for each register of [`Self::PRESERVED`].
    type Saved: Clone + Copy + Debug + PartialEq + Eq + AsRef<[u8]> + AsMut<[u8]>;

    /// No values.
    const NO_VALUES: Self::Values;
    /// Zeros.
    const NONE_SAVED: Self::Saved;
    /// The frame pointer.
    const FP: u16;
    /// The stack pointer.
    const SP: u16;
    /// The number under which the instruction pointer is kept.
    const IP: u16;
    /// The register with the first argument of a system call.
    const ARGUMENT: u16;
    /// The register in which a call leaves its return address. None if it pushes it to the stack.
    const LINK: Option<u16>;
    /// The registers that a function gives back as it found them.
    const PRESERVED: &'static [u16];
    /// The bits of registers in samples of the kernel (`PERF_REG_*`) that a walk uses.
    const MASK: u64;
    /// The registers of [`Self::MASK`], in the order of their bits.
    const NUMBERS: &'static [u16];
    /// The offsets from the stack pointer at which the kernel saves the registers of a frame that a signal
    /// interrupted.
    const SIGNAL_SAVED: &'static [(u16, i64)];

    /// Adapts all walks to the machine that has this address in the main stack of a program: the size of its
    /// addresses decides which bits of a return address are a signature.
    fn set_machine(_main_stack: u64) {}

    /// Returns the code address in a word: some processors keep a signature in its upper bits.
    #[inline]
    fn code_address(word: u64) -> u64 {
        word
    }

    /// Returns the CFA of a frame of the interpreter of HotSpot. None if the stack does not show it.
    fn interpreter_cfa(_fp: u64, _sp: u64, _read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        None
    }
}
