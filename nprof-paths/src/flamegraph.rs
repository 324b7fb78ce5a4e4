//! The flame graph: an SVG drawn by inferno's library.

use std::io;

use inferno::flamegraph::{self, Options};

/// Draws folded stacks. Without any, the picture says that there are none.
///
/// # Errors
///
/// What the library says of lines it does not take.
pub(crate) fn draw(folded: &str, command: &str) -> io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = xml(&format!("nprof: {command}"));
    options.count_name = "samples".to_owned();
    options.name_type = "Function:".to_owned();
    options.deterministic = true;
    let folded = xml(folded);
    let mut svg = Vec::new();
    match flamegraph::from_lines(&mut options, folded.lines(), &mut svg) {
        Err(error) if !folded.is_empty() => Err(error),
        _ => Ok(svg),
    }
}

/// Replaces the two characters that are neither control characters nor allowed in XML.
fn xml(text: &str) -> String {
    text.replace('\u{fffe}', "\\xef\\xbf\\xbe").replace('\u{ffff}', "\\xef\\xbf\\xbf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_the_bytes_are_the_same_again() {
        let folded = "a<b&\"c\";main;f\u{fffe} 3\nb;g'<!-- 2\n";
        let svg = draw(folded, "prog </title> \u{ffff}").unwrap();
        let text = String::from_utf8(svg.clone()).unwrap();
        assert!(text.contains("a&lt;b&amp;&quot;c&quot;"), "{text}");
        assert!(!text.contains("prog </title>"));
        assert!(!text.contains(['\u{fffe}', '\u{ffff}']));
        assert_eq!(svg, draw(folded, "prog </title> \u{ffff}").unwrap());
    }

    #[test]
    fn no_samples_are_no_error() {
        assert!(!draw("", "prog").unwrap().is_empty());
    }
}
