//! From the registers and the stack of a sample to its return addresses; no files, no kernel.

mod code_map;
mod frame_address;
mod frame_visitor;
mod no_table;
mod registers;
pub mod stack_copy;
pub mod stack_input;
mod step;
mod walk;

pub use crate::arch::rule::AnalyzedRule;
pub use code_map::{CodeMap, UnwindInfo};
pub use frame_address::FrameAddress;
pub use frame_visitor::FrameVisitor;
pub use registers::Registers;
pub use walk::unwind;
