//! The code of a process, as far as the unwinder needs to know it.

use std::rc::Rc;

use nprof_object::RuntimeAddress;

use crate::arch::rule::{AnalyzedRule, GeneratedFrame, UnwindRule};
use crate::arch::{Architecture, Native};
use crate::unwind::compact_rule::CompactRule;
use crate::unwind::frame_address::FrameAddress;

/// The unwind information for the code at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnwindInfo {
    /// No executable memory is mapped there.
    Unmapped,
    /// No unwind table covers it.
    NoTable,
    /// The rule of an unwind table.
    Rule(Rc<UnwindRule>),
    /// The function at which the program starts, without an unwind table.
    Entry,
    /// The code that signal handlers return to, without an unwind table.
    SignalReturn,
}

/// The code of a process.
pub trait CodeMap<A: Architecture = Native> {
    /// Returns the unwind information for the code at an address.
    fn unwind_info(&mut self, address: RuntimeAddress) -> UnwindInfo;

    /// Returns the compact form of the rule of a frame. None if the rule has none, or must first be asked for
    /// by [`Self::unwind_info`], and for a return address by [`Self::is_after_call`]: one after no call needs
    /// the whole walk.
    fn compact_rule(&mut self, _address: FrameAddress) -> Option<CompactRule<A>> {
        None
    }

    /// Analyzes the instructions at an address that no unwind table covers.
    fn analyze(&mut self, _address: FrameAddress) -> AnalyzedRule {
        AnalyzedRule::Unknown
    }

    /// Returns the rule at the address of a frame, if the call that ends at `call_end` is of its
    /// function: it follows from the code from the function's start to the address.
    fn rule_since_call(
        &mut self,
        _call_end: RuntimeAddress,
        _address: FrameAddress,
    ) -> Option<Rc<UnwindRule>> {
        None
    }

    /// Returns the rules at the address of a frame that follow from the code before it: one for each
    /// place at which its function may begin.
    fn rules_since_prologues(&mut self, _address: FrameAddress) -> Rc<[UnwindRule]> {
        Rc::default()
    }

    /// True if an address is in code generated at run time.
    fn is_generated(&self, _address: RuntimeAddress) -> bool {
        false
    }

    /// Returns the kind of the frames of generated code at an address.
    fn generated_frame(&mut self, _address: RuntimeAddress) -> GeneratedFrame {
        GeneratedFrame::Unknown
    }

    /// Returns true if generated code near an address has changed since it was read, so that another
    /// analysis may yield more.
    fn has_changed(&mut self, _address: RuntimeAddress) -> bool {
        false
    }

    /// True if the instruction that ends at an address is a call; false where no code is mapped. None if the
    /// code cannot be read.
    fn is_after_call(&mut self, _address: RuntimeAddress) -> Option<bool> {
        None
    }
}
