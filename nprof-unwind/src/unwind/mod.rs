//! The unwinder: from the registers and the stack of a sample to its return addresses. Knows no files
//! and no kernel.

mod certainty;
mod code_map;
mod compact_rule;
mod frame_address;
mod frame_state;
mod frame_visitor;
mod no_table;
mod registers;
pub mod stack_copy;
pub mod stack_input;
mod step;
mod walk;
mod walk_words;

pub use code_map::{CodeMap, UnwindInfo};
pub use compact_rule::CompactRule;
pub use frame_address::FrameAddress;
pub use frame_state::FrameState;
pub use frame_visitor::FrameVisitor;
pub use registers::Registers;
pub use walk::unwind;
pub use walk_words::{FrameNotes, WalkWords};
