//! From records to the model.

mod definitions;
mod pending;
mod reader;
mod runs;

pub(crate) use reader::{ProfileReader, Sampling};
