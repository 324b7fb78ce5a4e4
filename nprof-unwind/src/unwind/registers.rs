//! The registers of a frame.

use nprof_stream::Mark;

use crate::arch;

/// The bits of [`arch::PRESERVED`].
const PRESERVED_BITS: u32 = {
    let (mut bits, mut at) = (0, 0);
    while at < arch::PRESERVED.len() {
        bits |= 1 << arch::PRESERVED[at];
        at += 1;
    }
    bits
};

/// The registers of a frame, by DWARF's numbers. Some may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [u64; arch::COUNT],
    /// A bit for each register with a known value.
    known: u32,
}

impl Registers {
    /// Returns the value of a register.
    ///
    /// # Errors
    ///
    /// [`Mark::UnwindFailed`] if it is unknown.
    #[inline]
    pub fn get(&self, register: u16) -> Result<u64, Mark> {
        let known = register < 32 && self.known >> register & 1 != 0;
        self.values.get(usize::from(register)).copied().filter(|_| known).ok_or(Mark::UnwindFailed)
    }

    /// Sets the value of a register. A number that the architecture does not have is ignored.
    #[inline]
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(register)) {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    /// Makes all registers unknown but those that a function gives back as it found them.
    #[inline]
    pub(super) fn keep_preserved(&mut self) {
        self.known &= PRESERVED_BITS;
    }

    /// Makes a register unknown.
    #[inline]
    pub(super) fn forget(&mut self, register: u16) {
        self.known &= !(1u32.checked_shl(u32::from(register)).unwrap_or(0));
    }

    /// True if all registers that are known here are known there, too, with the same values.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let same = |at: usize| self.known >> at & 1 == 0 || self.values[at] == other.values[at];
        self.known & !other.known == 0 && (0..arch::COUNT).all(same)
    }

    /// Returns the registers of a sample, given their values in the order of [`arch::MASK`]. None
    /// if some are missing.
    pub fn from_sample(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut registers = Self::default();
        // The kernel writes the values in the order of their bits in the mask.
        let mut count = 0;
        for (&number, value) in arch::NUMBERS.iter().zip(values) {
            registers.set(number, value);
            count += 1;
        }
        (count == arch::COUNT).then_some(registers)
    }

    /// Returns the instruction pointer and the stack pointer alone.
    pub fn pointers_only(&self) -> Self {
        let mut pointers = Self::default();
        for register in [arch::IP, arch::SP] {
            if let Ok(value) = self.get(register) {
                pointers.set(register, value);
            }
        }
        pointers
    }
}
