//! One opened image: symbol table, debug information and PLT stubs name the code at an offset.

pub(crate) mod code;
pub(crate) mod code_bytes;
pub mod in_memory;
pub(crate) mod instructions;
pub(crate) mod opened;
