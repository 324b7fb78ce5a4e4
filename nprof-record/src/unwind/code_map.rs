//! What the unwinder asks of the code of a process.

use std::rc::Rc;

use crate::arch::rule::{AnalyzedRule, UnwindRule};
use crate::unwind::frame_address::FrameAddress;

/// What is known of the code at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnwindInfo {
    /// No executable memory is mapped there.
    Unmapped,
    /// No unwind table covers it.
    NoTable,
    /// The table's rule.
    Rule(Rc<UnwindRule>),
    /// It is the function the program starts in, and no table covers it.
    Entry,
    /// It is what signal handlers return to, and no table covers it.
    SignalReturn,
}

/// The code of a process.
pub trait CodeMap {
    /// What is known of the code at an address.
    fn unwind_info(&mut self, address: u64) -> UnwindInfo;

    /// What the code itself says where there is no table.
    fn analyze(&mut self, _address: FrameAddress) -> AnalyzedRule {
        AnalyzedRule::Unknown
    }

    /// Whether a call ends at an address; `None` where that cannot be read.
    fn is_after_call(&mut self, _address: u64) -> Option<bool> {
        None
    }
}
