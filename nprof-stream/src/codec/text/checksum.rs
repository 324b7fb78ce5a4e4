//! The checksums of a segment in text. They do not belong to its records.

use super::line::HEAD_WORD;
use crate::record::Record;
use crate::record::number::{hexadecimal, push_hexadecimal};

/// The number of lines that one checksum covers.
const CHECKED_LINES: u32 = 1024;

/// The start of a line that checks the lines before it. All other readers see a comment.
const CHECK_WORD: &[u8] = b"#crc\t";

/// The last field of a head that announces checksums up to the end.
const CHECK_PROMISE: &[u8] = b"\tcheck=crc32c";

/// The start of the last field of a segment's end: the checksum of the lines not yet checked.
const CHECK_FIELD: &[u8] = b"\tcrc=";

/// The running checksum of a segment in text: CRC-32C over its lines, newlines included and
/// comments left out, since the last checksum. It does not belong to any record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Check {
    crc: u32,
    lines: u32,
    /// True if the head announced a checksum at the end.
    promised: bool,
}

impl Check {
    /// Adds the line that was appended to `out` at `start`; appends a checksum after every
    /// [`CHECKED_LINES`] lines, and to the line of an end.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, start: usize, record: &Record<'_>) {
        // Each segment is checked on its own, so that streams can be concatenated.
        if matches!(record, Record::Head(_)) {
            *self = Self::default();
            out.pop();
            out.extend_from_slice(CHECK_PROMISE);
            out.push(b'\n');
        }
        if matches!(record, Record::End(_)) {
            out.pop();
            // Covers the line up to before the TAB of its own field (nprof-format(5), TEXT).
            let crc = crc32c::crc32c_append(self.crc, &out[start..]);
            out.extend_from_slice(CHECK_FIELD);
            push_hexadecimal(out, crc.into());
            out.push(b'\n');
            return;
        }
        self.crc = crc32c::crc32c_append(self.crc, &out[start..]);
        self.lines += 1;
        if self.lines == CHECKED_LINES {
            out.extend_from_slice(CHECK_WORD);
            push_hexadecimal(out, self.crc.into());
            out.push(b'\n');
            (self.crc, self.lines) = (0, 0);
        }
    }

    /// Adds a line as it was read, without its newline. Returns the length of its record, without the
    /// field of the checksum; and true if a checksum in it is right, None if there need be none.
    pub(crate) fn take(&mut self, line: &[u8]) -> (usize, Option<bool>) {
        let (mut length, mut right) = (line.len(), None);
        if line.starts_with(HEAD_WORD) {
            // Begins again even if the segment before was cut off.
            *self = Self { promised: line.ends_with(CHECK_PROMISE), ..Self::default() };
            length -= if self.promised { CHECK_PROMISE.len() } else { 0 };
        } else if line.starts_with(b"@end") {
            // Damage only after a promise: text from awk or an editor has no checksums.
            right = self.promised.then_some(false);
            if let Some((at, crc)) = end_check(line) {
                length = at;
                right = Some(crc == crc32c::crc32c_append(self.crc, &line[..at]));
            }
        }
        // The whole line: the writer's sum covers the promise of a head, too.
        self.crc = crc32c::crc32c_append(self.crc, line);
        self.crc = crc32c::crc32c_append(self.crc, b"\n");
        (length, right)
    }

    /// Returns true if a comment is a right checksum, false if it is a wrong one. None if it is none.
    pub(crate) fn take_comment(&mut self, line: &[u8]) -> Option<bool> {
        let crc = hexadecimal(line.strip_prefix(CHECK_WORD)?)?;
        let right = crc == u64::from(self.crc);
        // Also after a wrong one, so that a changed line is reported once.
        self.crc = 0;
        Some(right)
    }
}

/// Returns the position of the checksum in an end's line, and its value.
fn end_check(line: &[u8]) -> Option<(usize, u32)> {
    let at = memchr::memrchr(b'\t', line)?;
    let crc = hexadecimal(line[at..].strip_prefix(CHECK_FIELD)?)?;
    Some((at, u32::try_from(crc).ok()?))
}
