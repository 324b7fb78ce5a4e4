//! Flame graphs: SVG, drawn by inferno's library.

use std::io;

use inferno::flamegraph::{self, Options};
use nprof_report::folded::drawable;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

use crate::print::folded::PathOrder;

/// Draws folded stacks. `rules` are the options that filter samples, for the subtitle.
///
/// # Errors
///
/// Fails if the library cannot parse a line.
pub(crate) fn draw(
    folded: &str,
    summary: &Summary,
    rules: &[String],
    order: PathOrder,
) -> io::Result<Vec<u8>> {
    let heads = summary.runs.iter().filter_map(|run| run.head.as_ref());
    let commands: Vec<String> = heads.map(|head| escaped(&head.command)).collect();
    let title = format!("nprof: {}", commands.join(", "));
    // The library fails on empty input, and its picture of the error gives no reason.
    if folded.is_empty() {
        let reason = match rules {
            [] => "no samples: run it for longer".to_owned(),
            _ => format!("no samples are left by {}", escaped(rules.join(" ").as_bytes())),
        };
        return Ok(empty(&title, &reason).into_bytes());
    }
    let mut options = Options::default();
    options.title = drawable(&title);
    options.subtitle = subtitle(rules, order);
    options.count_name = "samples".to_owned();
    options.name_type = "Function:".to_owned();
    // The same input must give the same bytes.
    options.deterministic = true;
    // XML 1.0, section 2.2 does not allow U+FFFE and U+FFFF, not even as references.
    let folded = drawable(folded);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    Ok(svg)
}

/// Returns the subtitle: the filters, and the order of the functions if it is not the usual one.
fn subtitle(rules: &[String], order: PathOrder) -> Option<String> {
    let mut parts: Vec<String> =
        rules.iter().map(|rule| drawable(&escaped(rule.as_bytes()))).collect();
    if order == PathOrder::LeafFirst {
        parts.push("leaves below, callers above".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Returns a picture that gives the reason why there are no samples.
fn empty(title: &str, reason: &str) -> String {
    let (title, reason) = (markup(title), markup(reason));
    format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"1200\" height=\"80\" viewBox=\"0 0 1200 80\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#eeeeee\"/>\n\
         <text x=\"50%\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{title}</text>\n\
         <text x=\"50%\" y=\"56\" text-anchor=\"middle\">{reason}</text>\n</svg>\n"
    )
}

/// Escapes text for XML.
fn markup(text: &str) -> String {
    drawable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_report::summary::Run;
    use nprof_stream::Head;

    fn drawn(folded: &str, rules: &[String]) -> String {
        let command = "prog </title> \u{ffff}".as_bytes().to_vec();
        let head = Some(Head { command, ..Head::default() });
        let summary = Summary { runs: vec![Run { head, ..Run::default() }], ..Summary::default() };
        String::from_utf8(draw(folded, &summary, rules, PathOrder::LeafFirst).unwrap()).unwrap()
    }

    #[test]
    fn escapes_names_and_is_reproducible() {
        let folded = "a<b&\"c\";main;f\u{fffe} 3\nb;g'<!-- 2\n";
        let rules = ["--focus a<b>\u{1b}\u{fffe}".to_owned()];
        let text = drawn(folded, &rules);
        assert!(text.contains("a&lt;b&amp;&quot;c&quot;"), "{text}");
        assert!(!text.contains("prog </title>"));
        assert!(!text.contains(['\u{fffe}', '\u{ffff}', '\u{1b}']));
        assert_eq!(text, drawn(folded, &rules));
    }

    #[test]
    fn empty_input_gives_the_reason() {
        let text = drawn("", &[]);
        assert!(
            text.contains("no samples: run it for longer") && !text.contains("ERROR"),
            "{text}"
        );
        assert!(!text.contains("prog </title>"));
        assert!(drawn("", &["--focus <x>".to_owned()]).contains("left by --focus &lt;x&gt;"));
    }
}
