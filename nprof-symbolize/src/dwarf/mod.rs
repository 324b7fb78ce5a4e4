//! DWARF debug information: the function, line and inlined calls at an address.
//!
//! The engine reads what an address needs and no more: an index of the units by address from
//! their first entries, then a unit's table of functions when an address first falls into the
//! unit, the calls inlined into a function when one falls into that, the rows of a sequence of
//! lines likewise. Entries are walked over without recursion. Tables are forgotten when they take
//! too much memory, and made again when they are needed again.
//!
//! The files themselves belong to `images`, which hands them over by the traits of `sections`.

mod bases;
mod debug_file;
mod debug_info;
pub(crate) mod detail;
mod error;
mod function_name;
mod functions;
mod line_program;
mod line_table;
mod linked_files;
mod paged_section;
mod ranges;
mod scoped_name;
mod scopes;
mod section;
#[cfg(test)]
mod tests;
mod type_name;
mod unit;
mod unit_cache;
mod unit_index;

pub(crate) use debug_info::{Call, Dwarf, ROOM_BYTES};
pub(crate) use error::DwarfError;
pub(crate) use section::{DebugFile, DebugFiles, Section, SplitUnit};
