//! Folded stacks: the text that FlameGraph, inferno and speedscope read, a line for each path:
//! `root;...;leaf N`. Readers take some characters for something else; these are escaped as in
//! text streams. Pure.

/// The name of a function on a path: a `;` in it is `\x3b`.
pub fn part(name: &str) -> String {
    name.replace(';', "\\x3b")
}

/// A path of parts joined by `;`, guarded: a space or `#` at its beginning is `\x20` or `\x23`,
/// and a space before digits at its end is `\x20`, for readers take a number there for the first
/// of two counts.
pub fn guarded(mut path: String) -> String {
    match path.bytes().next() {
        Some(b' ') => path.replace_range(..1, "\\x20"),
        Some(b'#') => path.replace_range(..1, "\\x23"),
        _ => {}
    }
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(space) = path.rfind(' ').filter(|&space| is_number(&path[space + 1..])) {
        path.replace_range(space..=space, "\\x20");
    }
    path
}

/// Text as a flame graph may hold it: without the two characters that are neither control
/// characters nor allowed in XML.
pub fn drawable(text: &str) -> String {
    text.replace('\u{fffe}', "\\xef\\xbf\\xbe").replace('\u{ffff}', "\\xef\\xbf\\xbf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_take_for_something_else_is_escaped() {
        let guarded = |path: &str| guarded(path.to_owned());
        assert_eq!(guarded("a;operator\"\" 12"), "a;operator\"\"\\x2012");
        assert_eq!(guarded("a;f 1.5"), "a;f\\x201.5");
        assert_eq!(guarded("a;f "), "a;f\\x20");
        assert_eq!(guarded("# b;f"), "\\x23 b;f");
        assert_eq!(guarded(" b;f"), "\\x20b;f");
        assert_eq!(guarded(" 1"), "\\x201");
        assert_eq!(guarded("a b;f(int) const"), "a b;f(int) const");
        assert_eq!(guarded("a 1;main"), "a 1;main");
        assert_eq!(part("a;b"), "a\\x3bb");
        assert_eq!(drawable("a\u{ffff}"), "a\\xef\\xbf\\xbf");
    }
}
