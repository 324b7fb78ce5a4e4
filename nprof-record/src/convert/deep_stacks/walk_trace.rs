//! The frames one walk over a sample's stack came by, for those who want to know. Pure, and
//! cheap: every frame of every sample comes by here.

use crate::arch;
use crate::unwind::stack_copy::Seen;
use crate::unwind::{Passage, Registers};

/// A frame that returns through the word below its CFA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// How many addresses of the stack lie inside of its caller.
    pub(crate) frames: usize,
    pub(crate) cfa: u64,
    /// Its caller's; the instruction pointer may be unknown.
    pub(crate) caller: Registers,
}

/// The frames a walk came by, but for the innermost.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// The sample's stack pointer.
    pub(crate) sp: u64,
    /// The CFA of the outermost frame.
    pub(crate) top: u64,
    /// How many bytes of it were at hand, up to the last.
    pub(crate) copied: u64,
    /// What of the stack the walk read.
    pub(crate) seen: Seen,
    /// Whether the frames are kept.
    pub(crate) is_kept: bool,
    /// Innermost first.
    pub(crate) frames: Vec<Passed>,
}

impl Trail {
    /// The frame with that CFA.
    pub(crate) fn find(&self, cfa: u64) -> Option<&Passed> {
        self.frames.iter().rev().find(|passed| passed.cfa == cfa)
    }
}

impl Passage for Trail {
    fn pass(&mut self, caller: &Registers, frames: usize) -> bool {
        let Ok(cfa) = caller.get(arch::SP) else { return false };
        self.top = cfa;
        // The innermost frame may have begun just now, its call's write not yet noticed.
        if self.is_kept && frames > 1 {
            self.frames.push(Passed { frames, cfa, caller: *caller });
        }
        false
    }

    fn end(&mut self, seen: Seen) {
        self.seen = seen;
    }
}
