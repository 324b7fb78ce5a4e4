//! From records to the model.

mod definitions;
mod pending;
mod reader;

pub(crate) use reader::{ProfileReader, Sampling};
