//! Finds the stack of an allocation among those that the recorder knows; see `protocol::stack_memo`.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::fence;

use super::process::Ring;
use super::stack::Copy;
use crate::protocol::{MEMO_WAYS, MEMO_WORDS, Registers, StackMemo, first_of_set};

/// Returns the number of a stack of which `copy` would be recorded; None if the recorder does not know it.
pub(super) fn number(ring: &Ring, copy: &Copy, registers: &Registers) -> Option<u32> {
    let memos = ring.memos()?;
    let end = copy.readable_end()?;
    let first = first_of_set(registers.ip, registers.sp);
    memos[first..first + MEMO_WAYS].iter().find_map(|memo| matches(memo, registers, end))
}

/// Returns the number of a memo if it is that of the stack.
fn matches(memo: &StackMemo, registers: &Registers, end: usize) -> Option<u32> {
    // Acquire: the fields are those of this version or of a later one.
    let version = memo.version.load(Acquire);
    let sp = registers.sp as usize;
    let is_same = version != 0
        && version & 1 == 0
        && memo.ip.load(Relaxed) == registers.ip
        && memo.sp.load(Relaxed) == registers.sp
        && (memo.has_frame_pointer.load(Relaxed) == 0
            || memo.frame_pointer.load(Relaxed) == registers.fp);
    if !is_same {
        return None;
    }
    let words = memo.words.load(Relaxed) as usize;
    let room = end.saturating_sub(sp) / 8;
    for (distance, value) in memo.distances.iter().zip(&memo.values).take(words.min(MEMO_WORDS)) {
        let distance = usize::from(distance.load(Relaxed));
        if distance >= room {
            return None;
        }
        // SAFETY: the word is within the part of the stack that can be read. It is volatile: the compiler must not
        // assume anything of the memory of other functions.
        let word = unsafe { ((sp + 8 * distance) as *const u64).read_volatile() };
        if word != value.load(Relaxed) {
            return None;
        }
    }
    let number = memo.number.load(Relaxed);
    // The fields were read before this.
    fence(Acquire);
    (memo.version.load(Relaxed) == version).then_some(number)
}
