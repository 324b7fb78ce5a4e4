//! Writes the page: the parts of the page around its data.

use std::io::{self, Write};

use crate::print::context::PrintContext;
use crate::print::page::data;

const PAGE: &str = include_str!("../../../assets/page.html");
const STYLE: &str = include_str!("../../../assets/style.css");

/// The parts of the script, used ones first.
const SCRIPT: [&str; 10] = [
    include_str!("../../../assets/text.js"),
    include_str!("../../../assets/data.js"),
    include_str!("../../../assets/colors.js"),
    include_str!("../../../assets/flame.js"),
    include_str!("../../../assets/timeline.js"),
    include_str!("../../../assets/table.js"),
    include_str!("../../../assets/sandwich.js"),
    include_str!("../../../assets/listing.js"),
    include_str!("../../../assets/code.js"),
    include_str!("../../../assets/app.js"),
];

/// Writes the page.
pub(crate) fn write(context: &PrintContext<'_>, out: &mut dyn Write) -> io::Result<()> {
    let profile = serde_json::to_string(&data::profile(context))?;
    // `<` would begin the end tag of the element. In JSON it is only in strings.
    let profile = profile.replace('<', "\\u003c");
    // A scope of its own, since names of browsers are global.
    let script = format!("(() => {{\n'use strict';\n{}}})();", SCRIPT.concat());
    let mut rest = PAGE;
    for (place, text) in [("/*STYLE*/", STYLE), ("/*PROFILE*/", &profile), ("/*SCRIPT*/", &script)]
    {
        // The page has each place once, in this order.
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(text.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}
