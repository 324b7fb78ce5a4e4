//! Colours of lines on a terminal. Pure.

/// A line with this share of its function, in per cent, is red (as in perf-annotate(1)).
const HOT: f64 = 5.0;

/// A line with this share is green.
const WARM: f64 = 0.5;

/// Returns a line in the colour of its share of a function, in per cent.
pub(crate) fn of_share(line: &str, percent: f64) -> String {
    let colour = match percent {
        _ if percent >= HOT => "\x1b[31m",
        _ if percent >= WARM => "\x1b[32m",
        _ => return line.to_owned(),
    };
    format!("{colour}{line}\x1b[0m")
}
