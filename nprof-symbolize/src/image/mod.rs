//! One opened image: symbol table, debug information and PLT stubs name the code at an offset.

pub mod in_memory;
pub(crate) mod opened;
