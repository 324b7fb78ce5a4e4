//! The calls at the instructions of code: a list that stays encoded, since most readers only copy it.
//! Pure.

use crate::record::ids::{FileId, FunctionId};
use crate::record::limits;
use crate::record::line::Line;
use crate::record::number::{push_varint, push_varints};

/// A call at an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRow {
    /// The distance of the instruction from the first byte of the code.
    pub offset: u32,
    /// The function and line. Several rows of one offset are inlined calls, innermost first.
    pub line: Line,
}

/// The longest encoding of a row without function: an offset and four zeros.
const MAX_END_BYTES: usize = 5 + 4;

/// A list of rows by ascending offset, as encoded in a binary stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRows<'a>(&'a [u8]);

impl<'a> CodeRows<'a> {
    /// No rows.
    pub const NONE: Self = Self(&[]);

    /// Appends the encoding of rows, as many as [`limits::CODE_ROWS`] admits: those of lower offsets, and
    /// all of an offset or none. A row without function ends them if there are more.
    pub fn encode(rows: &[CodeRow], out: &mut Vec<u8>) {
        let (start, mut last) = (out.len(), 0);
        for stack in rows.chunk_by(|one, other| one.offset == other.offset) {
            let (before, before_stack) = (out.len(), last);
            for row in stack {
                push_row(out, row, last);
                last = row.offset;
            }
            if out.len() - start > limits::CODE_ROWS - MAX_END_BYTES {
                out.truncate(before);
                // The last row holds up to the next one: the instructions after it are not its own.
                let end = CodeRow { offset: stack[0].offset, ..CodeRow::default() };
                push_row(out, &end, before_stack);
                return;
            }
        }
    }

    /// Returns the rows of their encoding. None if it is malformed.
    pub fn from_encoded(encoded: &'a [u8]) -> Option<Self> {
        let mut rest = Rest { bytes: encoded, offset: 0 };
        while !rest.bytes.is_empty() {
            rest.row()?;
        }
        (encoded.len() <= limits::CODE_ROWS).then_some(Self(encoded))
    }

    /// Returns the encoding.
    pub fn encoded(self) -> &'a [u8] {
        self.0
    }

    /// Returns the rows in order.
    pub fn iter(self) -> impl Iterator<Item = CodeRow> + 'a {
        let mut rest = Rest { bytes: self.0, offset: 0 };
        std::iter::from_fn(move || rest.row())
    }
}

/// Appends a row after one with the offset `last`.
pub(crate) fn push_row(out: &mut Vec<u8>, row: &CodeRow, last: u32) {
    // Rows out of order have no encoding: they count as rows of the offset before them.
    push_varint(out, u64::from(row.offset.saturating_sub(last)));
    let Line { function, file, line, column } = row.line;
    push_varints(out, [function.0, file.0, line, column]);
}

/// The rows that have not been read yet.
struct Rest<'a> {
    bytes: &'a [u8],
    offset: u32,
}

impl Rest<'_> {
    fn row(&mut self) -> Option<CodeRow> {
        self.offset = self.offset.checked_add(self.number()?)?;
        let (function, file) = (FunctionId(self.id()?), FileId(self.id()?));
        let line = Line { function, file, line: self.number()?, column: self.number()? };
        Some(CodeRow { offset: self.offset, line })
    }

    fn id(&mut self) -> Option<u32> {
        self.number().filter(|&id| id <= limits::ID)
    }

    /// Reads a number of 32 bits in its shortest form.
    fn number(&mut self) -> Option<u32> {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let is_shortest = byte > 0 || shift == 0;
                return u32::try_from(value).ok().filter(|_| is_shortest);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(offset: u32, function: u32, line: u32) -> CodeRow {
        let line = Line { function: FunctionId(function), file: FileId(1), line, column: 0 };
        CodeRow { offset, line }
    }

    fn encoded(rows: &[CodeRow]) -> Vec<u8> {
        let mut out = Vec::new();
        CodeRows::encode(rows, &mut out);
        out
    }

    #[test]
    fn rows_survive_their_encoding() {
        let rows =
            [row(0, 1, 3), row(0, 2, 300), row(7, limits::ID, u32::MAX), row(u32::MAX, 0, 0)];
        let bytes = encoded(&rows);
        assert!(CodeRows::from_encoded(&bytes).is_some_and(|read| read.iter().eq(rows)));
        for length in 0..bytes.len() {
            let cut = CodeRows::from_encoded(&bytes[..length]);
            assert!(cut.is_none_or(|read| read.iter().count() < rows.len()), "{length}");
        }
    }

    #[test]
    fn malformed_rows_are_refused() {
        let too_far = [encoded(&[row(u32::MAX, 1, 1)]), encoded(&[row(1, 1, 1)])].concat();
        let no_id = [&[0][..], &[0xff, 0xff, 0xff, 0x7f], &[0, 0, 0]].concat();
        for wrong in [&[0x80, 0, 0, 0, 0, 0][..], &[0, 0, 0], &too_far, &no_id] {
            assert_eq!(CodeRows::from_encoded(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn rows_beyond_the_limit_are_left_out_with_their_callers() {
        let rows: Vec<CodeRow> = (0..80_000).map(|number| row(number / 2, 9, 70_000)).collect();
        let bytes = encoded(&rows);
        let read: Vec<CodeRow> = CodeRows::from_encoded(&bytes).unwrap().iter().collect();
        let kept = read.len() - 1;
        assert!(kept > 10_000 && kept < rows.len() && kept.is_multiple_of(2), "{kept}");
        assert_eq!(read[..kept], rows[..kept]);
        // The instructions of the rows that were left out have no function.
        assert_eq!(read[kept], CodeRow { offset: rows[kept].offset, ..CodeRow::default() });
    }
}
