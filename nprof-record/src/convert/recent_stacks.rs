//! The stacks of calls that were walked lately.

use std::hash::{Hash, Hasher};

use nprof_unwind::unwind::FrameAddress;
use rustc_hash::FxHasher;

/// The number of stacks that are remembered: 256 KiB. Two with one slot take turns, and are sent in full again.
const SLOTS: usize = 1 << 14;

/// The stacks of calls that were walked lately, by their hash. The words on which a walk depends take up to ten
/// times as long as the walk, and serve only a stack that is walked again.
#[derive(Debug, Default)]
pub(crate) struct RecentStacks {
    slots: Vec<Slot>,
}

/// The hash of a stack, and whether its words were searched in vain.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    hash: u64,
    is_in_vain: bool,
}

/// A stack of a process, by the stack pointer and the addresses of its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackHash(u64);

impl StackHash {
    /// Returns the hash of a stack.
    pub(crate) fn new(pid: u32, sp: u64, addresses: &[FrameAddress]) -> Self {
        let mut hasher = FxHasher::default();
        (pid, sp).hash(&mut hasher);
        addresses.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl RecentStacks {
    /// Notes a stack. Returns true if it was walked before, and its words were not searched in vain.
    pub(crate) fn is_repeated(&mut self, StackHash(hash): StackHash) -> bool {
        self.slots.resize(SLOTS, Slot::default());
        let slot = &mut self.slots[hash as usize % SLOTS];
        let is_repeated = slot.hash == hash && !slot.is_in_vain;
        if slot.hash != hash {
            *slot = Slot { hash, is_in_vain: false };
        }
        is_repeated
    }

    /// Notes that the words of a stack were searched in vain.
    pub(crate) fn note_in_vain(&mut self, StackHash(hash): StackHash) {
        if let Some(slot) = self.slots.get_mut(hash as usize % SLOTS) {
            *slot = Slot { hash, is_in_vain: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use nprof_object::RuntimeAddress;

    use super::*;

    #[test]
    fn stack_is_repeated_the_second_time_unless_in_vain() {
        let hash = |pid, sp, address| {
            StackHash::new(pid, sp, &[FrameAddress::Return(RuntimeAddress(address))])
        };
        let mut recent = RecentStacks::default();
        assert!(!recent.is_repeated(hash(1, 2, 3)));
        for other in [hash(2, 2, 3), hash(1, 3, 3), hash(1, 2, 4)] {
            assert!(!recent.is_repeated(other), "{other:?}");
        }
        assert!(recent.is_repeated(hash(1, 2, 3)));
        assert!(recent.is_repeated(hash(1, 2, 3)));
        recent.note_in_vain(hash(1, 2, 3));
        assert!(!recent.is_repeated(hash(1, 2, 3)));
    }
}
