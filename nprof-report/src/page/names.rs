//! Bounds the length of names in pages. Pure.

/// The length to which names are cut at most.
const MIN_BYTES: usize = 32;

/// Cuts the longest names in the middle until all together have this length in a page. Returns the number of
/// names that were cut.
pub fn shorten(names: &mut [String], budget: usize) -> usize {
    let limit = limit(names, budget);
    let mut shortened = 0;
    for name in names.iter_mut().filter(|name| text_bytes(name) > limit) {
        *name = cut(name, limit);
        shortened += 1;
    }
    shortened
}

/// Returns the length of a text in a page, with its quotes and a comma.
pub fn text_bytes(text: &str) -> usize {
    3 + text.chars().map(character_bytes).sum::<usize>()
}

fn character_bytes(character: char) -> usize {
    match character {
        // The page has `<` as an escape.
        '<' | '\0'..='\x1f' => 6,
        '"' | '\\' => 2,
        _ => character.len_utf8(),
    }
}

/// Returns the length above which names are cut.
fn limit(names: &[String], budget: usize) -> usize {
    let mut lengths: Vec<usize> = names.iter().map(|name| text_bytes(name)).collect();
    lengths.sort_unstable();
    let mut room = budget;
    for (index, &length) in lengths.iter().enumerate() {
        // Room that short names do not need is for the long ones.
        let part = room / (lengths.len() - index);
        if length > part {
            return part.max(MIN_BYTES);
        }
        room -= length;
    }
    usize::MAX
}

/// Returns the beginning and the end of a name, with at most this length in a page.
fn cut(name: &str, bytes: usize) -> String {
    let half = bytes.saturating_sub(text_bytes("…")) / 2;
    let fitting = |characters: &mut dyn Iterator<Item = char>| -> Vec<char> {
        let mut used = 0;
        characters
            .take_while(|&character| {
                used += character_bytes(character);
                used <= half
            })
            .collect()
    };
    let begin = fitting(&mut name.chars());
    let end = fitting(&mut name.chars().rev());
    begin.into_iter().chain(['…']).chain(end.into_iter().rev()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_names_are_cut() {
        let names = || vec!["main".to_owned(), "a".repeat(5000), "<".repeat(1000) + "end"];
        let mut all = names();
        assert_eq!((shorten(&mut all, 20_000), all), (0, names()));
        let mut cut = names();
        assert_eq!(shorten(&mut cut, 1000), 2);
        assert_eq!(cut[0], "main");
        assert!(cut[1].starts_with("aaa") && cut[1].contains('…'), "{}", cut[1]);
        assert!(cut[2].starts_with("<<<") && cut[2].ends_with("end"), "{}", cut[2]);
        let length: usize = cut.iter().map(|name| text_bytes(name)).sum();
        assert!((900..=1000).contains(&length), "{length}");
    }

    #[test]
    fn names_keep_their_begin_without_room() {
        let mut names = vec!["x".repeat(40); 100];
        assert_eq!(shorten(&mut names, 10), 100);
        assert!(names.iter().all(|name| name.starts_with("xxxxxxxx")), "{names:?}");
        assert_eq!(shorten(&mut [], 10), 0);
    }

    #[test]
    fn length_is_that_in_a_page() {
        for text in ["", "plain", "a<b>\"c\\d", "Ü\t\u{1}…"] {
            // The shortest escapes of controls have two characters: the length is never too small.
            let json = serde_json::to_string(text).unwrap().replace('<', "\\u003c");
            assert!((json.len() + 1..=json.len() + 5).contains(&text_bytes(text)), "{json}");
        }
    }
}
