//! Prints reports: the same comparison for people and for programs.

mod cells;
mod dispatch;
mod folded;
mod heading;
mod machine;
mod noise;
mod options;
mod report;
mod table;
mod text;

pub(crate) use options::{Format, Sort};
pub(crate) use report::{DiffReport, NoiseReport};
