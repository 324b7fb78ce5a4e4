//! One bit for each 8 bytes of the address space: set if a sampled block begins there. glibc and musl align blocks to
//! 16 bytes, but jemalloc, tcmalloc and mimalloc align those of at most 8 bytes to 8.
//!
//! free(3) must know at once whether a block was sampled, without a lock and without a false answer. A top table
//! has one entry for each GiB; its leaves have 16 MiB of address space each, of which the kernel provides the pages
//! around sampled blocks. Reading other pages maps the kernel's page of zeros.
#![allow(unsafe_code)]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::arch::{ADDRESS_BITS, POINTER_BITS};
use super::sys;

/// The entries of the top table: a GiB each of the user addresses.
const TOP_ENTRIES: usize = 1 << (ADDRESS_BITS - 30);
/// The size of a leaf in bytes.
const LEAF_BYTES: usize = 1 << 24;

/// The leaves. The hook of free(3) reads it in assembly.
pub(super) static TOP: [AtomicPtr<AtomicU32>; TOP_ENTRIES] =
    [const { AtomicPtr::new(null_mut()) }; TOP_ENTRIES];

/// The place of an address's bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bit {
    top: usize,
    word: usize,
    mask: u32,
}

impl Bit {
    /// Returns the place of the bit of an address; None above the table.
    fn of(pointer: usize) -> Option<Self> {
        let address = pointer & (usize::MAX >> (usize::BITS - POINTER_BITS));
        let top = address >> 30;
        let bit = (address >> 3) & ((1 << 27) - 1);
        (top < TOP_ENTRIES).then_some(Bit { top, word: bit / 32, mask: 1 << (bit % 32) })
    }

    /// Returns the word of the bit, if its leaf exists.
    fn word(self) -> Option<&'static AtomicU32> {
        let leaf = TOP[self.top].load(Ordering::Acquire);
        // SAFETY: a leaf is never unmapped, and `word` is below the number of its words.
        (!leaf.is_null()).then(|| unsafe { &*leaf.add(self.word) })
    }
}

/// Makes sure that the leaf of an address exists; false if it cannot be marked.
pub(super) fn prepare(address: usize) -> bool {
    let Some(bit) = Bit::of(address) else { return false };
    if bit.word().is_some() {
        return true;
    }
    let Some(leaf) = sys::map_memory(LEAF_BYTES) else { return false };
    // A huge page would take 2 MiB for one bit.
    sys::advise(leaf, LEAF_BYTES, sys::MADV_NOHUGEPAGE);
    // Release: the mapping is complete before another thread sees it. A thread that loses the race uses the other
    // leaf.
    if TOP[bit.top]
        .compare_exchange(null_mut(), leaf.cast(), Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        sys::unmap(leaf, LEAF_BYTES);
    }
    true
}

/// Marks a block whose leaf exists. Relaxed: the program hands the address to another thread only after the hook
/// returned, with its own synchronization, which orders this store before that thread's free(3).
pub(super) fn mark(address: usize) {
    if let Some(bit) = Bit::of(address)
        && let Some(word) = bit.word()
    {
        word.fetch_or(bit.mask, Ordering::Relaxed);
    }
}

/// Removes the mark of a block; returns whether it was marked. Of several calls one returns true.
pub(super) fn unmark(address: usize) -> bool {
    let Some(bit) = Bit::of(address) else { return false };
    let Some(word) = bit.word() else { return false };
    // The load keeps the page unwritten, and the cache line shared, for blocks that are not sampled.
    word.load(Ordering::Relaxed) & bit.mask != 0
        && word.fetch_and(!bit.mask, Ordering::Relaxed) & bit.mask != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_of_different_blocks_differ(first in 0..1_usize << 44, second in 0..1_usize << 44) {
            let (one, other) = (Bit::of(first << 3), Bit::of(second << 3));
            prop_assert!(one.is_some());
            prop_assert_eq!(one == other, first == second);
        }

        #[test]
        fn words_are_within_a_leaf(address in 0..1_usize << 47) {
            prop_assert!(Bit::of(address).is_some_and(|bit| (bit.word + 1) * 4 <= LEAF_BYTES));
        }
    }

    #[test]
    fn addresses_above_the_table_have_no_bit() {
        assert_eq!(Bit::of(1 << ADDRESS_BITS), None);
        assert!(!prepare(1 << ADDRESS_BITS));
    }

    #[test]
    fn unmark_returns_true_once() {
        let address = 0x1234_5678_9ab0;
        assert!(!unmark(address));
        assert!(prepare(address));
        mark(address);
        assert!(!unmark(address + 8));
        assert!(unmark(address));
        assert!(!unmark(address));
    }
}
