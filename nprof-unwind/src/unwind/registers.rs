//! The registers of a frame.

use nprof_stream::Mark;

use crate::arch::{Architecture, Native};

/// The registers of a frame, by DWARF's numbers. Some may be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers<A: Architecture = Native> {
    values: A::Values,
    /// A bit for each register with a known value.
    known: u64,
}

impl<A: Architecture> Default for Registers<A> {
    #[inline]
    fn default() -> Self {
        Self { values: A::NO_VALUES, known: 0 }
    }
}

impl<A: Architecture> Registers<A> {
    /// The bits of [`Architecture::PRESERVED`].
    const PRESERVED_BITS: u64 = {
        let (mut bits, mut at) = (0, 0);
        while at < A::PRESERVED.len() {
            bits |= 1 << A::PRESERVED[at];
            at += 1;
        }
        bits
    };

    /// Returns the value of a register.
    ///
    /// # Errors
    ///
    /// [`Mark::UnwindFailed`] if it is unknown.
    #[inline]
    pub fn get(&self, register: u16) -> Result<u64, Mark> {
        let known = register < 64 && self.known >> register & 1 != 0;
        let values = self.values.as_ref();
        values.get(usize::from(register)).copied().filter(|_| known).ok_or(Mark::UnwindFailed)
    }

    /// Sets the value of a register. A number that the architecture does not have is ignored.
    #[inline]
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(slot) = self.values.as_mut().get_mut(usize::from(register)) {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    /// Makes all registers unknown but those that a function gives back as it found them.
    #[inline]
    pub(super) fn keep_preserved(&mut self) {
        self.known &= Self::PRESERVED_BITS;
    }

    /// Makes a register unknown.
    #[inline]
    pub(super) fn forget(&mut self, register: u16) {
        self.known &= !(1u64.checked_shl(u32::from(register)).unwrap_or(0));
    }

    /// True if all registers that are known here are known there, too, with the same values.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let mut values = self.values.as_ref().iter().zip(other.values.as_ref()).enumerate();
        self.known & !other.known == 0
            && values.all(|(at, (here, there))| self.known >> at & 1 == 0 || here == there)
    }

    /// Returns the registers of a sample, given their values in the order of the kernel. None if some are
    /// missing.
    pub fn from_sample(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut registers = Self::default();
        // The kernel writes the values in the order of their bits in the mask.
        let mut count = 0;
        for (&number, value) in A::NUMBERS.iter().zip(values) {
            registers.set(number, value);
            count += 1;
        }
        (count == A::NUMBERS.len()).then_some(registers)
    }

    /// Returns the registers of a sample that has those of a mask, given their values in the order of its bits.
    /// Those that are not in [`Architecture::MASK`] are left out.
    pub fn from_mask(mask: u64, mut values: impl Iterator<Item = u64>) -> Self {
        let mut registers = Self::default();
        for bit in (0..64).filter(|bit| mask >> bit & 1 != 0) {
            let Some(value) = values.next() else { break };
            let before = (A::MASK & ((1 << bit) - 1)).count_ones() as usize;
            if A::MASK >> bit & 1 != 0
                && let Some(&number) = A::NUMBERS.get(before)
            {
                registers.set(number, value);
            }
        }
        registers
    }

    /// Returns the instruction pointer and the stack pointer alone.
    pub fn pointers_only(&self) -> Self {
        self.only(&[A::IP, A::SP])
    }

    /// Returns those that /proc/PID/syscall has of a thread in a system call, as far as a walk uses them. The
    /// vfork(2) of glibc keeps its return address in the register of the argument on x86-64: the child shares
    /// the stack.
    pub fn of_system_call(&self) -> Self {
        self.only(&[A::IP, A::SP, A::ARGUMENT])
    }

    fn only(&self, kept: &[u16]) -> Self {
        let mut registers = Self::default();
        for &register in kept {
            if let Ok(value) = self.get(register) {
                registers.set(register, value);
            }
        }
        registers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::aarch64::{self, Aarch64};
    use crate::arch::x86_64::{self, X86_64};

    #[test]
    fn registers_of_a_larger_mask_are_found_by_their_bits() {
        // perf records the flags and two segments on x86-64, which lie before r8.
        let mask = 0x00ff_0fff;
        let registers = Registers::<X86_64>::from_mask(mask, 100..);
        assert_eq!(registers.get(x86_64::SP), Ok(107));
        assert_eq!(registers.get(x86_64::IP), Ok(108));
        assert_eq!([8, 15].map(|number| registers.get(number)), [Ok(112), Ok(119)]);
        let few = Registers::<X86_64>::from_mask(mask, 100..108);
        assert!(few.get(x86_64::SP).is_ok() && few.get(x86_64::IP).is_err());
        let registers = Registers::<Aarch64>::from_mask(u64::MAX, 100..);
        let known = [aarch64::FP, aarch64::LINK, aarch64::SP, aarch64::IP];
        assert_eq!(known.map(|number| registers.get(number)), [Ok(129), Ok(130), Ok(131), Ok(132)]);
    }
}
