//! Writes the page.

use std::io::{self, Write};

use nprof_report::page::Page;

use crate::print::context::PrintContext;
use crate::print::page::data;

const BODY: &str = include_str!("../../../assets/body.html");

/// The parts of the script, used ones first.
const SCRIPTS: [&str; 7] = [
    include_str!("../../../assets/data.js"),
    include_str!("../../../assets/colors.js"),
    include_str!("../../../assets/timeline.js"),
    include_str!("../../../assets/columns.js"),
    include_str!("../../../assets/listing.js"),
    include_str!("../../../assets/code.js"),
    include_str!("../../../assets/app.js"),
];

/// Writes the page.
pub(crate) fn write(context: &PrintContext<'_>, out: &mut dyn Write) -> io::Result<()> {
    let data = data::profile(context);
    Page { body: BODY, style: "", scripts: &SCRIPTS, data: &data }.write(out)
}
