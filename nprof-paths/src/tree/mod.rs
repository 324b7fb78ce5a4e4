//! The call tree of the samples, and the trees and graphs computed from it. Nothing here prints.

pub mod aggregate;
pub mod builder;
pub mod call_tree;
mod code;
pub mod cycles;
pub mod graph;
pub mod invert;
pub mod path_filter;
pub mod recursion;
pub mod same_paths;
mod timeline;
