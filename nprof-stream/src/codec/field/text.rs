//! Reads and writes the fields of a line.

use crate::record::NO_CPU;
use crate::record::error::Malformed;
use crate::record::escape::{push_field, unescape_field_in_place};
use crate::record::extras::Extras;
use crate::record::limits::{self, clip};
use crate::record::number::{
    decimal, hex_bytes_in_place, push_decimal, push_hex_bytes, push_hexadecimal,
};

/// The fields of a line that have not been read yet; `None` after the last.
pub(crate) struct TextFields<'a> {
    pub(crate) rest: Option<&'a mut [u8]>,
}

impl<'a> TextFields<'a> {
    pub(crate) fn field(&mut self) -> Result<&'a mut [u8], Malformed> {
        let rest = self.rest.take().ok_or(Malformed::Short)?;
        let Some(at) = memchr::memchr(b'\t', rest) else {
            return Ok(rest);
        };
        let (field, rest) = rest.split_at_mut(at);
        self.rest = Some(&mut rest[1..]);
        Ok(field)
    }

    /// True if there is another field and it is not `key=value`.
    pub(crate) fn next_is_plain(&self) -> bool {
        self.rest.as_deref().is_some_and(|rest| {
            memchr::memchr2(b'\t', b'=', rest).is_none_or(|at| rest[at] == b'\t')
        })
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        decimal(self.field()?).ok_or(Malformed::Number)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed::Number)
    }

    pub(crate) fn id_or_none(&mut self) -> Result<u32, Malformed> {
        let id = self.u32()?;
        if id > limits::ID {
            return Err(Malformed::Field("an id within the limit"));
        }
        Ok(id)
    }

    pub(crate) fn id(&mut self) -> Result<u32, Malformed> {
        match self.id_or_none()? {
            0 => Err(Malformed::Field("an id that is not 0")),
            id => Ok(id),
        }
    }

    pub(crate) fn cpu(&mut self) -> Result<u32, Malformed> {
        match &*self.field()? {
            b"-" => Ok(NO_CPU),
            digits => decimal(digits)
                .and_then(|cpu| u32::try_from(cpu).ok())
                // An absent CPU has one form, `-`.
                .filter(|&cpu| cpu != NO_CPU)
                .ok_or(Malformed::Number),
        }
    }

    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let field = self.field()?;
        let string = unescape_field_in_place(field).ok_or(Malformed::Field("a string"))?;
        // The limit is one of bytes, not of their escapes, of four characters each.
        if string.len() > limits::STRING {
            return Err(Malformed::Limit(limits::STRING));
        }
        Ok(string)
    }

    pub(crate) fn build_id(&mut self) -> Result<&'a [u8], Malformed> {
        self.hex(limits::BUILD_ID)?.ok_or(Malformed::Field("a build ID"))
    }

    /// Reads hexadecimal bytes, or `-` for none. Ok(None) if there are more than `limit`, or they are
    /// malformed.
    pub(crate) fn hex(&mut self, limit: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let field = self.field()?;
        if field == b"-" {
            return Ok(Some(&[]));
        }
        // An empty field would be a second form of `-`.
        if field.is_empty() || field.len() > 2 * limit {
            return Ok(None);
        }
        Ok(hex_bytes_in_place(field))
    }

    pub(crate) fn extras(&mut self) -> Result<Extras<'a>, Malformed> {
        match self.rest.take() {
            None => Ok(Extras::NONE),
            // The line ends in a TAB: the field after it is empty.
            Some([]) => Err(Malformed::Field("key=value")),
            Some(rest) => Extras::from_text(rest).ok_or(Malformed::Field("key=value")),
        }
    }

    /// Returns the remaining fields, to be read as pairs.
    pub(crate) fn rest(&mut self) -> Result<&'a [u8], Malformed> {
        match self.rest.take() {
            None => Ok(&[]),
            Some([]) => Err(Malformed::Field("key=value")),
            Some(rest) => Ok(rest),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_some() { Err(Malformed::Long) } else { Ok(()) }
    }
}

/// Appends a field: a number.
pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    out.push(b'\t');
    push_decimal(out, number);
}

/// Appends a field: a hexadecimal number.
pub(crate) fn push_hexadecimal_number(out: &mut Vec<u8>, number: u64) {
    out.push(b'\t');
    push_hexadecimal(out, number);
}

/// Appends a field: the number of a CPU.
pub(crate) fn push_cpu(out: &mut Vec<u8>, cpu: u32) {
    if cpu == NO_CPU {
        out.extend_from_slice(b"\t-");
        return;
    }
    push_number(out, u64::from(cpu));
}

/// Appends a field: a string, cut to the limit.
pub(crate) fn push_string(out: &mut Vec<u8>, string: &[u8]) {
    out.push(b'\t');
    push_field(out, &clip(string));
}

/// Appends a field: a build ID, cut to the limit.
pub(crate) fn push_build_id(out: &mut Vec<u8>, id: &[u8]) {
    push_hex(out, &id[..id.len().min(limits::BUILD_ID)]);
}

/// Appends a field: hexadecimal bytes, or `-` for none.
pub(crate) fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'\t');
    match bytes {
        [] => out.push(b'-'),
        bytes => push_hex_bytes(out, bytes),
    }
}

/// Appends a field: the words of a value.
pub(crate) fn push_display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    out.extend_from_slice(format!("\t{value}").as_bytes());
}

/// Appends the last fields, if there are any.
pub(crate) fn push_extras(out: &mut Vec<u8>, extras: Extras<'_>) {
    if !extras.is_empty() {
        out.push(b'\t');
        out.extend_from_slice(extras.encoded());
    }
}
