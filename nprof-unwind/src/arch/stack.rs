//! The layout of stacks that all architectures have.

use crate::arch::rule::RegisterRule;

/// Bytes of a word of the stack.
pub const WORD: u64 = 8;

/// The rule of a return address in the word below the CFA: there x86-64 calls push it, and functions of LLVM for
/// 64-bit ARM save it. Functions of gcc for 64-bit ARM save it elsewhere.
pub const RETURN_ADDRESS_BELOW_CFA: RegisterRule = RegisterRule::AtCfaOffset(-8);

/// Returns the address of the word below a CFA. None if there cannot be one.
pub fn return_address_slot(cfa: u64) -> Option<u64> {
    cfa.checked_sub(WORD)
}

/// The offset of the return address from the word that the frame pointer points to, which holds
/// the frame pointer of the caller.
pub const FRAME_RECORD_RETURN_ADDRESS: u64 = 8;

/// Bytes of the frame record.
pub const FRAME_RECORD: u64 = 16;
