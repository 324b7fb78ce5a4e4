//! From the registers and the stack of a sample to its return addresses; no files, no kernel.

pub(crate) mod code_analysis;
mod code_map;
mod code_state;
mod frame_address;
mod frame_visitor;
mod no_table;
mod registers;
pub mod rule;
pub mod stack_copy;
mod step;
mod walk;

pub use code_map::{AnalyzedRule, CodeMap, UnwindInfo};
pub use frame_address::FrameAddress;
pub use frame_visitor::FrameVisitor;
pub use registers::Registers;
pub use walk::unwind;
