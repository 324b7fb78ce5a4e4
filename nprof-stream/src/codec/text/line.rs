//! Recognizes lines: heads, lines of unknown kinds, valid text.

use crate::record::limits;
use crate::record::number::decimal;
use crate::record::pairs::{Head, PairRecord};
use crate::record::version::MAJOR;

/// The start of the first line of a segment.
pub(crate) const HEAD_WORD: &[u8] = b"@nprof\t";

/// The kind that carries a line with an unknown word in binary. Words of optional kinds of later
/// versions begin with a lower-case letter.
pub(crate) const LINE: u8 = 111;

/// Parses the version after the word of a segment's first line.
pub(crate) fn head_version(line: &[u8]) -> Option<(u8, u8)> {
    let version = line.strip_prefix(HEAD_WORD)?.split(|&b| b == b'\t').next()?;
    let at = memchr::memchr(b'.', version)?;
    let major = u8::try_from(decimal(&version[..at])?).ok()?;
    let minor = u8::try_from(decimal(&version[at + 1..])?).ok()?;
    Some((major, minor))
}

/// True if a line, without its newline, is that of a head.
pub(crate) fn is_head(line: &[u8]) -> bool {
    // The word alone may be part of damage: only a head that can be read begins a segment.
    let pairs = line.splitn(3, |&b| b == b'\t').nth(2);
    let is_ours = head_version(line).is_some_and(|(major, _)| major == MAJOR);
    is_ours && pairs.is_some_and(|pairs| Head::read(pairs).is_ok())
}

/// Returns the position in a line, past its first byte, of the line of a head: the start of another
/// stream that was joined to this one where it was cut off.
pub(crate) fn find_head(line: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'@', line)
        // At 0 it is the head of this line itself.
        .filter(|&at| at > 0 && line[at..].starts_with(HEAD_WORD))
        .find(|&at| is_head(&line[at..]))
}

/// True if these bytes are a valid line of a kind that this version does not know.
pub(super) fn is_unknown_line(line: &[u8]) -> bool {
    // In binary such a body was never checked as text, and it must be read as the same line again.
    line.first().is_some_and(u8::is_ascii_lowercase)
        && line.len() <= limits::LINE
        && is_plain(line)
        && find_head(line).is_none()
}

/// True if a line is UTF-8 without control characters.
pub(super) fn is_plain(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|line| !line.chars().any(|c| c.is_control() && c != '\t'))
}
