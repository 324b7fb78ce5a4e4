//! Prints paths, trees and graphs in every output format.

pub(crate) mod context;
mod delimited;
pub(crate) mod dispatch;
pub(crate) mod flamegraph;
pub(crate) mod folded;
mod function_name;
mod graph_text;
mod json;
mod omitted;
mod page;
mod paths;
mod ratio_columns;
mod tree_text;
