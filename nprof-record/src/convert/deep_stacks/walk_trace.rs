//! The frames one walk over a sample's stack came by, for those who want to know. Pure, and
//! cheap: every frame of every sample comes by here.

use crate::arch;
use crate::unwind::stack_copy::StackReadRange;
use crate::unwind::{FrameVisitor, Registers};

/// A frame that returns through the word below its CFA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitedFrame {
    /// How many addresses of the stack lie inside of its caller.
    pub(crate) frames: usize,
    pub(crate) cfa: u64,
    /// Its caller's; the instruction pointer may be unknown.
    pub(crate) caller: Registers,
}

/// The frames a walk came by, but for the innermost.
#[derive(Debug, Default)]
pub(crate) struct WalkTrace {
    /// The sample's stack pointer.
    pub(crate) sp: u64,
    /// The CFA of the outermost frame.
    pub(crate) top: u64,
    /// How many bytes of it were at hand, up to the last.
    pub(crate) copied: u64,
    /// What of the stack the walk read.
    pub(crate) read_range: StackReadRange,
    /// Whether the frames are kept.
    pub(crate) is_kept: bool,
    /// Innermost first.
    pub(crate) frames: Vec<VisitedFrame>,
}

impl WalkTrace {
    /// The frame with that CFA.
    pub(crate) fn find(&self, cfa: u64) -> Option<&VisitedFrame> {
        self.frames.iter().rev().find(|passed| passed.cfa == cfa)
    }
}

impl FrameVisitor for WalkTrace {
    fn visit(&mut self, caller: &Registers, frames: usize) -> bool {
        let Ok(cfa) = caller.get(arch::SP) else { return false };
        self.top = cfa;
        // The innermost frame may have begun just now, its call's write not yet noticed.
        if self.is_kept && frames > 1 {
            self.frames.push(VisitedFrame { frames, cfa, caller: *caller });
        }
        false
    }

    fn end(&mut self, read_range: StackReadRange) {
        self.read_range = read_range;
    }
}
