//! Finds the beginning of blocks and segments in buffered bytes.

use std::ops::Range;

use memchr::{memchr, memmem};

use crate::codec::binary::{Header, MAGIC};
use crate::codec::text;
use crate::record::limits;

/// The result of a search for the beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is at this position.
    At(usize),
    /// It may be here, but the end of the line is not buffered.
    Unfinished,
    /// It is not among the bytes.
    None,
}

/// True if bytes are the beginning of a block, of a segment in text, or of a comment.
pub(super) fn begins(bytes: &[u8]) -> bool {
    is_start_of(bytes, &MAGIC)
        || is_start_of(bytes, text::HEAD_WORD)
        || matches!(bytes, [b'#' | b'\n', ..])
}

/// True if one of both is the beginning of the other.
pub(super) fn is_start_of(bytes: &[u8], whole: &[u8]) -> bool {
    let length = bytes.len().min(whole.len());
    bytes[..length] == whole[..length]
}

/// Returns the position of the magic, or of a line that begins like the first one of a segment.
pub(super) fn find_any(bytes: &[u8]) -> Option<usize> {
    // Only at the start of a line: elsewhere the word may be data.
    let line = memmem::find(bytes, b"\n@nprof\t").map(|at| at + 1);
    memmem::find(bytes, &MAGIC).into_iter().chain(line).min()
}

/// Returns the good header at a position.
pub(super) fn header_at(bytes: &[u8], at: usize) -> Option<Header> {
    bytes.get(at..)?.first_chunk().and_then(Header::from_bytes)
}

/// Returns the position of a good header among those that begin `within` a part and are `wanted`.
pub(super) fn find_header(
    bytes: &[u8],
    within: Range<usize>,
    wanted: impl Fn(&Header) -> bool,
) -> Option<usize> {
    places_of(&MAGIC, bytes, within).find(|&at| header_at(bytes, at).is_some_and(|h| wanted(&h)))
}

/// Returns the position of the first segment among those that begin `within` a part: with a good
/// header numbered 0, or with the line of a head.
pub(super) fn find_segment(bytes: &[u8], within: Range<usize>) -> Start {
    let block = find_header(bytes, within.clone(), |header| header.sequence == 0);
    // The first of both begins the segment: a head after the block is not searched.
    let before = within.start..block.unwrap_or(within.end);
    match (find_head(bytes, before), block) {
        (Start::At(at), _) => Start::At(at),
        // The magic ends a line, so that no line before it is unfinished.
        (_, Some(at)) => Start::At(at),
        (head, None) => head,
    }
}

/// Returns the position of the line of a head among those that begin `within` a part.
fn find_head(bytes: &[u8], within: Range<usize>) -> Start {
    let mut line_end = 0;
    for at in places_of(text::HEAD_WORD, bytes, within) {
        // One search for the end of each line, not for each word in it.
        if line_end <= at {
            match memchr(b'\n', &bytes[at..]) {
                Some(length) => line_end = at + length,
                // A longer line cannot be a head: no more input is buffered for it.
                None if bytes.len() - at <= limits::LINE => return Start::Unfinished,
                None => return Start::None,
            }
        }
        if text::is_head(&bytes[at..line_end]) {
            return Start::At(at);
        }
    }
    Start::None
}

/// Returns the position of a word among those `within` a part.
fn places_of<'a>(
    word: &'a [u8],
    bytes: &'a [u8],
    within: Range<usize>,
) -> impl Iterator<Item = usize> + 'a {
    let end = bytes.len().min(within.end.saturating_add(word.len() - 1));
    let part = bytes.get(within.start..end).unwrap_or_default();
    memmem::find_iter(part, word).map(move |at| within.start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"@nprof\t1.1\trun=0x1\tcommand=a\n";

    fn header(sequence: u32) -> Vec<u8> {
        let header = Header {
            major: 1,
            minor: 0,
            must: 0,
            may: 0,
            length: 0,
            run: 1,
            sequence,
            samples: 0,
            time: 0,
        };
        header.to_bytes().to_vec()
    }

    #[test]
    fn a_segment_begins_with_a_good_header_or_a_whole_line() {
        for (start, found) in [
            (header(0), Start::At(3)),
            (header(1), Start::None),
            (header(0)[..47].to_vec(), Start::None),
            (HEAD.to_vec(), Start::At(3)),
            (HEAD[..HEAD.len() - 1].to_vec(), Start::Unfinished),
            (b"@nprof\t1.1\tcommand=a\n".to_vec(), Start::None),
            (b"@nprof\tx.0\trun=0x1\n".to_vec(), Start::None),
            ([b"@nprof\t@nprof\t1.1", HEAD].concat(), Start::At(20)),
            ([b"@nprof\t", &header(0)[..]].concat(), Start::At(10)),
        ] {
            let bytes = [b"abc", &start[..]].concat();
            assert_eq!(find_segment(&bytes, 1..bytes.len()), found, "{start:?}");
        }
    }

    #[test]
    fn only_what_begins_within_the_part_is_found() {
        for start in [header(0), HEAD.to_vec()] {
            let bytes = [b"abc", &start[..], b"abc"].concat();
            assert_eq!(find_segment(&bytes, 1..4), Start::At(3));
            assert_eq!(find_segment(&bytes, 1..3), Start::None);
            assert_eq!(find_segment(&bytes, 4..bytes.len()), Start::None);
            assert_eq!(find_segment(&bytes, bytes.len()..4), Start::None);
        }
    }
}
