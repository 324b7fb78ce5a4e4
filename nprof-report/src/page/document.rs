//! Writes a page: the parts that all pages share, around the body, the script and the data of a report.

use std::io::{self, Write};

use serde_json::Value;

const DOCUMENT: &str = include_str!("../../assets/page.html");
const STYLE: &str = include_str!("../../assets/style.css");

/// The parts of the script that all pages share, used ones first.
const SCRIPT: [&str; 7] = [
    include_str!("../../assets/text.js"),
    include_str!("../../assets/tree.js"),
    include_str!("../../assets/palette.js"),
    include_str!("../../assets/parts.js"),
    include_str!("../../assets/flame.js"),
    include_str!("../../assets/table.js"),
    include_str!("../../assets/sandwich.js"),
];

/// The parts of a page that differ between reports.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The elements of its body.
    pub body: &'a str,
    /// Style that others do not have.
    pub style: &'a str,
    /// The parts of its own script, used ones first.
    pub scripts: &'a [&'a str],
    /// The data that the script reads.
    pub data: &'a Value,
}

impl Page<'_> {
    /// Writes the page.
    ///
    /// # Errors
    ///
    /// The error of the writer.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // `<` would begin the end tag of the element. In JSON it is only in strings.
        let data = serde_json::to_string(self.data)?.replace('<', "\\u003c");
        // A scope of its own, since names of browsers are global.
        let script =
            format!("(() => {{\n'use strict';\n{}{}}})();", SCRIPT.concat(), self.scripts.concat());
        let style = [STYLE, self.style].concat();
        let mut rest = DOCUMENT;
        for (place, text) in [
            ("/*STYLE*/", &style[..]),
            ("<!--BODY-->", self.body),
            ("/*DATA*/", &data),
            ("/*SCRIPT*/", &script),
        ] {
            // The page has each place once, in this order.
            let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
            out.write_all(before.as_bytes())?;
            out.write_all(text.as_bytes())?;
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }
}
