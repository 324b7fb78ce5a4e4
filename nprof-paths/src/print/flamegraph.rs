//! The flame graph: an SVG drawn by inferno's library.

use std::io;

use inferno::flamegraph::{self, Options};
use nprof_report::folded::drawable;
use nprof_report::summary::Summary;
use nprof_stream::escape::escaped;

/// Draws folded stacks.
///
/// # Errors
///
/// What the library says of lines it does not take.
pub(crate) fn draw(
    folded: &str,
    summary: &Summary,
    rules: &[String],
    reverse: bool,
) -> io::Result<Vec<u8>> {
    let heads = summary.runs.iter().filter_map(|run| run.head.as_ref());
    let commands: Vec<String> = heads.map(|head| escaped(&head.command)).collect();
    let title = format!("nprof: {}", commands.join(", "));
    if folded.is_empty() {
        let why = match rules {
            [] => "no samples: run it for longer, or sample more often (-F)".to_owned(),
            _ => format!("no samples are left by {}", escaped(rules.join(" ").as_bytes())),
        };
        return Ok(empty(&title, &why).into_bytes());
    }
    let mut options = Options::default();
    options.title = drawable(&title);
    options.subtitle = subtitle(rules, reverse);
    options.count_name = "samples".to_owned();
    options.name_type = "Function:".to_owned();
    options.deterministic = true;
    let folded = drawable(folded);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    Ok(svg)
}

/// What the picture is of, if not of all, root first.
fn subtitle(rules: &[String], reverse: bool) -> Option<String> {
    let mut parts: Vec<String> =
        rules.iter().map(|rule| drawable(&escaped(rule.as_bytes()))).collect();
    parts.extend(reverse.then(|| "leaves below, callers above".to_owned()));
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// A picture that says why there is nothing to see.
fn empty(title: &str, why: &str) -> String {
    let (title, why) = (markup(title), markup(why));
    format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"1200\" height=\"80\" viewBox=\"0 0 1200 80\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#eeeeee\"/>\n\
         <text x=\"50%\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{title}</text>\n\
         <text x=\"50%\" y=\"56\" text-anchor=\"middle\">{why}</text>\n</svg>\n"
    )
}

/// Text as it stands in XML.
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
        String::from_utf8(draw(folded, &summary, rules, true).unwrap()).unwrap()
    }

    #[test]
    fn names_are_safe_and_the_bytes_are_the_same_again() {
        let folded = "a<b&\"c\";main;f\u{fffe} 3\nb;g'<!-- 2\n";
        let rules = ["--focus a<b>\u{1b}\u{fffe}".to_owned()];
        let text = drawn(folded, &rules);
        assert!(text.contains("a&lt;b&amp;&quot;c&quot;"), "{text}");
        assert!(!text.contains("prog </title>"));
        assert!(!text.contains(['\u{fffe}', '\u{ffff}', '\u{1b}']));
        assert_eq!(text, drawn(folded, &rules));
    }

    #[test]
    fn no_samples_are_told_as_such() {
        let text = drawn("", &[]);
        assert!(
            text.contains("no samples: run it for longer") && !text.contains("ERROR"),
            "{text}"
        );
        assert!(!text.contains("prog </title>"));
        assert!(drawn("", &["--focus <x>".to_owned()]).contains("left by --focus &lt;x&gt;"));
    }
}
