//! Prints paths, trees and graphs in every format.

pub(crate) mod context;
pub(crate) mod delimited;
pub(crate) mod dispatch;
pub(crate) mod flamegraph;
pub(crate) mod folded;
pub(crate) mod graph_text;
pub(crate) mod json;
pub(crate) mod paths;
pub(crate) mod tree_text;
