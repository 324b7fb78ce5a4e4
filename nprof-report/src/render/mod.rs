//! Text tables, TSV and CSV, folded stacks, the JSON header.

pub mod folded;
mod json_header;
pub mod layout;
pub mod legend;
pub mod machine_formats;
