//! x86-64.

pub(crate) mod code_analysis;
mod code_state;
mod frames;
pub(crate) mod generated_code;
pub(crate) mod plt;
mod registers;

pub use frames::{SIGNAL_RETURN, SIGNAL_SAVED, SYSTEM_CALL};
pub use registers::{ARGUMENT, CALL_SAVED, COUNT, FP, IP, MASK, NAMES, NUMBERS, PRESERVED, SP};

use crate::arch::architecture::Architecture;

/// x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct X86_64;

impl Architecture for X86_64 {
    type Values = [u64; COUNT];
    type Saved = [u8; PRESERVED.len()];

    const NO_VALUES: Self::Values = [0; COUNT];
    const NONE_SAVED: Self::Saved = [0; PRESERVED.len()];
    const FP: u16 = FP;
    const SP: u16 = SP;
    const IP: u16 = IP;
    const ARGUMENT: u16 = ARGUMENT;
    const LINK: Option<u16> = None;
    const PRESERVED: &'static [u16] = &PRESERVED;
    const MASK: u64 = MASK;
    const NUMBERS: &'static [u16] = &NUMBERS;
    const SIGNAL_SAVED: &'static [(u16, i64)] = &SIGNAL_SAVED;

    fn interpreter_cfa(fp: u64, sp: u64, read: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        generated_code::interpreter_cfa(fp, sp, read)
    }
}
