//! The records that hooks of a thread have reserved and not yet completed.
//!
//! A signal handler may interrupt a hook that writes a record, and leave by longjmp(3): the hook never goes on, and
//! the recorder would wait for its record. The next record of the thread finds it here.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use super::sys;
use crate::protocol::Registers;

/// The most records that a thread writes at a time: one, and those of signal handlers that interrupt each other.
pub(super) const LEVELS: usize = 3;

/// The call of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller {
    /// The return address.
    ip: usize,
    /// The stack pointer after the return: the return address is below it.
    sp: usize,
}

/// A reserved record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The commit word that completes it.
    pub(super) commit: u64,
    /// Its size.
    pub(super) bytes: u32,
    /// The bytes of padding before it.
    pub(super) padding: u32,
}

/// A record that a thread writes.
#[repr(C)]
pub(super) struct Unfinished {
    /// `Reserved::commit`; 0 until the record is reserved.
    commit: AtomicU64,
    bytes: AtomicU32,
    padding: AtomicU32,
    ip: AtomicUsize,
    sp: AtomicUsize,
}

impl Caller {
    /// Returns the caller of a hook with its return address below `sp`.
    ///
    /// # Safety
    ///
    /// The hook must not have returned.
    pub(super) unsafe fn at(sp: usize) -> Self {
        // SAFETY: the caller vouches for the stack.
        Caller { ip: unsafe { *((sp - 8) as *const usize) }, sp }
    }
}

impl From<&Registers> for Caller {
    fn from(registers: &Registers) -> Self {
        Caller { ip: registers.ip as usize, sp: registers.sp as usize }
    }
}

impl Unfinished {
    /// Notes the hook that is about to reserve the record.
    pub(super) fn begin(&self, caller: Caller) {
        self.commit.store(0, Relaxed);
        self.ip.store(caller.ip, Relaxed);
        self.sp.store(caller.sp, Relaxed);
    }

    /// Notes the record.
    pub(super) fn reserved(&self, record: Reserved) {
        self.bytes.store(record.bytes, Relaxed);
        self.padding.store(record.padding, Relaxed);
        self.commit.store(record.commit, Relaxed);
    }

    /// Returns the record; None if its hook was interrupted before it knew that it had reserved one.
    pub(super) fn record(&self) -> Option<Reserved> {
        let commit = self.commit.load(Relaxed);
        let (bytes, padding) = (self.bytes.load(Relaxed), self.padding.load(Relaxed));
        (commit != 0).then_some(Reserved { commit, bytes, padding })
    }

    /// True if its hook will not go on, as the call of another hook in the same thread shows. A false answer only
    /// means that it may.
    pub(super) fn is_abandoned(&self, later: Caller) -> bool {
        let (ip, sp) = (self.ip.load(Relaxed), self.sp.load(Relaxed));
        // A handler is below the hook that it interrupts, unless it has a stack of its own.
        (later.sp >= sp && !sys::is_on_signal_stack())
            // Other calls have overwritten the return address of the hook. Its stack may be unmapped by now.
            || sys::read_word(sp.wrapping_sub(8)) != Some(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished(ip: usize, sp: usize) -> Unfinished {
        let unfinished = Unfinished {
            commit: AtomicU64::new(5),
            bytes: AtomicU32::new(0),
            padding: AtomicU32::new(0),
            ip: AtomicUsize::new(0),
            sp: AtomicUsize::new(0),
        };
        unfinished.begin(Caller { ip, sp });
        unfinished
    }

    #[test]
    fn record_exists_once_it_is_reserved() {
        let unfinished = unfinished(1, 2);
        assert_eq!(unfinished.record(), None);
        let record = Reserved { commit: 7, bytes: 32, padding: 16 };
        unfinished.reserved(record);
        assert_eq!(unfinished.record(), Some(record));
    }

    #[test]
    fn hook_is_abandoned_if_its_frame_is_gone() {
        let stack = [11_usize, 12, 13, 14];
        let sp = |index: usize| stack.as_ptr() as usize + 8 * index;
        let inner = unfinished(12, sp(2));
        assert!(!inner.is_abandoned(Caller { ip: 0, sp: sp(1) }), "a handler below it");
        assert!(inner.is_abandoned(Caller { ip: 0, sp: sp(2) }), "the function that called it");
        assert!(inner.is_abandoned(Caller { ip: 0, sp: sp(3) }), "one that called that function");
        let overwritten = unfinished(99, sp(2));
        assert!(overwritten.is_abandoned(Caller { ip: 0, sp: sp(1) }));
        let unmapped = unfinished(12, 4096);
        assert!(unmapped.is_abandoned(Caller { ip: 0, sp: 4000 }));
    }
}
