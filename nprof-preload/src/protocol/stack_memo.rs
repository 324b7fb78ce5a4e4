//! Stacks that the recorder knows, in shared memory. Pure.
//!
//! A walk reads a few words of the stack: the return addresses, and frame pointers where frames are found by them.
//! If the registers and these words are equal, the walk is the same, whatever else the stack holds. The recorder
//! writes them into a memo after the first walk. The library compares them with the stack of an allocation, and
//! sends the number of the memo in the place of a copy of the stack.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The number of memos of a ring that has them, a power of two.
pub const MEMOS: usize = 4096;
/// The number of memos at which a stack may be, those of a set.
pub const MEMO_WAYS: usize = 4;
/// The most words of a memo: deeper stacks are always copied.
pub const MEMO_WORDS: usize = 64;

/// A known stack. The recorder alone writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StackMemo {
    /// 0 before the first stack, odd while the recorder writes it. The library reads it before and after the others.
    pub version: AtomicU32,
    /// The number of the stack, which the library sends.
    pub number: AtomicU32,
    /// The number of words.
    pub words: AtomicU32,
    /// 1 if the frame pointer must be equal, too.
    pub has_frame_pointer: AtomicU32,
    /// The return address of the hooked function.
    pub ip: AtomicU64,
    /// The stack pointer after the return.
    pub sp: AtomicU64,
    /// The frame pointer.
    pub frame_pointer: AtomicU64,
    /// The distances of the words from the stack pointer, in words, ascending.
    pub distances: [AtomicU16; MEMO_WORDS],
    /// The words.
    pub values: [AtomicU64; MEMO_WORDS],
}

/// The size of all memos, which follow the data of a ring.
pub const MEMO_BYTES: usize = MEMOS * size_of::<StackMemo>();

/// Returns the index of the first memo at which a stack may be.
pub fn first_of_set(ip: u64, sp: u64) -> usize {
    let key = (ip ^ sp.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> (64 - MEMOS.trailing_zeros())) as usize & !(MEMO_WAYS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_are_within_the_memos(ip: u64, sp: u64) {
            let first = first_of_set(ip, sp);
            prop_assert!(first.is_multiple_of(MEMO_WAYS) && first + MEMO_WAYS <= MEMOS);
        }
    }
}
