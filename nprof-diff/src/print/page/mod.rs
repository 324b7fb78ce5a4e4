//! A page for browsers: tables of functions and source lines, and a flame graph of both sides with the
//! callers and callees of each function.

mod data;
mod metrics;
mod tree;

use std::io::{self, Write};

use nprof_report::page::Page;

use crate::print::report::DiffReport;

const BODY: &str = include_str!("../../../assets/body.html");
const STYLE: &str = include_str!("../../../assets/diff.css");

/// The parts of the script, used ones first.
const SCRIPTS: [&str; 3] = [
    include_str!("../../../assets/comparison.js"),
    include_str!("../../../assets/changes.js"),
    include_str!("../../../assets/app.js"),
];

/// Writes the page.
pub(super) fn write(report: &DiffReport<'_>, out: &mut dyn Write) -> io::Result<()> {
    let data = data::data(report);
    Page { body: BODY, style: STYLE, scripts: &SCRIPTS, data: &data }.write(out)
}
