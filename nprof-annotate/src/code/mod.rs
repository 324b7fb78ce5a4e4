//! The blocks and loops of a function. Pure.

pub(crate) mod blocks;
