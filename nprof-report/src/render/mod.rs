//! Text tables, TSV and CSV, folded stacks, the JSON header.

mod facts;
pub mod folded;
pub mod layout;
pub mod legend;
pub mod machine;
