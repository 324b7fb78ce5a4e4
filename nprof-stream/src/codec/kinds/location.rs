//! Locations of frames: lists of functions and lines.

use super::encoded::{Encoded, Scratch};
use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::field::text::{TextFields, push_display, push_extras, push_number};
use crate::record::error::Malformed;
use crate::record::limits;
use crate::record::number::{decimal, push_varint, push_varints};
use crate::record::*;

impl<'a> Encoded<'a> for Location<'a> {
    fn push_binary(&self, out: &mut Vec<u8>, _: &mut BlockState) {
        push_varint(out, u64::from(self.frame.0));
        out.push(self.status.number());
        push_varint(out, self.lines.len() as u64);
        for line in self.lines {
            push_varints(out, [line.function.0, line.file.0, line.line, line.column]);
        }
        out.extend_from_slice(self.extras.encoded());
    }

    fn read_binary(
        mut from: Bytes<'a>,
        _: &mut BlockState,
        scratch: &'a mut Scratch,
    ) -> Result<Self, Malformed> {
        let Scratch { lines, after_lines, .. } = scratch;
        let frame = FrameId(from.id()?);
        let status = Status::from_number(from.byte()?);
        let count = from.varint()?;
        // The count is only a claim: it is checked, and no memory is reserved for it.
        if count > limits::LINES as u64 {
            return Err(Malformed::Limit(limits::LINES));
        }
        lines.clear();
        for _ in 0..count {
            lines.push(Line {
                function: FunctionId(from.id_or_none()?),
                file: FileId(from.id_or_none()?),
                line: from.u32()?,
                column: from.u32()?,
            });
        }
        *after_lines = from.0.len();
        Ok(Self { frame, status, lines, extras: from.extras()? })
    }

    fn push_text(&self, out: &mut Vec<u8>) {
        push_number(out, u64::from(self.frame.0));
        push_display(out, self.status);
        for at in self.lines {
            let Line { function, file, line, column } = at;
            push_display(out, format_args!("{function},{file},{line},{column}"));
        }
        push_extras(out, self.extras);
    }

    fn read_text(mut from: TextFields<'a>, scratch: &'a mut Scratch) -> Result<Self, Malformed> {
        let frame = FrameId(from.id()?);
        let status = Status::from_word(from.field()?).ok_or(Malformed::Field("a status"))?;
        let lines = &mut scratch.lines;
        lines.clear();
        // Text has no count of groups: they end at the first extra.
        while from.next_is_plain() {
            if lines.len() == limits::LINES {
                return Err(Malformed::Limit(limits::LINES));
            }
            lines.push(read_line_group(from.field()?)?);
        }
        Ok(Self { frame, status, lines, extras: from.extras()? })
    }
}

fn read_line_group(group: &[u8]) -> Result<Line, Malformed> {
    const EXPECTED: Malformed = Malformed::Field("function,file,line,column");
    let mut numbers = group
        .split(|&b| b == b',')
        .map(|number| decimal(number).and_then(|n| u32::try_from(n).ok()).ok_or(EXPECTED));
    let mut next = || numbers.next().ok_or(EXPECTED)?;
    let (function, file) = (next()?, next()?);
    let line =
        Line { function: FunctionId(function), file: FileId(file), line: next()?, column: next()? };
    if numbers.next().is_some() || function > limits::ID || file > limits::ID {
        return Err(EXPECTED);
    }
    Ok(line)
}

/// Decodes a body a second time: its list is still in the scratch.
pub(crate) fn read_location_again<'a>(
    mut from: Bytes<'a>,
    scratch: &'a Scratch,
) -> Result<Location<'a>, Malformed> {
    let body = from.0;
    let frame = FrameId(from.id()?);
    let status = Status::from_number(from.byte()?);
    // Groups have no fixed length: only the first pass knows the start of the extras.
    let at = body.len().saturating_sub(scratch.after_lines);
    let extras = Bytes(&body[at..]).extras()?;
    Ok(Location { frame, status, lines: &scratch.lines, extras })
}
