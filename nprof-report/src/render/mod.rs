//! Headings, text tables, TSV and CSV, folded stacks, flame graphs, the JSON header.

pub mod flamegraph;
pub mod folded;
pub mod heading;
mod json_header;
pub mod layout;
pub mod legend;
pub mod machine_formats;
pub mod ratio_scale;
mod short_name;
