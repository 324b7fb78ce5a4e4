//! The table of Go functions (`.gopclntab`): names, lines and inlined calls that stripped Go programs
//! keep for tracebacks.

mod header;
mod module_data;
mod pc_values;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use table::GoTable;
