//! DWARF debug information within a memory bound: the function, line and inlined calls at an
//! address.
//!
//! The engine is our own, instead of the crate addr2line, which is the oracle of its tests: addr2line
//! reads all units at once and never drops one (127 KiB a C++ unit and thread), needs memory maps,
//! overflows the stack on hostile files, and confuses the units of dwz in DWARF 2 to 4.
//! ARCHITECTURE.md has the figures.

mod abbreviation;
mod bases;
mod debug_file;
mod debug_info;
pub(crate) mod detail;
mod error;
mod function_name;
mod functions;
mod inlined_calls;
mod line_program;
mod line_table;
mod linked_files;
mod paged_section;
mod ranges;
mod scoped_name;
mod scopes;
mod section;
#[cfg(test)]
pub(crate) mod tests;
mod type_name;
mod unit;
mod unit_cache;
mod unit_index;

pub(crate) use debug_file::{UNIT_HEADER, is_type_unit};
pub(crate) use debug_info::{Call, Dwarf, ROOM_BYTES};
pub(crate) use error::DwarfError;
pub(crate) use paged_section::PagedSection;
pub(crate) use section::{DebugFile, DebugFiles, Section, SplitUnit};
