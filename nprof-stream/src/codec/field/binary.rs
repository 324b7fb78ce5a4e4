//! Reads and writes the numbers and strings of the binary encoding.

use crate::record::error::Malformed;
use crate::record::extras::Extras;
use crate::record::limits::{self, clip};
use crate::record::number::{push_varint, unzigzag, zigzag};
use crate::record::{EventId, NO_CPU, TaskId};

/// The state that a record leaves for the next one in its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockState {
    /// The time of the last record that has one; before the first, the block's.
    pub(crate) time: u64,
    pub(crate) event: EventId,
    pub(crate) task: TaskId,
    pub(crate) cpu: u32,
    pub(crate) weight: u64,
}

impl BlockState {
    /// Returns the state at the beginning of a block.
    pub(crate) fn new(time: u64) -> Self {
        // Before the first sample the fields are 0, 0, absent, 0 (nprof-format(5), BINARY).
        Self { time, cpu: NO_CPU, ..Self::default() }
    }
}

/// The bytes of a body that have not been read yet.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.0.split_first().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(byte)
    }

    /// Reads a LEB128 number in its shortest form.
    #[inline(always)] // as are those below: a result that stays in registers
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.0 {
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first))
            }
            // A function of its own keeps the inlined part small.
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = u64::from(self.byte()? & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one more bit of 64.
            if shift == 63 && bits > 1 {
                return Err(Malformed::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                // A last byte of 0 is needless; numbers have one form, so that equal records have
                // equal bytes.
                return if byte == 0 { Err(Malformed::Number) } else { Ok(value) };
            }
        }
        Err(Malformed::Number)
    }

    #[inline(always)]
    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        match *self.0 {
            // Most numbers take one byte.
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u32::from(first))
            }
            // A second byte of 0 is not the shortest form: `long_u32` refuses it.
            [first, second @ 1..0x80, ref rest @ ..] => {
                self.0 = rest;
                Ok(u32::from(first & 0x7f) | u32::from(second) << 7)
            }
            _ => self.long_u32(),
        }
    }

    fn long_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed::Number)
    }

    #[inline(always)]
    pub(crate) fn id_or_none(&mut self) -> Result<u32, Malformed> {
        let id = self.u32()?;
        // Readers index tables by id: the limit bounds them.
        if id > limits::ID {
            return Err(Malformed::Field("an id within the limit"));
        }
        Ok(id)
    }

    #[inline(always)]
    pub(crate) fn id(&mut self) -> Result<u32, Malformed> {
        match self.id_or_none()? {
            0 => Err(Malformed::Field("an id that is not 0")),
            id => Ok(id),
        }
    }

    #[inline]
    pub(crate) fn cpu(&mut self) -> Result<u32, Malformed> {
        // 0 means absent, and wraps to `NO_CPU`.
        Ok(self.u32()?.wrapping_sub(1))
    }

    #[inline]
    pub(crate) fn time(&mut self, state: &mut BlockState) -> Result<u64, Malformed> {
        // Wraps like the writer, so that a hostile difference cannot overflow.
        state.time = state.time.wrapping_add(unzigzag(self.varint()?) as u64);
        Ok(state.time)
    }

    pub(crate) fn string(&mut self, limit: usize) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        // Compared as u64: the cast below could wrap a hostile length on a 32-bit machine.
        if length > limit as u64 {
            return Err(Malformed::Limit(limit));
        }
        let (string, rest) = self.0.split_at_checked(length as usize).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(string)
    }

    #[inline]
    pub(crate) fn extras(self) -> Result<Extras<'a>, Malformed> {
        if self.0.is_empty() {
            return Ok(Extras::NONE);
        }
        Extras::from_encoded(self.0).ok_or(Malformed::Field("extras"))
    }
}

/// Appends a time, as the difference from the record before.
pub(crate) fn push_time(out: &mut Vec<u8>, time: u64, state: &mut BlockState) {
    push_varint(out, time_delta(time, state));
}

/// Returns the number that encodes a time: its difference from the time before.
#[inline]
pub(crate) fn time_delta(time: u64, state: &mut BlockState) -> u64 {
    // Late samples have negative differences: zigzag keeps these short, too.
    let before = std::mem::replace(&mut state.time, time);
    zigzag(time.wrapping_sub(before) as i64)
}

/// Appends a CPU: its number plus one, so that 0 is "unknown".
pub(crate) fn push_cpu(out: &mut Vec<u8>, cpu: u32) {
    push_varint(out, cpu_number(cpu));
}

/// Returns the number that encodes a CPU.
#[inline]
pub(crate) fn cpu_number(cpu: u32) -> u64 {
    u64::from(cpu.wrapping_add(1))
}

/// Appends a string, cut to the limit.
pub(crate) fn push_string(out: &mut Vec<u8>, string: &[u8]) {
    let string = clip(string);
    push_varint(out, string.len() as u64);
    out.extend_from_slice(&string);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::number::push_varint;

    fn varint(bytes: &[u8]) -> Result<u64, Malformed> {
        Bytes(bytes).varint()
    }

    #[test]
    fn varints_have_one_spelling() {
        for value in [0, 1, 127, 128, 300, 1 << 21, 1 << 62, u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(varint(&bytes), Ok(value));
            bytes.pop();
            assert_eq!(varint(&bytes), Err(Malformed::Short));
        }
        assert_eq!(varint(&[0x80, 0]), Err(Malformed::Number));
        assert_eq!(varint(&[0xff; 11]), Err(Malformed::Number));
        let mut too_large = [0xff; 10];
        too_large[9] = 2;
        assert_eq!(varint(&too_large), Err(Malformed::Number));
    }
}
