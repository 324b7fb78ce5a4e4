//! Numbers in the stream. Each has exactly one form, so that equal records have equal bytes.

/// Returns the sum of counts. Saturates, since a damaged stream may hold any number.
pub fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Parses a decimal number without sign and without leading zeros.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses `0x` and lower-case hexadecimal digits without leading zeros.
pub fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x")?;
    if digits.is_empty() || digits.len() > 16 || (digits.len() > 1 && digits[0] == b'0') {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| Some(value << 4 | u64::from(nibble(digit)?)))
}

/// Returns the value of a lower-case hexadecimal digit.
pub(crate) fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Appends a number in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number as `0x` and lower-case hexadecimal digits.
pub(crate) fn push_hexadecimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(format!("{value:#x}").as_bytes());
}

/// Appends bytes as pairs of lower-case hexadecimal digits.
pub(crate) fn push_hex_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Returns bytes as pairs of lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses pairs of lower-case hexadecimal digits in place; the bytes begin where the text began.
pub(crate) fn hex_bytes_in_place(text: &mut [u8]) -> Option<&[u8]> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let length = text.len() / 2;
    for i in 0..length {
        // Each byte is read before it is overwritten: the text is twice as long.
        text[i] = nibble(text[2 * i])? << 4 | nibble(text[2 * i + 1])?;
    }
    Some(&text[..length])
}

/// Appends a varint: LEB128, least significant group first.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        // Most numbers of a sample fit into one or two bytes; both cases are inlined.
        0..0x80 => out.push(value as u8),
        0x80..0x4000 => out.extend_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]),
        _ => push_long_varint(out, value),
    }
}

/// Appends four varints with one copy: one bounds check instead of four.
pub(crate) fn push_varints(out: &mut Vec<u8>, values: [u32; 4]) {
    let mut bytes = [0; 4 * 5];
    let mut at = 0;
    for mut value in values {
        while value >= 0x80 {
            bytes[at] = value as u8 | 0x80;
            value >>= 7;
            at += 1;
        }
        bytes[at] = value as u8;
        at += 1;
    }
    out.extend_from_slice(&bytes[..at]);
}

/// Up to 64 bytes, gathered to be appended with one copy: the body of a sample.
#[derive(Debug)]
pub(crate) struct ShortBytes {
    bytes: [u8; 64],
    length: usize,
}

impl Default for ShortBytes {
    fn default() -> Self {
        Self { bytes: [0; 64], length: 0 }
    }
}

impl ShortBytes {
    /// Appends a byte. One beyond the room is dropped.
    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    /// Appends a varint.
    #[inline]
    pub(crate) fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    /// Returns the bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn push_long_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps a signed number to an unsigned one that is small for small magnitudes (zigzag).
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Reverses [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_has_one_form() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in ["", "00", "01", "+1", "-1", "1 ", "18446744073709551616", "1e3", "\u{661}"] {
            assert_eq!(decimal(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn hexadecimal_has_one_form() {
        assert_eq!(hexadecimal(b"0x0"), Some(0));
        assert_eq!(hexadecimal(b"0xffffffffffffffff"), Some(u64::MAX));
        for wrong in ["", "0x", "0x00", "0X1", "0xA", "1", "0x10000000000000000"] {
            assert_eq!(hexadecimal(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn several_varints_equal_single_ones_in_a_row() {
        let values = [0, 127, 128, u32::MAX];
        let (mut together, mut apart) = (Vec::new(), Vec::new());
        push_varints(&mut together, values);
        for value in values {
            push_varint(&mut apart, value.into());
        }
        assert_eq!(together, apart);
        let mut long = Vec::new();
        push_long_varint(&mut long, 300);
        push_varint(&mut apart, 300);
        assert!(apart.ends_with(&long));
    }

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in [0, 1, 9, 10, 127, 128, 12345678901234567890, u64::MAX] {
            let mut text = Vec::new();
            push_decimal(&mut text, value);
            assert_eq!(decimal(&text), Some(value));
            text.clear();
            push_hexadecimal(&mut text, value);
            assert_eq!(hexadecimal(&text), Some(value));
        }
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    #[test]
    fn hex_bytes_survive_a_round_trip() {
        let mut text = Vec::new();
        push_hex_bytes(&mut text, &[0, 0x5f, 0xff]);
        assert_eq!(text, b"005fff");
        assert_eq!(hex_bytes_in_place(&mut text), Some(&[0, 0x5f, 0xff][..]));
        assert_eq!(hex_bytes_in_place(&mut b"0".to_vec()), None);
        assert_eq!(hex_bytes_in_place(&mut b"0G".to_vec()), None);
    }
}
