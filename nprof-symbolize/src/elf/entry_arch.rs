//! The instruction of a function at which a probe counts its calls. Pure over bytes.

use object::elf;

use super::entry::{Branch, End, Jumps, NoPlace, Place};
use super::{entry_aarch64, entry_x86_64};

/// An architecture with probes for calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryArch {
    /// x86-64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl EntryArch {
    /// Returns the architecture of a machine, `EM_*`. None if it has no probes for calls.
    pub(crate) fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            machine if machine == elf::EM_X86_64.0 => Some(Self::X86_64),
            machine if machine == elf::EM_AARCH64.0 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Reads the jumps of a function at the address `start`, and passes its branches on.
    pub(crate) fn jumps(self, code: &[u8], start: u64, visit: impl FnMut(Branch)) -> Jumps {
        match self {
            Self::X86_64 => entry_x86_64::jumps(code, start, visit),
            Self::Aarch64 => entry_aarch64::jumps(code, start, visit),
        }
    }

    /// Returns the returns and the direct jumps of code at the address `start`. None if no probe can be at one
    /// of the returns.
    pub(crate) fn ends(self, code: &[u8], start: u64, has_shadow_stack: bool) -> Option<Vec<End>> {
        match self {
            Self::X86_64 => Some(entry_x86_64::ends(code, start)),
            Self::Aarch64 => entry_aarch64::ends(code, start, has_shadow_stack),
        }
    }

    /// Returns the offsets of the instructions of a function.
    pub(crate) fn instructions(self, code: &[u8]) -> Vec<u64> {
        match self {
            Self::X86_64 => entry_x86_64::instructions(code).collect(),
            Self::Aarch64 => (0..code.len() as u64).step_by(4).collect(),
        }
    }

    /// Returns the instruction for the probe of a function.
    ///
    /// `limit` is the first address after `start` that a branch of any function leads to. With
    /// `has_shadow_stack`, a return from an emulated call would end the program.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn place(
        self,
        code: &[u8],
        start: u64,
        limit: u64,
        jumps: Jumps,
        has_shadow_stack: bool,
    ) -> Result<Place, NoPlace> {
        match self {
            Self::X86_64 => entry_x86_64::place(code, start, limit, jumps, has_shadow_stack),
            // Most instructions have a single step, which takes one more exception.
            Self::Aarch64 => entry_aarch64::place(code, start, limit, jumps)
                .map(|address| Place { address, is_slow: false }),
        }
    }
}
