//! The rules of called functions in a compact form, and their steps: nearly all steps of all walks.
//! Pure.
//!
//! A step by an [`UnwindRule`] interprets its parts one by one. In this form a rule has 12 bytes, and its
//! step reads the words of a frame as one piece.

use nprof_object::RuntimeAddress;

use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};
use crate::arch::stack::{RETURN_ADDRESS_BELOW_CFA, WORD};
use crate::arch::{Architecture, Native};
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackCopy;

/// The rule of a function that was called: the CFA lies at a distance from a register, the return
/// address below it, and each register that the function gives back is unchanged or saved near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactRule<A: Architecture = Native> {
    /// The distance of the CFA from the register `base`.
    offset: i32,
    base: u8,
    /// The number of words below the CFA that are read.
    words: u8,
    /// For each register of [`Architecture::PRESERVED`] the number of words from its place up to the CFA; 0 if
    /// it is unchanged.
    saved: A::Saved,
}

impl<A: Architecture> CompactRule<A> {
    /// Returns the compact form of a rule. None if it has none.
    pub fn of(rule: &UnwindRule) -> Option<Self> {
        if rule.signal || rule.return_address != RETURN_ADDRESS_BELOW_CFA {
            return None;
        }
        let Cfa::Register(base, offset) = rule.cfa else { return None };
        let (base, offset) = (u8::try_from(base).ok()?, i32::try_from(offset).ok()?);
        let mut saved = A::NONE_SAVED;
        for (register, place) in &rule.registers {
            let at = A::PRESERVED.iter().position(|preserved| preserved == register)?;
            saved.as_mut()[at] = match place {
                RegisterRule::SameValue => 0,
                RegisterRule::AtCfaOffset(offset) => words_below_cfa(*offset)?,
                _ => return None,
            };
        }
        // The return address lies in the first word.
        let words = saved.as_ref().iter().copied().fold(1, u8::max);
        Some(Self { offset, base, words, saved })
    }

    /// Replaces the registers of a frame by those of its caller, and returns the return address. None,
    /// with the registers as they were, if the step by the rule itself may have another result than a
    /// return address: the copy lacks a word, the address is 0, or the caller is not above the frame.
    #[inline]
    pub(super) fn step(
        &self,
        registers: &mut Registers<A>,
        stack: &StackCopy<'_>,
    ) -> Option<RuntimeAddress> {
        let base = registers.get(u16::from(self.base)).ok()?;
        let cfa = base.wrapping_add_signed(i64::from(self.offset));
        if cfa <= registers.get(A::SP).ok()? {
            return None;
        }
        let frame = stack.words_below(cfa, self.words)?;
        let ip = A::code_address(frame.word(1)?);
        if ip == 0 {
            return None;
        }
        registers.keep_preserved();
        for (&register, &distance) in A::PRESERVED.iter().zip(self.saved.as_ref()) {
            if distance > 0 {
                registers.set(register, frame.word(distance)?);
            }
        }
        registers.set(A::SP, cfa);
        registers.set(A::IP, ip);
        Some(RuntimeAddress(ip))
    }
}

/// Returns the number of words from a place up to the CFA. None for the return address, places above the
/// CFA and those that are not aligned or far away.
fn words_below_cfa(offset: i64) -> Option<u8> {
    let bytes = offset.checked_neg()?;
    let words = u8::try_from(bytes / WORD as i64).ok()?;
    (words > 1 && bytes % WORD as i64 == 0).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    type CompactRule = super::CompactRule;

    fn rule(cfa: Cfa, registers: &[(u16, RegisterRule)]) -> UnwindRule {
        let return_address = RETURN_ADDRESS_BELOW_CFA;
        UnwindRule { cfa, return_address, registers: registers.into(), signal: false }
    }

    #[test]
    fn only_rules_of_called_functions_have_a_compact_form() {
        let cfa = || Cfa::Register(arch::SP, 32);
        let saved = |offset| [(arch::FP, RegisterRule::AtCfaOffset(offset))];
        assert!(CompactRule::of(&rule(cfa(), &saved(-16))).is_some());
        assert!(CompactRule::of(&rule(cfa(), &saved(-255 * 8))).is_some());
        for offset in [0, -4, -8, -12, -20, 8, -256 * 8, i64::MIN] {
            assert_eq!(CompactRule::of(&rule(cfa(), &saved(offset))), None, "{offset}");
        }
        let places = [RegisterRule::Undefined, RegisterRule::CfaPlus(0), RegisterRule::Register(3)];
        for place in places {
            assert_eq!(CompactRule::of(&rule(cfa(), &[(arch::FP, place)])), None);
        }
        let scratch = [(0, RegisterRule::AtCfaOffset(-16))];
        assert_eq!(CompactRule::of(&rule(cfa(), &scratch)), None);
        assert_eq!(CompactRule::of(&rule(Cfa::Register(arch::SP, 1 << 40), &[])), None);
        let signal = UnwindRule { signal: true, ..rule(cfa(), &[]) };
        assert_eq!(CompactRule::of(&signal), None);
        let end = UnwindRule { return_address: RegisterRule::Undefined, ..rule(cfa(), &[]) };
        assert_eq!(CompactRule::of(&end), None);
    }

    #[test]
    fn step_that_fails_leaves_the_registers() {
        let bytes: Vec<u8> = [7, 0, 9].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let stack = StackCopy::new(0x1000, &bytes);
        let mut registers = Registers::default();
        registers.set(arch::SP, 0x1000);
        let before = registers;
        let of = |cfa| CompactRule::of(&rule(cfa, &[])).expect("it is compact");
        let zero = of(Cfa::Register(arch::SP, 16));
        let beyond = of(Cfa::Register(arch::SP, 32));
        let unknown = of(Cfa::Register(arch::FP, 16));
        let not_above = of(Cfa::Register(arch::SP, 0));
        for rule in [zero, beyond, unknown, not_above] {
            assert_eq!(rule.step(&mut registers, &stack), None, "{rule:?}");
            assert_eq!(registers, before);
        }
        let found = of(Cfa::Register(arch::SP, 24)).step(&mut registers, &stack);
        assert_eq!(found, Some(RuntimeAddress(9)));
    }
}
