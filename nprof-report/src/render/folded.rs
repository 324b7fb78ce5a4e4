//! Folded stacks, as FlameGraph, inferno and speedscope read them: a line `root;...;leaf N` for each
//! path. Characters with a meaning to these readers are escaped as in text streams. Pure.

use std::borrow::Cow;

/// Returns the name of a function for a path, with `;` escaped as `\x3b`.
pub fn part(name: &str) -> String {
    name.replace(';', "\\x3b")
}

/// Escapes the beginning and end of a path of parts joined by `;`: a leading space or `#` becomes
/// `\x20` or `\x23` (a comment to inferno), and a space before digits at the end becomes `\x20`
/// (readers accept two counts at the end of a line).
pub fn guarded(mut path: String) -> String {
    match path.bytes().next() {
        Some(b' ') => path.replace_range(..1, "\\x20"),
        Some(b'#') => path.replace_range(..1, "\\x23"),
        _ => {}
    }
    // Digits with a point count as well: readers accept fractions.
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(space) = path.rfind(' ').filter(|&space| is_number(&path[space + 1..])) {
        path.replace_range(space..=space, "\\x20");
    }
    path
}

/// Escapes U+FFFE and U+FFFF, which XML 1.0 (production 2, Char) excludes although they are no
/// control characters.
pub fn drawable(text: &str) -> Cow<'_, str> {
    // All stacks of a picture are one text, which hardly ever has these characters.
    if !text.contains(['\u{fffe}', '\u{ffff}']) {
        return Cow::Borrowed(text);
    }
    let text = text.replace('\u{fffe}', "\\xef\\xbf\\xbe");
    Cow::Owned(text.replace('\u{ffff}', "\\xef\\xbf\\xbf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_with_a_meaning_to_readers_are_escaped() {
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
