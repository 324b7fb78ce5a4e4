//! The machine code that an analysis reads.

use std::rc::Rc;

use nprof_object::ImageAddress;

use crate::arch::rule::{AnalyzedRule, UnwindRule};

/// The longest instruction, bytes.
pub(crate) const INSTRUCTION_MAX: usize = 15;

/// The code of an image.
pub(crate) trait CodeBytes {
    /// Returns up to [`INSTRUCTION_MAX`] bytes at an image address; less at the end of the code, and
    /// none outside of it.
    fn code(&mut self, address: ImageAddress) -> Bytes;
    /// Returns the rule of the unwind table that covers an address.
    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>>;
    /// True if the code was generated at run time: stubs are short, and other code keeps the frame
    /// pointer, so that long searches do not pay.
    fn is_generated(&self) -> bool {
        false
    }
    /// True if functions may preserve only the frame pointer and the stack pointer, as those of Go, and
    /// of HotSpot and V8 at run time, do.
    fn keeps_frame_pointer_only(&self) -> bool {
        false
    }
    /// Returns the result of an earlier analysis of an address.
    fn known(&self, _address: ImageAddress) -> Option<AnalyzedRule> {
        None
    }
}

/// The bytes of an instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) bytes: [u8; INSTRUCTION_MAX],
    pub(crate) length: usize,
}

/// The form of a call's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Its address is in the instruction.
    Direct,
    /// In a register or in memory.
    Indirect,
}
