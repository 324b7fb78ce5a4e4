//! The machine code that an analysis reads.

use std::rc::Rc;

use nprof_object::ImageAddress;

use crate::arch::rule::{AnalyzedRule, UnwindRule};

/// The longest instruction, bytes.
pub(crate) const INSTRUCTION_MAX: usize = 15;

/// The code of an image.
pub(crate) trait CodeBytes {
    /// What stands at an image address, up to [`INSTRUCTION_MAX`] bytes; less where the code
    /// ends, and nothing where there is none.
    fn code(&mut self, address: ImageAddress) -> Bytes;
    /// The rule of an unwind table that covers an address.
    fn rule(&mut self, address: ImageAddress) -> Option<Rc<UnwindRule>>;
    /// What has been found of a place before; nothing where it has not been asked for.
    fn known(&self, _address: ImageAddress) -> Option<AnalyzedRule> {
        None
    }
}

/// Some bytes of code.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) bytes: [u8; INSTRUCTION_MAX],
    pub(crate) length: usize,
}

/// How a call says where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Direct,
    /// By a register or a word in memory.
    Indirect,
}
