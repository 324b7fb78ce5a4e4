//! The optional tail of a record: `key=value` fields. Later minor versions may add keys.

use std::borrow::Cow;

use crate::record::escape::{push_escaped, unescape_in_place};
use crate::record::limits::{self, clip};
use crate::record::number::{decimal, hexadecimal, push_decimal};

/// The extras of a record as encoded: fields `key=value` joined by TAB, values escaped.
///
/// The bytes are the same in both encodings, so that a program can forward keys it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras<'a>(&'a [u8]);

impl<'a> Extras<'a> {
    /// No extras.
    pub const NONE: Extras<'static> = Extras(&[]);

    /// Validates encoded extras. None if they are malformed.
    pub fn from_encoded(encoded: &'a [u8]) -> Option<Self> {
        let well_formed = encoded.is_empty()
            || encoded.split(|&b| b == b'\t').all(|field| {
                let Some(at) = memchr::memchr(b'=', field) else {
                    return false;
                };
                is_key(&field[..at]) && is_canonical(&field[at + 1..])
            });
        well_formed.then_some(Self(encoded))
    }

    /// Validates the last fields of a text line, and removes needless escapes in place. None if they
    /// are malformed.
    pub(crate) fn from_text(text: &'a mut [u8]) -> Option<Self> {
        // Only text from other programs has needless escapes: canonical extras are not copied.
        if Extras::from_encoded(text).is_none() {
            let mut encoded = Vec::with_capacity(text.len());
            for field in text.split(|&b| b == b'\t') {
                let (key, value) = field.split_at(memchr::memchr(b'=', field)? + 1);
                encoded.extend_from_slice(if encoded.is_empty() { b"" } else { b"\t" });
                encoded.extend_from_slice(key);
                push_escaped(&mut encoded, unescape_in_place(&mut value.to_vec())?);
            }
            // Removing needless escapes only shortens the text.
            text.get_mut(..encoded.len())?.copy_from_slice(&encoded);
            return Self::from_encoded(&text[..encoded.len()]);
        }
        Self::from_encoded(text)
    }

    /// Returns the extras as encoded in the stream.
    pub fn encoded(self) -> &'a [u8] {
        self.0
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(self, key: &str) -> Option<Cow<'a, [u8]>> {
        let value = self
            .0
            .split(|&b| b == b'\t')
            .find_map(|field| field.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
        if !value.contains(&b'\\') {
            return Some(Cow::Borrowed(value));
        }
        let mut value = value.to_vec();
        let length = unescape_in_place(&mut value)?.len();
        value.truncate(length);
        Some(Cow::Owned(value))
    }

    /// Returns the value of a key as a number, decimal or `0x` hexadecimal.
    pub fn number(self, key: &str) -> Option<u64> {
        let value = self.get(key)?;
        decimal(&value).or_else(|| hexadecimal(&value))
    }
}

/// Encodes [`Extras`], with keys in the order of their addition.
#[derive(Clone, Debug, Default)]
pub struct ExtrasBuilder(Vec<u8>);

impl ExtrasBuilder {
    /// Creates a builder without extras.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a builder with these extras, in which `key` is removed and then added with `value`.
    pub fn replacing(extras: Extras<'_>, key: &str, value: &[u8]) -> Self {
        let mut builder = Self::without(extras, key);
        builder.add(key, value);
        builder
    }

    /// Creates a builder with these extras but for `key`.
    pub fn without(extras: Extras<'_>, key: &str) -> Self {
        let has_key = |field: &[u8]| {
            field.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
        };
        let fields = extras.encoded().split(|&b| b == b'\t');
        let kept: Vec<&[u8]> =
            fields.filter(|field| !field.is_empty() && !has_key(field)).collect();
        Self(kept.join(&b'\t'))
    }

    /// Adds a key, which must be a lower-case word (`a-z`, `0-9`, `_`, `.`).
    pub fn add(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.add_key(key);
        push_escaped(&mut self.0, &clip(value));
        self
    }

    /// Adds a key as [`Self::add`], with a decimal number.
    pub fn add_number(&mut self, key: &str, value: u64) -> &mut Self {
        self.add_key(key);
        push_decimal(&mut self.0, value);
        self
    }

    fn add_key(&mut self, key: &str) {
        debug_assert!(is_key(key.as_bytes()), "{key:?} is not a key");
        if !self.0.is_empty() {
            self.0.push(b'\t');
        }
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
    }

    /// Removes all keys, but keeps the memory for others.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the extras.
    pub fn extras(&self) -> Extras<'_> {
        Extras(&self.0)
    }
}

/// True if these bytes may be a key.
pub(crate) fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
}

/// True if this is the canonical encoding of a string within the limit: decoding and encoding it
/// restores it.
fn is_canonical(value: &[u8]) -> bool {
    // Most values are numbers: this takes no memory.
    if value.iter().all(|&b| matches!(b, b' '..=b'~') && b != b'\\') {
        return value.len() <= limits::STRING;
    }
    let mut plain = value.to_vec();
    let Some(plain) = unescape_in_place(&mut plain) else {
        return false;
    };
    let mut again = Vec::with_capacity(value.len());
    push_escaped(&mut again, plain);
    plain.len() <= limits::STRING && again == value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_key_is_found() {
        let mut builder = ExtrasBuilder::new();
        builder.add("base", b"0xffffffff81000000").add("exe", b"/a\tb").add_number("task", 7);
        let extras = builder.extras();
        assert_eq!(extras.encoded(), b"base=0xffffffff81000000\texe=/a\\tb\ttask=7");
        assert_eq!(extras.number("base"), Some(0xffff_ffff_8100_0000));
        assert_eq!(extras.get("exe").as_deref(), Some(&b"/a\tb"[..]));
        assert_eq!(extras.number("task"), Some(7));
        assert_eq!(extras.get("tas"), None);
        assert_eq!(Extras::from_encoded(extras.encoded()), Some(extras));
    }

    #[test]
    fn value_longer_than_a_string_is_cut() {
        let mut builder = ExtrasBuilder::new();
        builder.add("exe", &[b'x'; limits::STRING + 1]);
        let extras = builder.extras();
        assert_eq!(Extras::from_encoded(extras.encoded()), Some(extras));
        let value = extras.get("exe").unwrap();
        assert!(value.len() == limits::STRING && value.ends_with(b"x..."), "{}", value.len());
    }

    #[test]
    fn value_is_replaced() {
        let extras = Extras::from_encoded(b"base=0x1\ttask=7\ttasks=2").unwrap();
        let builder = ExtrasBuilder::replacing(extras, "task", b"8");
        assert_eq!(builder.extras().encoded(), b"base=0x1\ttasks=2\ttask=8");
        let builder = ExtrasBuilder::replacing(Extras::NONE, "task", b"8");
        assert_eq!(builder.extras().encoded(), b"task=8");
    }

    #[test]
    fn only_the_canonical_form_is_accepted() {
        for wrong in ["a", "=1", "A=1", "a=1\t", "a=\\x41", "a=\\q", "a=\x1b", "a=1\t\tb=2"] {
            assert_eq!(Extras::from_encoded(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert!(Extras::from_encoded(b"a=").is_some());
        let long = [b"a=", &[b'x'; limits::STRING + 1][..]].concat();
        assert_eq!(Extras::from_encoded(&long), None);
        assert!(Extras::from_encoded(&long[..long.len() - 1]).is_some());
    }

    #[test]
    fn needless_escapes_are_accepted_in_text() {
        let mut text = *b"a=\\x41\\x0a\\xff\tb=\\x2d";
        let extras = Extras::from_text(&mut text).unwrap();
        assert_eq!(extras.encoded(), b"a=A\\n\\xff\tb=-");
        for wrong in ["a", "=1", "a=1\t", "a=\\q", "a=\\x4", "a=\x1b", "a=1\t\tb=2"] {
            assert_eq!(Extras::from_text(&mut wrong.as_bytes().to_vec()), None, "{wrong:?}");
        }
    }
}
