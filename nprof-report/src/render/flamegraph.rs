//! Flame graphs: SVG, drawn by inferno's library. Pure.

use std::collections::BTreeMap;
use std::io;

use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

use crate::render::folded::drawable;
use crate::render::short_name::short_name;

/// The text and the layout of a flame graph.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The title.
    pub title: String,
    /// The line below the title; empty for none.
    pub subtitle: String,
    /// True if the roots are at the top.
    pub icicle: bool,
    /// Frames with a smaller share, in per cent, are not drawn; their place stays empty.
    pub min_percent: f64,
    /// The unit of the counts; empty for samples.
    pub unit: String,
}

/// The usual [`Picture::min_percent`], as of inferno: a tenth of a pixel on a screen of 1,000 pixels, for
/// those who enlarge a frame.
pub const MIN_PERCENT: f64 = 0.01;

/// The place in the script of inferno that takes the name of a frame from its tooltip.
const DRAWN_NAME: &str = r#"find_child(e, "title").textContent.replace(/\([^(]*\)$/,"")"#;

/// Draws folded stacks, with one count on each line, or two in a differential flame graph.
///
/// Frames show short names. Tooltips and the search of the picture have the full ones.
///
/// # Errors
///
/// Fails if there are no samples, or if the library cannot parse a line.
pub fn draw(picture: &Picture, folded: &str) -> io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = drawable(&picture.title).into_owned();
    options.subtitle =
        Some(drawable(&picture.subtitle).into_owned()).filter(|text| !text.is_empty());
    options.count_name = match picture.unit.as_str() {
        "" => "samples".to_owned(),
        unit => drawable(unit).into_owned(),
    };
    options.name_type = "Function:".to_owned();
    // The same input must give the same bytes.
    options.deterministic = true;
    options.min_width = picture.min_percent;
    // A name's beginning says more than its end, which is often a list of parameters.
    options.text_truncate_direction = TextTruncateDirection::Right;
    if picture.icicle {
        options.direction = Direction::Inverted;
    }
    // XML 1.0, section 2.2 does not allow U+FFFE and U+FFFF, not even as references.
    let folded = drawable(folded);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, folded.lines(), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    Ok(with_script(svg, &script(&folded)?).into_bytes())
}

/// Returns the picture with a script at its end, and with drawn names that the script shortens.
fn with_script(mut svg: String, script: &str) -> String {
    svg = svg.replace(DRAWN_NAME, &format!("shown_name({DRAWN_NAME})"));
    // CDATA ends at the first `]]>`. In a string of JavaScript `\u003e` is the same character.
    let script = script.replace("]]>", "]]\\u003e");
    let script = format!("<script type=\"text/ecmascript\"><![CDATA[\n{script}]]></script>");
    svg.insert_str(svg.rfind("</svg>").unwrap_or(svg.len()), &script);
    svg
}

/// Returns a script that shortens names, and that shows the roots of a graph that is higher than
/// the window: without it a deep graph opens at its empty upper end.
fn script(folded: &str) -> io::Result<String> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for name in folded.lines().flat_map(|line| stack(line).split(';')) {
        if !names.contains_key(name) {
            names.insert(name, short_name(name));
        }
    }
    names.retain(|name, short| name != short);
    let pairs: Vec<(&str, String)> = names.into_iter().collect();
    Ok(format!(
        "var short_names = new Map({});\n\
         function shown_name(name) {{ name = name.trimEnd(); return short_names.get(name) || name; }}\n\
         if (!inverted) window.addEventListener(\"load\", function() {{ \
         window.scrollTo(0, document.documentElement.height.baseVal.value); }});\n",
        serde_json::to_string(&pairs)?
    ))
}

/// Returns a line of folded stacks without its counts.
fn stack(line: &str) -> &str {
    let without_count = |text: &'_ str| -> Option<usize> {
        let (stack, count) = text.rsplit_once(' ')?;
        count.bytes().all(|byte| byte.is_ascii_digit()).then_some(stack.len())
    };
    // A differential flame graph has two counts.
    let end = without_count(line).unwrap_or(line.len());
    &line[..without_count(&line[..end]).unwrap_or(end)]
}

/// Returns a picture that gives the reason why there are no samples.
pub fn empty(title: &str, reason: &str) -> Vec<u8> {
    let (title, reason) = (markup(title), markup(reason));
    format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg version=\"1.1\" width=\"1200\" height=\"80\" viewBox=\"0 0 1200 80\" \
         xmlns=\"http://www.w3.org/2000/svg\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#eeeeee\"/>\n\
         <text x=\"50%\" y=\"24\" text-anchor=\"middle\" font-size=\"17\">{title}</text>\n\
         <text x=\"50%\" y=\"56\" text-anchor=\"middle\">{reason}</text>\n</svg>\n"
    )
    .into_bytes()
}

/// Escapes text for XML.
fn markup(text: &str) -> String {
    drawable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(folded: &str, picture: &Picture) -> String {
        String::from_utf8(draw(picture, folded).unwrap()).unwrap()
    }

    #[test]
    fn escapes_names_and_is_reproducible() {
        let folded = "a<b&\"c\";main;f\u{fffe} 3\nb;g'<!-- ]]>(int) 2\n";
        let picture = Picture {
            title: "prog </title> \u{ffff}".to_owned(),
            subtitle: "--focus a<b>\\x1b\u{fffe}".to_owned(),
            ..Picture::default()
        };
        let text = drawn(folded, &picture);
        assert!(text.contains("a&lt;b&amp;&quot;c&quot;"), "{text}");
        assert!(!text.contains("prog </title>"));
        assert!(!text.contains(['\u{fffe}', '\u{ffff}']));
        assert_eq!(text.matches("]]>").count(), text.matches("<![CDATA[").count());
        assert_eq!(text, drawn(folded, &picture));
    }

    /// The script of another version of inferno may differ.
    #[test]
    fn script_shortens_names_in_both_places_that_draw_them() {
        let text = drawn("main;a::f(int) 3\n", &Picture::default());
        assert_eq!(text.matches(&format!("shown_name({DRAWN_NAME})")).count(), 2);
        assert_eq!(stack("f1;g(int) 3 4"), "f1;g(int)");
        assert_eq!(stack("f1 5"), "f1");
        assert!(text.contains(r#"new Map([["a::f(int)","a::f"]])"#), "{text}");
        assert!(text.contains("var truncate_text_right = true;"), "{text}");
        assert!(text.contains("<title>a::f(int) (3 samples, 100.00%)</title>"), "{text}");
    }

    #[test]
    fn narrow_frames_leave_their_place_empty() {
        let folded = "main;wide 99\nmain;narrow 1\n";
        let all = drawn(folded, &Picture::default());
        let wide = drawn(folded, &Picture { min_percent: 2.0, ..Picture::default() });
        assert!(all.contains("narrow (1 samples"), "{all}");
        assert!(!wide.contains("narrow (1 samples"), "{wide}");
        assert!(wide.contains("main (100 samples, 100.00%)"), "{wide}");
    }

    #[test]
    fn empty_picture_gives_the_reason() {
        let text = String::from_utf8(empty("prog </title>", "no samples: <x>")).unwrap();
        assert!(
            text.contains("no samples: &lt;x&gt;") && !text.contains("prog </title>"),
            "{text}"
        );
    }
}
