//! 64-bit ARM.

pub(crate) mod code_analysis;
mod code_state;
mod frames;
pub(crate) mod plt;
mod registers;

pub use frames::{SIGNAL_RETURN, SIGNAL_SAVED, SYSTEM_CALL, code_address};
pub use registers::{
    ARGUMENT, CALL_SAVED, COUNT, FP, IP, LINK, MASK, NAMES, NUMBERS, PRESERVED, SP,
};

use crate::arch::architecture::Architecture;
use crate::arch::code_bytes::Call;

/// 64-bit ARM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aarch64;

impl Architecture for Aarch64 {
    type Values = [u64; COUNT];
    type Saved = [u8; PRESERVED.len()];

    const NO_VALUES: Self::Values = [0; COUNT];
    const NONE_SAVED: Self::Saved = [0; PRESERVED.len()];
    const FP: u16 = FP;
    const SP: u16 = SP;
    const IP: u16 = IP;
    const ARGUMENT: u16 = ARGUMENT;
    const LINK: Option<u16> = Some(LINK);
    const PRESERVED: &'static [u16] = &PRESERVED;
    const MASK: u64 = MASK;
    const NUMBERS: &'static [u16] = &NUMBERS;
    const SIGNAL_SAVED: &'static [(u16, i64)] = &SIGNAL_SAVED;

    fn set_machine(main_stack: u64) {
        frames::set_address_bits(main_stack);
    }

    #[inline]
    fn code_address(word: u64) -> u64 {
        code_address(word)
    }
}

/// Returns the call in the bytes of an instruction: `bl`, or `blr` with its variants that check a
/// signature (Arm Architecture Reference Manual, C4.1.66).
pub(crate) fn call_before(code: &[u8]) -> Option<Call> {
    let instruction = u32::from_le_bytes(code.try_into().ok()?);
    match instruction {
        _ if instruction >> 26 == 0b10_0101 => Some(Call::Direct),
        _ if instruction & 0xffff_fc1f == 0xd63f_0000 => Some(Call::Indirect),
        // blraaz, blrabz; blraa, blrab.
        _ if instruction & 0xfeff_f800 == 0xd63f_0800 => Some(Call::Indirect),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_jumps() {
        let call = |instruction: u32| call_before(&instruction.to_le_bytes());
        assert_eq!(call(0x9400_0010), Some(Call::Direct), "bl");
        assert_eq!(call(0xd63f_0120), Some(Call::Indirect), "blr x9");
        assert_eq!(call(0xd63f_093f), Some(Call::Indirect), "blraaz x9");
        assert_eq!(call(0xd73f_092a), Some(Call::Indirect), "blraa x9, x10");
        for jump in [0x1400_0010, 0xd61f_0120, 0xd65f_03c0, 0xd503_201f] {
            assert_eq!(call(jump), None, "b, br, ret, nop");
        }
        assert_eq!(call_before(&[0x94]), None);
    }

    #[test]
    fn signatures_are_removed_from_return_addresses() {
        assert_eq!(code_address(0x003c_aaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
        assert_eq!(code_address(0xaaaa_bbbb_cccc), 0xaaaa_bbbb_cccc);
    }
}
