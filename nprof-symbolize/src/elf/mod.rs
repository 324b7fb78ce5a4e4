//! Facts of ELF files: headers, symbols, PLT stubs, debug links and ranges of functions.

pub(crate) mod debug_link;
pub(crate) mod entry;
mod entry_aarch64;
pub(crate) mod entry_arch;
mod entry_x86_64;
pub(crate) mod function_ranges;
pub(crate) mod function_symbols;
pub(crate) mod gnu_property;
pub(crate) mod headers;
pub(crate) mod plt;
mod plt_aarch64;
mod plt_stub;
mod plt_x86_64;
pub(crate) mod symbol_table;
