//! The code of a function: its instructions, blocks and loops. Pure.

pub(crate) mod blocks;
pub(crate) mod disassembly;
pub(crate) mod function;
