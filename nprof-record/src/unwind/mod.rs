//! From the registers and the stack of a sample to its return addresses; no files, no kernel.

pub(crate) mod code_analysis;
pub(crate) mod code_state;
pub(crate) mod no_table;
pub mod rule;
pub mod stack_copy;
pub(crate) mod walk;

pub use walk::{Address, Code, Followed, Look, Passage, Registers, unwind};
