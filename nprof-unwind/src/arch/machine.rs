//! The differences between processor architectures in the files of programs.

use gimli::Vendor;
use nprof_object::ImageAddress;
use object::elf;

use crate::arch::code_bytes::{Call, CodeBytes};
use crate::arch::rule::{RegisterRule, UnwindRule};
use crate::arch::{aarch64, x86_64};

/// The architecture of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Machine {
    /// Returns the architecture of a 64-bit ELF file (`e_machine`). None if its stacks are not unwound.
    pub fn of_elf(machine: elf::Machine) -> Option<Self> {
        match machine {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The architecture on which this program runs.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The architecture on which this program runs.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// Returns the rule of an instruction that the kernel executes elsewhere in a single step, for a probe that counts
    /// calls: the function has not changed the stack pointer before. None on 64-bit ARM, where it may be the one that
    /// does.
    pub fn stepped_rule(self) -> Option<UnwindRule> {
        (self == Self::X86_64).then(|| self.plt_rule(0, false))
    }

    /// Returns the number of registers that rules may name.
    pub(crate) fn registers(self) -> usize {
        match self {
            Self::X86_64 => x86_64::COUNT,
            Self::Aarch64 => aarch64::COUNT,
        }
    }

    /// Returns the number of the stack pointer.
    pub(crate) fn stack_pointer(self) -> u16 {
        match self {
            Self::X86_64 => x86_64::SP,
            Self::Aarch64 => aarch64::SP,
        }
    }

    /// Returns the number of the register with the return address of a call. None if it is on the stack.
    pub(crate) fn link(self) -> Option<u16> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some(aarch64::LINK),
        }
    }

    /// Returns the vendor of instructions of unwind tables with several meanings.
    pub(crate) fn vendor(self) -> Vendor {
        match self {
            Self::X86_64 => Vendor::Default,
            Self::Aarch64 => Vendor::AArch64,
        }
    }

    /// True if code generated at run time can be analyzed.
    pub(crate) fn has_generated_code(self) -> bool {
        self == Self::X86_64
    }

    /// Returns the unwind rule for an address that no table covers, by its code. With `returns` the address
    /// is a return address.
    pub(crate) fn rule(
        self,
        program: &mut impl CodeBytes,
        at: ImageAddress,
        returns: bool,
    ) -> Option<UnwindRule> {
        match self {
            Self::X86_64 => x86_64::code_analysis::rule(program, at, returns),
            Self::Aarch64 => aarch64::code_analysis::rule(program, at, returns),
        }
    }

    /// Returns the unwind rules at an address by the code before it: one for each place that may be the
    /// start of its function.
    pub(crate) fn rules_since_prologues(
        self,
        program: &mut impl CodeBytes,
        at: ImageAddress,
    ) -> Vec<UnwindRule> {
        match self {
            Self::X86_64 => x86_64::code_analysis::rules_since_prologues(program, at),
            Self::Aarch64 => aarch64::code_analysis::rules_since_prologues(program, at),
        }
    }

    /// True if the code does nothing but end the thread.
    pub(crate) fn is_thread_exit(self, program: &mut impl CodeBytes, at: ImageAddress) -> bool {
        match self {
            Self::X86_64 => x86_64::code_analysis::is_thread_exit(program, at),
            Self::Aarch64 => aarch64::code_analysis::is_thread_exit(program, at),
        }
    }

    /// True if all paths from an address end in a call that never returns.
    pub(crate) fn never_returns(self, program: &mut impl CodeBytes, at: ImageAddress) -> bool {
        self == Self::X86_64 && x86_64::code_analysis::never_returns(program, at)
    }

    /// Returns the lengths of call instructions, longest first.
    pub(crate) fn call_lengths(self) -> impl Iterator<Item = usize> {
        let (shortest, longest) = match self {
            Self::X86_64 => (2, x86_64::code_analysis::CALL_MAX_BYTES),
            Self::Aarch64 => (4, 4),
        };
        (shortest..=longest).rev()
    }

    /// Returns the call that ends the bytes of code before an address. None if no call ends there.
    pub(crate) fn call_before(self, code: &[u8]) -> Option<Call> {
        match self {
            Self::X86_64 => x86_64::code_analysis::call_before(code),
            Self::Aarch64 => aarch64::call_before(code),
        }
    }

    /// Returns the sections that hold procedure linkage tables, and whether their first entry is special.
    pub(crate) fn plt_sections(self) -> &'static [(&'static [u8], bool)] {
        match self {
            Self::X86_64 => &x86_64::plt::SECTIONS,
            Self::Aarch64 => &aarch64::plt::SECTIONS,
        }
    }

    /// Returns the rule at an offset in a procedure linkage table.
    pub(crate) fn plt_rule(self, at: u64, has_header: bool) -> UnwindRule {
        match self {
            Self::X86_64 => x86_64::plt::rule(at, has_header),
            Self::Aarch64 => aarch64::plt::rule(at, has_header),
        }
    }

    /// Returns the rule of the return address where the table has none.
    pub(crate) fn return_address_without_rule(self) -> RegisterRule {
        self.link().map_or(RegisterRule::Undefined, RegisterRule::Register)
    }

    /// Returns the instruction that calls the kernel.
    pub fn system_call(self) -> &'static [u8] {
        match self {
            Self::X86_64 => &x86_64::SYSTEM_CALL,
            Self::Aarch64 => &aarch64::SYSTEM_CALL,
        }
    }

    /// Returns the code to which signal handlers return.
    pub fn signal_return(self) -> &'static [u8] {
        match self {
            Self::X86_64 => &x86_64::SIGNAL_RETURN,
            Self::Aarch64 => &aarch64::SIGNAL_RETURN,
        }
    }
}
