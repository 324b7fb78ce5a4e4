//! Hardware breakpoints on the stacks of recorded threads, and the memory of their processes.

use crate::convert::deep_stacks::frame_watch::{DebugTarget, WatchState};
use crate::sys::{self, Breakpoint, Observed};

/// Sets hardware breakpoints as far as the rights and the processor allow. Without them stacks stay
/// as deep as their copies.
#[derive(Debug, Default)]
pub(crate) struct HwBreakpoints {
    /// The breakpoints that can be set; `None` before they were tried.
    rights: Option<WatchRights>,
}

/// The writes that can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchRights {
    Nothing,
    /// Writes by user code.
    User,
    /// Those, and writes by the kernel on behalf of the process.
    Kernel,
}

impl WatchRights {
    /// Finds the rights by setting a breakpoint on our own memory. Virtual machines may offer
    /// breakpoints that never fire.
    fn try_out() -> Self {
        if sys::breakpoints_work(true) {
            Self::Kernel
        } else if sys::breakpoints_work(false) {
            Self::User
        } else {
            Self::Nothing
        }
    }
}

impl DebugTarget for HwBreakpoints {
    type Watch = Breakpoint;

    fn set(&mut self, tid: u32, slot: u64, old: Option<Breakpoint>) -> Option<Breakpoint> {
        let rights = *self.rights.get_or_insert_with(WatchRights::try_out);
        if rights == WatchRights::Nothing {
            return None;
        }
        if let Some(mut watch) = old
            && watch.move_to(slot).is_ok()
        {
            return Some(watch);
        }
        Breakpoint::open(tid, slot, rights == WatchRights::Kernel).ok()
    }

    fn unset(&mut self, watch: &mut Breakpoint) {
        // If it fails, the breakpoint only costs the program a trap.
        let _ = watch.disable();
    }

    fn state_of(&mut self, watch: &Breakpoint) -> WatchState {
        match watch.observed() {
            Observed::Written => WatchState::Written,
            Observed::Unwritten => WatchState::Unwritten,
            Observed::NotScheduled => WatchState::NotScheduled,
        }
    }

    fn read(&mut self, tid: u32, address: u64, bytes: &mut [u8]) -> usize {
        sys::read_memory(tid, address, bytes)
    }

    fn now_ns(&mut self) -> u64 {
        sys::monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_memory_up_to_the_first_unmapped_page() {
        let words = [7u64, 8];
        let mut bytes = [0; 16];
        let mut target = HwBreakpoints::default();
        let own = std::process::id();
        let address = words.as_ptr().expose_provenance() as u64;
        assert_eq!(target.read(own, address, &mut bytes), 16);
        assert_eq!(bytes[..9], [7, 0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(target.read(own, 8, &mut bytes), 0);
        assert_eq!(target.read(u32::MAX, address, &mut bytes), 0);
    }

    #[test]
    fn refuses_missing_thread_and_unaligned_word() {
        let mut target = HwBreakpoints::default();
        assert!(target.set(u32::MAX, 0x1000, None).is_none());
        assert!(target.set(std::process::id(), 0x1001, None).is_none(), "not aligned");
    }
}
