//! The formats of fields: each reads and writes one sort of field in both encodings.

use super::binary::{self, BlockState, Bytes};
use super::rows;
use super::text::{self, TextFields};
use crate::record::Mark;
use crate::record::code_rows::CodeRows;
use crate::record::enums;
use crate::record::error::Malformed;
use crate::record::limits;
use crate::record::number::{hexadecimal, push_varint};

/// A format of fields with values of type `T`, of which those that borrow live as long as `'a`.
pub(crate) trait Format<'a, T> {
    /// Appends a value to a body in the binary encoding.
    fn push_binary(out: &mut Vec<u8>, value: T, state: &mut BlockState);

    /// Reads the next value of a body.
    fn read_binary(from: &mut Bytes<'a>, state: &mut BlockState) -> Result<T, Malformed>;

    /// Appends a TAB and a value to a line.
    fn push_text(out: &mut Vec<u8>, value: T);

    /// Reads the next value of a line.
    fn read_text(from: &mut TextFields<'a>) -> Result<T, Malformed>;

    /// Returns the value if it is the time of its record.
    fn time(_: T) -> Option<u64> {
        None
    }
}

/// The id of the record itself, or of one that must be given.
pub(crate) struct Id;

impl<T: From<u32> + Into<u32>> Format<'_, T> for Id {
    fn push_binary(out: &mut Vec<u8>, id: T, _: &mut BlockState) {
        push_varint(out, u64::from(id.into()));
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<T, Malformed> {
        from.id().map(T::from)
    }

    fn push_text(out: &mut Vec<u8>, id: T) {
        text::push_number(out, u64::from(id.into()));
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<T, Malformed> {
        from.id().map(T::from)
    }
}

/// The id of another record, or 0 for none.
pub(crate) struct IdOrNone;

impl<T: From<u32> + Into<u32>> Format<'_, T> for IdOrNone {
    fn push_binary(out: &mut Vec<u8>, id: T, _: &mut BlockState) {
        push_varint(out, u64::from(id.into()));
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<T, Malformed> {
        from.id_or_none().map(T::from)
    }

    fn push_text(out: &mut Vec<u8>, id: T) {
        text::push_number(out, u64::from(id.into()));
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<T, Malformed> {
        from.id_or_none().map(T::from)
    }
}

/// A number of 32 or 64 bits.
pub(crate) struct Number;

impl Format<'_, u32> for Number {
    fn push_binary(out: &mut Vec<u8>, number: u32, _: &mut BlockState) {
        push_varint(out, u64::from(number));
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<u32, Malformed> {
        from.u32()
    }

    fn push_text(out: &mut Vec<u8>, number: u32) {
        text::push_number(out, u64::from(number));
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<u32, Malformed> {
        from.u32()
    }
}

impl Format<'_, u64> for Number {
    fn push_binary(out: &mut Vec<u8>, number: u64, _: &mut BlockState) {
        push_varint(out, number);
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<u64, Malformed> {
        from.varint()
    }

    fn push_text(out: &mut Vec<u8>, number: u64) {
        text::push_number(out, number);
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<u64, Malformed> {
        from.number()
    }
}

/// An offset in an image: hexadecimal in text.
pub(crate) struct Offset;

impl Format<'_, u64> for Offset {
    fn push_binary(out: &mut Vec<u8>, offset: u64, _: &mut BlockState) {
        push_varint(out, offset);
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<u64, Malformed> {
        from.varint()
    }

    fn push_text(out: &mut Vec<u8>, offset: u64) {
        text::push_hexadecimal_number(out, offset);
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<u64, Malformed> {
        hexadecimal(from.field()?).ok_or(Malformed::Field("a hexadecimal offset"))
    }
}

/// The time of the record: in binary its difference from the record before.
pub(crate) struct Time;

impl Format<'_, u64> for Time {
    fn push_binary(out: &mut Vec<u8>, time: u64, state: &mut BlockState) {
        binary::push_time(out, time, state);
    }

    fn read_binary(from: &mut Bytes<'_>, state: &mut BlockState) -> Result<u64, Malformed> {
        from.time(state)
    }

    fn push_text(out: &mut Vec<u8>, time: u64) {
        text::push_number(out, time);
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<u64, Malformed> {
        from.number()
    }

    fn time(time: u64) -> Option<u64> {
        Some(time)
    }
}

/// The number of a CPU, or [`NO_CPU`](crate::NO_CPU).
pub(crate) struct Cpu;

impl Format<'_, u32> for Cpu {
    fn push_binary(out: &mut Vec<u8>, cpu: u32, _: &mut BlockState) {
        binary::push_cpu(out, cpu);
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<u32, Malformed> {
        from.cpu()
    }

    fn push_text(out: &mut Vec<u8>, cpu: u32) {
        text::push_cpu(out, cpu);
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<u32, Malformed> {
        from.cpu()
    }
}

/// A string of bytes; empty if absent.
pub(crate) struct ByteString;

impl<'a> Format<'a, &'a [u8]> for ByteString {
    fn push_binary(out: &mut Vec<u8>, string: &'a [u8], _: &mut BlockState) {
        binary::push_string(out, string);
    }

    fn read_binary(from: &mut Bytes<'a>, _: &mut BlockState) -> Result<&'a [u8], Malformed> {
        from.string(limits::STRING)
    }

    fn push_text(out: &mut Vec<u8>, string: &'a [u8]) {
        text::push_string(out, string);
    }

    fn read_text(from: &mut TextFields<'a>) -> Result<&'a [u8], Malformed> {
        from.string()
    }
}

/// A build ID: hexadecimal digits in text; empty if absent.
pub(crate) struct BuildId;

impl<'a> Format<'a, &'a [u8]> for BuildId {
    fn push_binary(out: &mut Vec<u8>, id: &'a [u8], _: &mut BlockState) {
        // A reader refuses a longer one.
        binary::push_string(out, &id[..id.len().min(limits::BUILD_ID)]);
    }

    fn read_binary(from: &mut Bytes<'a>, _: &mut BlockState) -> Result<&'a [u8], Malformed> {
        from.string(limits::BUILD_ID)
    }

    fn push_text(out: &mut Vec<u8>, id: &'a [u8]) {
        text::push_build_id(out, id);
    }

    fn read_text(from: &mut TextFields<'a>) -> Result<&'a [u8], Malformed> {
        from.build_id()
    }
}

/// Bytes of code: hexadecimal digits in text; empty if absent.
pub(crate) struct HexBytes;

impl<'a> Format<'a, &'a [u8]> for HexBytes {
    fn push_binary(out: &mut Vec<u8>, bytes: &'a [u8], _: &mut BlockState) {
        let bytes = &bytes[..bytes.len().min(limits::CODE)];
        push_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    fn read_binary(from: &mut Bytes<'a>, _: &mut BlockState) -> Result<&'a [u8], Malformed> {
        from.string(limits::CODE)
    }

    fn push_text(out: &mut Vec<u8>, bytes: &'a [u8]) {
        text::push_hex(out, &bytes[..bytes.len().min(limits::CODE)]);
    }

    fn read_text(from: &mut TextFields<'a>) -> Result<&'a [u8], Malformed> {
        from.hex(limits::CODE)?.ok_or(Malformed::Field("bytes of code"))
    }
}

/// The calls at instructions: groups in text; empty if absent.
pub(crate) struct Rows;

impl<'a> Format<'a, CodeRows<'a>> for Rows {
    fn push_binary(out: &mut Vec<u8>, rows: CodeRows<'a>, _: &mut BlockState) {
        push_varint(out, rows.encoded().len() as u64);
        out.extend_from_slice(rows.encoded());
    }

    fn read_binary(from: &mut Bytes<'a>, _: &mut BlockState) -> Result<CodeRows<'a>, Malformed> {
        CodeRows::from_encoded(from.string(limits::CODE_ROWS)?)
            .ok_or(Malformed::Field("rows of code"))
    }

    fn push_text(out: &mut Vec<u8>, rows: CodeRows<'a>) {
        rows::push_text(out, rows);
    }

    fn read_text(from: &mut TextFields<'a>) -> Result<CodeRows<'a>, Malformed> {
        rows::read_in_place(from.field()?).ok_or(Malformed::Field("rows of code"))
    }
}

/// A value of an enumeration: a number in binary, a word in text.
pub(crate) struct Enumeration;

impl<T: enums::Enumeration> Format<'_, T> for Enumeration {
    fn push_binary(out: &mut Vec<u8>, value: T, _: &mut BlockState) {
        out.push(value.number());
    }

    fn read_binary(from: &mut Bytes<'_>, _: &mut BlockState) -> Result<T, Malformed> {
        from.byte().map(T::from)
    }

    fn push_text(out: &mut Vec<u8>, value: T) {
        text::push_display(out, value);
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<T, Malformed> {
        T::from_word(from.field()?).ok_or(Malformed::Field(T::EXPECTED))
    }
}

/// The flags of a frame: kernel, return address, mark.
pub(crate) struct FrameFlags;

const KERNEL: u8 = 1;
const RETURN_ADDRESS: u8 = 2;

impl Format<'_, (bool, bool, Mark)> for FrameFlags {
    fn push_binary(
        out: &mut Vec<u8>,
        (kernel, return_address, mark): (bool, bool, Mark),
        _: &mut BlockState,
    ) {
        out.push(if kernel { KERNEL } else { 0 } | if return_address { RETURN_ADDRESS } else { 0 });
        out.push(mark.number());
    }

    fn read_binary(
        from: &mut Bytes<'_>,
        _: &mut BlockState,
    ) -> Result<(bool, bool, Mark), Malformed> {
        let flags = from.byte()?;
        // `Frame` has no place for an unknown bit: copying the record would drop it.
        if flags & !(KERNEL | RETURN_ADDRESS) != 0 {
            return Err(Malformed::Field("known frame flags"));
        }
        let mark = Mark::from_number(from.byte()?);
        Ok((flags & KERNEL != 0, flags & RETURN_ADDRESS != 0, mark))
    }

    fn push_text(out: &mut Vec<u8>, (kernel, return_address, mark): (bool, bool, Mark)) {
        // The flags have a fixed order, so that equal frames have equal lines.
        out.extend_from_slice(if kernel { b"\tk" } else { b"\tu" });
        if return_address {
            out.extend_from_slice(b",ra");
        }
        if mark != Mark::None {
            out.extend_from_slice(format!(",{mark}").as_bytes());
        }
    }

    fn read_text(from: &mut TextFields<'_>) -> Result<(bool, bool, Mark), Malformed> {
        let flags: &[u8] = from.field()?;
        let mut words = flags.split(|&b| b == b',').peekable();
        let kernel = match words.next() {
            Some(b"u") => false,
            Some(b"k") => true,
            _ => return Err(Malformed::Field("u or k")),
        };
        let return_address = words.next_if(|&word| word == b"ra").is_some();
        let mark = match words.next() {
            None => Mark::None,
            Some(word) => Mark::from_word(word)
                // A frame without a mark has no such word: `none` would be a second form.
                .filter(|&mark| mark != Mark::None)
                .ok_or(Malformed::Field("a mark"))?,
        };
        if words.next().is_some() {
            return Err(Malformed::Field("no more flags"));
        }
        Ok((kernel, return_address, mark))
    }
}
