//! Decodes a line.

use super::line::{LINE, is_plain, is_unknown_line};
use crate::codec::binary;
use crate::codec::field::binary::BlockState;
use crate::codec::field::text::TextFields;
use crate::codec::kinds::encoded::{Encoded, Scratch};
use crate::record::error::Malformed;
use crate::record::kind::{self, with_kinds};
use crate::record::number::{decimal, hex_bytes_in_place};
use crate::record::*;

/// True if bytes begin with the word of a record: a stream that lost its own beginning.
pub(crate) fn begins_with_a_record(bytes: &[u8]) -> bool {
    kind::KINDS.iter().any(|kind| {
        bytes.strip_prefix(kind.word.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'\t'))
    })
}

/// Decodes a line, without its newline. Strings are unescaped in place.
pub(crate) fn read_line<'a>(
    line: &'a mut [u8],
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    // Words in lower case belong to later versions or private use (nprof-format(5), TEXT).
    if line.first().is_some_and(u8::is_ascii_lowercase) {
        if !is_unknown_line(line) {
            return Err(Malformed::Field("a line without control characters"));
        }
        return Ok(Record::Unknown(Unknown { kind: LINE, body: line }));
    }
    let mut from = TextFields { rest: Some(line) };
    let word = from.field()?;
    if word.first() == Some(&b'?') {
        return read_unknown(&word[1..], from, scratch);
    }
    let kind = kind::by_word(word).ok_or(Malformed::Field("the word of a kind of record"))?;
    if kind.number == kind::HEAD {
        // The version: the reader has checked it.
        from.field()?;
    }
    read_fields(kind.number, from, scratch)
}

macro_rules! lines {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $word:literal $name:literal
       $encoding:ident $variant:ident($type:ident) $fields:tt)*) => {
        /// Decodes the fields of a line of this kind.
        fn read_fields<'a>(
            kind: u8,
            from: TextFields<'a>,
            scratch: &'a mut Scratch,
        ) -> Result<Record<'a>, Malformed> {
            match kind {
                $(kind::$constant => Encoded::read_text(from, scratch).map(Record::$variant),)*
                _ => Err(Malformed::Field("a known kind")),
            }
        }
    };
}

with_kinds!(lines);

/// Decodes a record by its kind's number: an earlier version writes `?N` for a kind that this version
/// knows.
fn read_unknown<'a>(
    number: &[u8],
    mut from: TextFields<'a>,
    scratch: &'a mut Scratch,
) -> Result<Record<'a>, Malformed> {
    let kind = decimal(number).and_then(|number| u8::try_from(number).ok());
    let kind = kind.filter(|&kind| (kind::FIRST_OPTIONAL..=kind::LAST).contains(&kind));
    let kind = kind.ok_or(Malformed::Field("the number of an optional kind"))?;
    let body = hex_bytes_in_place(from.field()?).ok_or(Malformed::Field("hexadecimal bytes"))?;
    // The body includes the extras.
    from.end()?;
    binary::read_body(kind, body, &mut BlockState::new(0), scratch)
}

/// Returns the number of the kind of a line, if it must not be skipped.
pub(crate) fn required_kind(line: &[u8]) -> Option<u64> {
    let word = line.strip_prefix(b"?")?.split(|&b| b == b'\t').next()?;
    let optional = u64::from(kind::FIRST_OPTIONAL)..=u64::from(kind::LAST);
    // A line with control characters is damage, no reason to refuse the stream.
    decimal(word).filter(|number| !optional.contains(number) && is_plain(line))
}
