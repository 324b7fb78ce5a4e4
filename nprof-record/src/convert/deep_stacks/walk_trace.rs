//! The frames visited by one stack walk, for frame watches. Pure, and cheap: every frame of every
//! sample is visited.

use nprof_unwind::arch;
use nprof_unwind::unwind::stack_copy::StackReadRange;
use nprof_unwind::unwind::{FrameVisitor, Registers};

/// A frame with its return address in the word below its CFA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitedFrame {
    /// The number of addresses of the stack up to and including this frame's.
    pub(crate) frames: usize,
    pub(crate) cfa: u64,
    /// The registers of its caller; the instruction pointer may be unknown.
    pub(crate) caller: Registers,
}

/// The frames that a walk visited, except for the innermost.
#[derive(Debug, Default)]
pub(crate) struct WalkTrace {
    /// The stack pointer of the sample.
    pub(crate) sp: u64,
    /// The CFA of the outermost frame.
    pub(crate) outermost_cfa: u64,
    /// The length of the copy, from the stack pointer to its last byte.
    pub(crate) copied_bytes: u64,
    /// The range of the stack that the walk read.
    pub(crate) read_range: StackReadRange,
    /// The address of the last word that was not read because its page was not in memory.
    pub(crate) absent: Option<u64>,
    /// True if `frames` is filled.
    pub(crate) keeps_frames: bool,
    /// Innermost first.
    pub(crate) frames: Vec<VisitedFrame>,
}

impl WalkTrace {
    /// Returns the frame with a CFA.
    pub(crate) fn find(&self, cfa: u64) -> Option<&VisitedFrame> {
        self.frames.iter().rev().find(|frame| frame.cfa == cfa)
    }
}

impl FrameVisitor for WalkTrace {
    fn visit(&mut self, caller: &Registers, frames: usize) -> bool {
        let Ok(cfa) = caller.get(arch::SP) else { return false };
        self.outermost_cfa = cfa;
        // The innermost frame may just have been called: the breakpoint may not have fired yet.
        if self.keeps_frames && frames > 1 {
            self.frames.push(VisitedFrame { frames, cfa, caller: *caller });
        }
        false
    }

    fn end(&mut self, read_range: StackReadRange, absent: Option<u64>) {
        self.read_range = read_range;
        self.absent = absent;
    }
}
