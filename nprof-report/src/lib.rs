//! The common part of all reports: samples to counts, tables and lines to print, options and output.
//!
//! - [`profile`]: sums of samples per stack, in memory bounded by distinct stacks;
//! - [`key`], [`filter`], [`time`]: keys to group and select samples and calls by;
//! - [`join`], [`ratio`]: events that are added into one, and divided by another;
//! - [`summary`], [`margin`]: the facts above a table, and margins of error;
//! - [`rows`]: the rows of flat tables, their columns and their sums;
//! - [`heading`], [`layout`], [`legend`], [`machine_formats`]: tables, lines for scripts;
//! - [`folded`], [`flamegraph`]: folded stacks and the pictures drawn from them;
//! - [`page`]: pages for browsers;
//! - [`report`]: the options of a report, and its run as a stage of a pipe.

pub mod args;
pub mod page;
pub mod profile;
mod render;
pub mod rows;
mod tool;

pub use profile::{
    filter, group, join, key, margin, near_names, ratio, sample_label, summary, time,
};
pub use render::{flamegraph, folded, heading, layout, legend, machine_formats, ratio_scale};
pub use tool::report;
