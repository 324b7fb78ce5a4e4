//! The loaded segments of an image: the extra `load`. Pure.

use std::fmt::Write as _;

use crate::record::limits;
use crate::record::number::hexadecimal;

/// A part of a file that is loaded into memory (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoadSegment {
    /// The offset of its first byte in the file.
    pub offset: u64,
    /// The address at which the linker placed that byte.
    pub address: u64,
    /// The number of its bytes in the file.
    pub size: u64,
    /// True if its memory may be executed.
    pub executable: bool,
}

impl LoadSegment {
    /// Returns the value of the extra. None if there are no segments, or more than a value can hold.
    pub fn encode(segments: impl Iterator<Item = Self>) -> Option<String> {
        let mut text = String::new();
        for (index, segment) in segments.enumerate() {
            // The size of a file decides on the number of segments.
            if text.len() > limits::STRING {
                return None;
            }
            let separator = if index == 0 { "" } else { "," };
            let Self { offset, address, size, executable } = segment;
            let access = if executable { 'x' } else { 'r' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}{offset:#x}:{address:#x}:{size:#x}:{access}");
        }
        Some(text).filter(|text| (1..=limits::STRING).contains(&text.len()))
    }

    /// Reads the value of the extra. Empty if it is malformed.
    pub fn decode(value: &[u8]) -> Vec<Self> {
        let segments = value.split(|&byte| byte == b',').map(|segment| {
            let mut fields = segment.split(|&byte| byte == b':');
            let mut number = || hexadecimal(fields.next()?);
            let (offset, address, size) = (number()?, number()?, number()?);
            let executable = match fields.next()? {
                b"x" => true,
                b"r" => false,
                _ => return None,
            };
            // Later versions may add fields.
            Some(Self { offset, address, size, executable })
        });
        segments.collect::<Option<Vec<Self>>>().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_as_written() {
        let segment =
            |offset, address, executable| LoadSegment { offset, address, size: 0x175, executable };
        let segments = [segment(0, 0x40_0000, false), segment(0x1000, 0x40_1000, true)];
        let text = LoadSegment::encode(segments.into_iter()).expect("a value");
        assert_eq!(text, "0x0:0x400000:0x175:r,0x1000:0x401000:0x175:x");
        assert_eq!(LoadSegment::decode(text.as_bytes()), segments);
        let many: Vec<LoadSegment> = (0..100).map(|at| segment(at << 12, at << 12, true)).collect();
        let text = LoadSegment::encode(many.iter().copied()).expect("a value");
        assert_eq!(LoadSegment::decode(text.as_bytes()), many);
        let later = b"0x0:0x400000:0x175:r:9,0x1000:0x401000:0x175:x";
        assert_eq!(LoadSegment::decode(later), segments);
    }

    #[test]
    fn malformed_values_have_no_segments() {
        for wrong in ["", "0x0", "0x0:0x0:0x1", "0x0:0x0:0x1:w", "0x0:0x0:1:x", "0x0:0x0:0x1:x,"] {
            assert!(LoadSegment::decode(wrong.as_bytes()).is_empty(), "{wrong}");
        }
        let one = LoadSegment { offset: 0, address: 0, size: 1, executable: true };
        assert_eq!(LoadSegment::encode(std::iter::empty()), None);
        assert_eq!(LoadSegment::encode(std::iter::repeat_n(one, limits::STRING)), None);
    }
}
