//! Prints reports: the same comparison for people and for programs.

mod changes;
mod dispatch;
mod folded;
mod format;
mod heading;
mod junit;
mod markdown;
mod noise;
mod page;
mod report;
mod rows;
mod sort;
mod table;
mod text;
mod values;

pub(crate) use dispatch::{print_diff, print_noise};
pub(crate) use format::DiffFormat;
pub(crate) use report::{DiffReport, DiffRows, NoiseReport};
pub(crate) use sort::Sort;
