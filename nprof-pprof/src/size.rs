//! The memory that an encoded profile takes when it is decoded. Pure.

use crate::{Function, Label, Line, Location, Mapping, Sample, ValueType};

/// Returns an upper bound of the memory that [`Profile`](crate::Profile) takes after decoding. None if
/// the bytes are no message.
///
/// An empty message takes two bytes in a file and up to a hundred in memory.
pub fn decoded_bytes(profile: &[u8]) -> Option<usize> {
    let mut total = 0_usize;
    for field in Fields(profile) {
        let (number, body) = field?;
        // Strings, and the buffers of lists, which double when they are full.
        let bytes = match number {
            1 => 2 * size_of::<ValueType>(),
            2 => 2 * size_of::<Sample>() + lists(body, 3, size_of::<Label>())?,
            3 => 2 * size_of::<Mapping>(),
            4 => 2 * size_of::<Location>() + lists(body, 4, size_of::<Line>())?,
            5 => 2 * size_of::<Function>(),
            6 => 2 * size_of::<String>() + body.len(),
            // A packed number has a byte at least.
            _ => 16 * body.len().max(1),
        };
        total = total.saturating_add(bytes);
    }
    Some(total)
}

/// Returns the memory of the lists of a message: of messages of this size in the field `messages`, and of
/// numbers in the others.
fn lists(message: &[u8], messages: u64, size: usize) -> Option<usize> {
    let mut total = 0_usize;
    for field in Fields(message) {
        let (number, body) = field?;
        let bytes = if number == messages {
            2 * size
        } else {
            // The last byte of a number has no continuation bit.
            2 * size_of::<u64>() * body.iter().filter(|&&byte| byte < 0x80).count().max(1)
        };
        total = total.saturating_add(bytes);
    }
    Some(total)
}

/// The fields of a message: number, and the bytes of its value. Ends after None.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(value)
    }

    fn varint(&mut self) -> Option<u64> {
        prost::encoding::decode_varint(&mut self.0).ok()
    }

    fn field(&mut self) -> Option<(u64, &'a [u8])> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => {
                self.varint()?;
                &[][..]
            }
            1 => self.take(8)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.take(length)?
            }
            5 => self.take(4)?,
            // Groups are no part of proto3.
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::Profile;

    #[test]
    fn memory_of_empty_messages_is_counted() {
        // A thousand samples of two bytes.
        let samples = [0x12, 0].repeat(1000);
        assert!(decoded_bytes(&samples).is_some_and(|bytes| bytes >= 1000 * size_of::<Sample>()));
        assert_eq!(decoded_bytes(&[0x12, 9, 0]), None);
        assert_eq!(decoded_bytes(&[0x0b]), None);
    }

    #[test]
    fn bound_holds_for_lists_of_numbers() {
        let sample = Sample { location_id: (0..1000).collect(), ..Sample::default() };
        let profile = Profile { sample: vec![sample; 3], ..Profile::default() };
        let bytes = decoded_bytes(&profile.encode_to_vec()).expect("it is valid");
        assert!((3 * 8 * 1000..100_000).contains(&bytes), "{bytes}");
    }
}
