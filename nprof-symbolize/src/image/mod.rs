//! One opened image: its symbol table, debug information and PLT stubs name an address.

pub mod in_memory;
pub(crate) mod opened;
