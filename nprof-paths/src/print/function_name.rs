//! The name of a function in a table: marks of recursion, the name, the image.

use nprof_report::layout::fit;
use unicode_width::UnicodeWidthStr;

use crate::tree::recursion::Repetition;

/// Returns the bracket before the call with index `nth` of a repetition, which shows the calls
/// that repeat together.
pub(crate) fn bracket(repetition: Repetition, nth: usize) -> &'static str {
    if repetition.period == 1 {
        ""
    } else if nth == 0 {
        "╭ "
    } else if nth + 1 == repetition.period {
        "╰ "
    } else {
        "│ "
    }
}

/// Returns the count to print at the call with index `nth` of a repetition: only the first call
/// has it.
pub(crate) fn printed_count(repetition: Repetition, nth: usize) -> usize {
    if nth == 0 { repetition.count } else { 1 }
}

/// Returns the text after the name of a function: how often it called itself, and its image.
pub(crate) fn suffix(count: usize, image: &str, name: &str) -> String {
    let mut suffix = String::new();
    if count > 1 {
        suffix.push_str(&format!("  ×{count}"));
    }
    // Names of marks and of addresses without a symbol begin with their image.
    if !image.is_empty() && !name.starts_with(image) {
        let is_bracketed = image.starts_with('[');
        suffix.push_str(&if is_bracketed { format!("  {image}") } else { format!("  ({image})") });
    }
    suffix
}

/// Ends a line with a name and its suffix. The name is shortened if the line would be wider than
/// the terminal.
pub(crate) fn push_name(out: &mut String, name: &str, suffix: &str, width: Option<usize>) {
    // Widths are in columns of the terminal: some characters take none, others two.
    let used = out.rsplit('\n').next().map_or(0, UnicodeWidthStr::width);
    match width {
        None => out.extend([name, suffix]),
        Some(width) => out.push_str(&fit(name, suffix, width.saturating_sub(used))),
    }
    out.push('\n');
}
