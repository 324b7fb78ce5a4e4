//! Reading with resynchronization after damage, writing, and the verdict on completeness.

pub(crate) mod incomplete;
mod input_buffer;
pub mod reader;
pub(crate) mod verdict;
pub mod writer;
