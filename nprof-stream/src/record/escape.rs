//! Escaping of strings in text streams, and of names on their way to a terminal.
//!
//! A string field is UTF-8 with `\\`, `\t`, `\n`, `\r` and `\xHH` for everything that would
//! break the line, the terminal or the round trip: control characters (C0, DEL, C1) and bytes
//! that are not UTF-8. An absent string is `-`, so the string "-" is `\x2d`. Empty strings count
//! as absent.

use crate::record::number::nibble;

/// Appends `bytes`, escaped for a string field; an empty string becomes `-`.
pub fn push_field(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes {
        b"" => out.push(b'-'),
        b"-" => out.extend_from_slice(b"\\x2d"),
        _ => match bytes.strip_suffix(b"@nprof") {
            None => push_escaped(out, bytes),
            // Followed by a TAB this would look like the head of a stream that was appended to a
            // truncated one.
            Some(before) => {
                push_escaped(out, before);
                out.extend_from_slice(b"\\x40nprof");
            }
        },
    }
}

/// Appends `bytes` with control characters, backslashes and bytes that are not UTF-8 escaped.
///
/// Tools also print names and paths through it: a symbol name may hold terminal commands.
pub fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let mut done = 0;
        for (at, character) in valid.char_indices() {
            if !character.is_control() && character != '\\' {
                continue;
            }
            out.extend_from_slice(&valid.as_bytes()[done..at]);
            done = at + character.len_utf8();
            match character {
                '\\' => out.extend_from_slice(b"\\\\"),
                '\t' => out.extend_from_slice(b"\\t"),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                _ => push_hex(out, &valid.as_bytes()[at..done]),
            }
        }
        out.extend_from_slice(&valid.as_bytes()[done..]);
        push_hex(out, chunk.invalid());
    }
}

/// Returns `bytes` for people: escaped as by [`push_escaped`], and so are the characters that change
/// the direction or the end of a line. In a stream these are ordinary characters.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    push_escaped(&mut out, bytes);
    let text = String::from_utf8_lossy(&out);
    if !text.contains(is_invisible) {
        return text.into_owned();
    }
    let mut plain = Vec::with_capacity(out.len());
    for character in text.chars() {
        let mut buffer = [0; 4];
        let bytes = character.encode_utf8(&mut buffer).as_bytes();
        if is_invisible(character) {
            push_hex(&mut plain, bytes);
        } else {
            plain.extend_from_slice(bytes);
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// True for characters that change the order of the text around them (UAX 9, section 2: marks,
/// embeddings, overrides and isolates), and for line and paragraph separators.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Reverses [`escaped`]. None for an unknown escape, and for characters that must be escaped.
pub fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    unescape_in_place(&mut text.to_vec()).map(<[u8]>::to_vec)
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

/// Reverses [`push_field`] in place; the string begins where the field began.
///
/// None if the field is empty or has an unknown escape.
pub(crate) fn unescape_field_in_place(field: &mut [u8]) -> Option<&[u8]> {
    match &*field {
        b"" => None,
        b"-" => Some(&[]),
        _ => unescape_in_place(field),
    }
}

/// Reverses [`push_escaped`] in place. None for an unknown escape, and for characters that must be
/// escaped.
pub(crate) fn unescape_in_place(field: &mut [u8]) -> Option<&[u8]> {
    // Control characters are valid as escapes only: raw ones may reach a terminal.
    let is_plain = |text: &str| !text.chars().any(char::is_control);
    if !std::str::from_utf8(field).is_ok_and(is_plain) {
        return None;
    }
    // Few strings have escapes: without one no byte moves.
    let Some(mut from) = memchr::memchr(b'\\', field) else {
        return Some(field);
    };
    let mut to = from;
    while from < field.len() {
        let (byte, length) = match field[from] {
            b'\\' => match *field.get(from + 1)? {
                b'\\' => (b'\\', 2),
                b't' => (b'\t', 2),
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b'x' => {
                    let high = nibble(*field.get(from + 2)?)?;
                    let low = nibble(*field.get(from + 3)?)?;
                    (high << 4 | low, 4)
                }
                _ => return None,
            },
            byte => (byte, 1),
        };
        field[to] = byte;
        to += 1;
        from += length;
    }
    Some(&field[..to])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn control_characters_and_invalid_bytes_are_escaped() {
        assert_eq!(escaped(b"a b\xc3\xa9"), "a b\u{e9}");
        assert_eq!(escaped(b"\\\t\n\r\x1b[31m"), "\\\\\\t\\n\\r\\x1b[31m");
        assert_eq!(escaped(b"\x7f\xc2\x9b\xff\xc3"), "\\x7f\\xc2\\x9b\\xff\\xc3");
    }

    #[test]
    fn direction_marks_are_escaped_for_people_only() {
        let name = "f\u{202e}x\u{2028}\u{2069}\u{200f}é";
        assert_eq!(
            escaped(name.as_bytes()),
            "f\\xe2\\x80\\xaex\\xe2\\x80\\xa8\\xe2\\x81\\xa9\\xe2\\x80\\x8fé"
        );
        assert_eq!(unescaped(escaped(name.as_bytes()).as_bytes()), Some(name.into()));
        let mut stream = Vec::new();
        push_escaped(&mut stream, name.as_bytes());
        assert_eq!(stream, name.as_bytes());
    }

    #[test]
    fn absent_string_and_dash_differ() {
        let mut out = Vec::new();
        push_field(&mut out, b"");
        out.push(b' ');
        push_field(&mut out, b"-");
        assert_eq!(out, b"- \\x2d");
        assert_eq!(unescape_field_in_place(&mut b"-".to_vec()), Some(&b""[..]));
        assert_eq!(unescape_field_in_place(&mut b"\\x2d".to_vec()), Some(&b"-"[..]));
    }

    #[test]
    fn field_never_ends_like_the_word_of_a_head() {
        let mut out = Vec::new();
        push_field(&mut out, b"a\n@nprof");
        assert_eq!(out, b"a\\n\\x40nprof");
        assert_eq!(unescape_field_in_place(&mut out), Some(&b"a\n@nprof"[..]));
    }

    #[test]
    fn unknown_escape_is_refused() {
        for wrong in ["", "\\", "\\q", "\\x1", "\\xG0", "\\xAB", "a\r", "\u{9b}"] {
            assert_eq!(unescape_field_in_place(&mut wrong.as_bytes().to_vec()), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn every_string_survives_a_round_trip(bytes: Vec<u8>) {
            let mut field = Vec::new();
            push_field(&mut field, &bytes);
            prop_assert!(!field.iter().any(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x1b)));
            prop_assert!(std::str::from_utf8(&field).is_ok());
            prop_assert_eq!(unescape_field_in_place(&mut field), Some(&bytes[..]));
        }
    }
}
