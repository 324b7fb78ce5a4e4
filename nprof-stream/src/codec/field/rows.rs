//! The calls at instructions in text: groups `offset,function,file,line,column`, separated by `;`.

use crate::record::code_rows::{CodeRow, CodeRows, push_row};
use crate::record::number::{decimal, push_decimal};
use crate::record::{FileId, FunctionId, Line};

/// Appends a field: the rows, or `-` for none.
pub(crate) fn push_text(out: &mut Vec<u8>, rows: CodeRows<'_>) {
    out.push(b'\t');
    if rows == CodeRows::NONE {
        out.push(b'-');
        return;
    }
    let mut separator = None;
    for CodeRow { offset, line } in rows.iter() {
        out.extend(separator.replace(b';'));
        push_decimal(out, u64::from(offset));
        for number in [line.function.0, line.file.0, line.line, line.column] {
            out.push(b',');
            push_decimal(out, u64::from(number));
        }
    }
}

/// Replaces a field by the encoding of its rows, and returns them. None if it is malformed.
pub(crate) fn read_in_place(field: &mut [u8]) -> Option<CodeRows<'_>> {
    if field == b"-" {
        return Some(CodeRows::NONE);
    }
    // An empty field would be a second form of `-`.
    let (mut read, mut written, mut last) = (0, 0, 0);
    let mut encoded = Vec::new();
    loop {
        let group = field.get(read..)?;
        let end = memchr::memchr(b';', group).unwrap_or(group.len());
        let row = read_group(&group[..end]).filter(|row| row.offset >= last)?;
        encoded.clear();
        push_row(&mut encoded, &row, last);
        // A number has at most as many bytes as digits, so that the encoding never reaches text that has
        // not been read.
        field.get_mut(written..written + encoded.len())?.copy_from_slice(&encoded);
        written += encoded.len();
        last = row.offset;
        read += end + 1;
        if read > field.len() {
            break;
        }
    }
    CodeRows::from_encoded(&field[..written])
}

fn read_group(group: &[u8]) -> Option<CodeRow> {
    let mut numbers = group
        .split(|&byte| byte == b',')
        .map(|digits| decimal(digits).and_then(|number| u32::try_from(number).ok()));
    let mut next = || numbers.next().flatten();
    let offset = next()?;
    let (function, file) = (FunctionId(next()?), FileId(next()?));
    let line = Line { function, file, line: next()?, column: next()? };
    numbers.next().is_none().then_some(CodeRow { offset, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> Option<String> {
        let mut field = text.as_bytes().to_vec();
        let rows = read_in_place(&mut field)?;
        let mut out = Vec::new();
        push_text(&mut out, rows);
        Some(String::from_utf8_lossy(&out[1..]).into_owned())
    }

    #[test]
    fn rows_have_one_form() {
        for text in ["-", "0,0,0,0,0", "0,1,2,3,4;0,1,2,3,4;4294967295,67108864,67108864,1,1"] {
            assert_eq!(again(text).as_deref(), Some(text));
        }
        let wrong =
            ["", ";", "0,0,0,0", "0,0,0,0,0;", "0,0,0,0,0,0", "5,0,0,0,0;4,0,0,0,0", "00,0,0,0,0"];
        for text in wrong {
            assert_eq!(again(text), None, "{text}");
        }
        assert_eq!(again("0,67108865,0,0,0"), None, "an id beyond the limit");
    }
}
