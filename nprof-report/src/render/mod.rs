//! Text tables, TSV and CSV, folded stacks, flame graphs, the JSON header.

pub mod flamegraph;
pub mod folded;
mod json_header;
pub mod layout;
pub mod legend;
pub mod machine_formats;
mod short_name;
