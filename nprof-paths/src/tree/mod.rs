//! The call tree of the samples, and the trees and graphs derived from it.

pub(crate) mod aggregate;
pub(crate) mod call_tree;
pub(crate) mod cycles;
pub(crate) mod graph;
pub(crate) mod invert;
pub(crate) mod path_filter;
pub(crate) mod recursion;
