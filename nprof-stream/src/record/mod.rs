//! The record model: record types, ids, enumerations, key=value pairs, kinds, limits, escaping, numbers.

pub(crate) mod code_rows;
pub(crate) mod enums;
pub mod error;
pub mod escape;
pub mod extras;
pub(crate) mod ids;
pub mod kind;
pub mod limits;
pub(crate) mod line;
pub(crate) mod load;
pub(crate) mod measure;
pub mod number;
pub mod pairs;
pub(crate) mod records;
pub(crate) mod version;

pub(crate) use enums::*;
pub(crate) use ids::*;
pub(crate) use line::*;
pub(crate) use records::*;
