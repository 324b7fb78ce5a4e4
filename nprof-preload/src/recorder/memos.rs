//! The memos of known stacks in a ring, written by the recorder.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use super::mapping::Mapping;
use crate::protocol::{MEMO_WAYS, MEMO_WORDS, MEMOS, StackMemo, first_of_set};

/// A stack for a memo: the data that its walk depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkedStack<'a> {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, if the walk depends on it.
    pub frame_pointer: Option<u64>,
    /// Addresses and values of words, ascending.
    pub words: &'a [(u64, u64)],
}

/// The memos of a ring.
#[derive(Debug, Clone)]
pub struct Memos {
    mapping: Arc<Mapping>,
    offset: usize,
    /// The memo that was written last, of each set.
    latest: Vec<u8>,
    /// The numbers of the stacks in the memos, 0 if there is none. The program may overwrite its copy.
    numbers: Vec<u32>,
}

impl Memos {
    /// Returns the memos at an offset, a multiple of their alignment, of a mapping that ends after them.
    pub(super) fn new(mapping: Arc<Mapping>, offset: usize) -> Self {
        Memos { mapping, offset, latest: vec![0; MEMOS / MEMO_WAYS], numbers: vec![0; MEMOS] }
    }

    /// Writes a stack with its number, which is not 0, into a memo. Returns the number of the stack that it replaces;
    /// None if it replaces none.
    ///
    /// # Errors
    ///
    /// If the stack has too many words, or one too far from the stack pointer.
    pub fn write(&mut self, stack: &WalkedStack<'_>, number: u32) -> Result<Option<u32>, TooLarge> {
        let distance = |address: u64| {
            let bytes = address.checked_sub(stack.sp).filter(|bytes| bytes.is_multiple_of(8))?;
            u16::try_from(bytes / 8).ok()
        };
        let distances: Option<Vec<u16>> =
            stack.words.iter().map(|&(address, _)| distance(address)).collect();
        let distances = distances.filter(|it| it.len() <= MEMO_WORDS).ok_or(TooLarge)?;
        let first = first_of_set(stack.ip, stack.sp);
        let latest = &mut self.latest[first / MEMO_WAYS];
        *latest = (*latest + 1) % MEMO_WAYS as u8;
        let at = first + usize::from(*latest);
        let memo = self.memo(at);
        let version = memo.version.load(Relaxed);
        let odd = version | 1;
        memo.version.store(odd, Relaxed);
        // The library sees the odd version before any other change.
        fence(Release);
        memo.number.store(number, Relaxed);
        memo.words.store(distances.len() as u32, Relaxed);
        memo.has_frame_pointer.store(u32::from(stack.frame_pointer.is_some()), Relaxed);
        memo.ip.store(stack.ip, Relaxed);
        memo.sp.store(stack.sp, Relaxed);
        memo.frame_pointer.store(stack.frame_pointer.unwrap_or(0), Relaxed);
        for (index, (distance, (_, value))) in distances.iter().zip(stack.words).enumerate() {
            memo.distances[index].store(*distance, Relaxed);
            memo.values[index].store(*value, Relaxed);
        }
        // Never 0, which is no stack.
        memo.version.store(odd.wrapping_add(1).max(2), Release);
        let before = std::mem::replace(&mut self.numbers[at], number);
        Ok((before != 0).then_some(before))
    }

    fn memo(&self, index: usize) -> &StackMemo {
        debug_assert!(index < MEMOS);
        // SAFETY: the mapping has all memos from the offset on, which is aligned, and lives as long as `self`; all
        // fields are atomics, for which any bytes are valid.
        unsafe { &*self.mapping.address(self.offset).cast::<StackMemo>().add(index) }
    }
}

/// Values of the same ring are equal.
impl PartialEq for Memos {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
    }
}

impl Eq for Memos {}

/// A stack that does not fit into a memo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;
