//! The stream that an import writes.

mod definitions;
mod stream;

pub(crate) use definitions::{CallDef, ImageDef, Place, TaskDef};
pub(crate) use stream::{Output, plain_sample};
