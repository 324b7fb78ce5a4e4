//! The stream that an import writes.

mod definitions;
mod stream;

pub(crate) use definitions::{ImageDef, Place, TaskDef};
pub(crate) use stream::Output;
