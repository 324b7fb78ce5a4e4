//! Facts of ELF files: headers, symbols, PLT stubs, debug links and function ranges.

pub(crate) mod debug_link;
pub(crate) mod function_ranges;
pub(crate) mod headers;
pub(crate) mod plt;
pub(crate) mod symbol_table;
