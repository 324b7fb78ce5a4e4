//! The frame around the records of a block: its header and its checksums.

use crate::record::limits;

/// The first bytes of every block: no text begins with them, and a transfer that strips the eighth
/// bit or changes line ends breaks them visibly (the idea is from PNG).
pub(crate) const MAGIC: [u8; 8] = *b"\x89NPF\r\n\x1a\n";

/// The length of a block's header.
pub(crate) const HEADER: usize = 48;

/// The length of the CRC after the payload.
pub(crate) const TRAILER: usize = 4;

/// A block's header. Little-endian, in this order, between the magic and the header's own CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) major: u8,
    pub(crate) minor: u8,
    /// Flags that a reader must understand; none is defined yet.
    pub(crate) must: u8,
    /// Flags that a reader may ignore; none is defined yet.
    pub(crate) may: u8,
    /// The payload's length.
    pub(crate) length: u32,
    pub(crate) run: u64,
    /// The number of the block in its segment, from 0.
    pub(crate) sequence: u32,
    /// The number of samples of the segment before this block.
    pub(crate) samples: u64,
    /// The origin of the block's first time, ns.
    pub(crate) time: u64,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&[self.major, self.minor, self.must, self.may]);
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.run.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.samples.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.time.to_le_bytes());
        // A CRC of its own: with a damaged payload the block can still be skipped by its length.
        let crc = crc32c::crc32c(&bytes[..44]);
        bytes[44..48].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses a header. None if the magic, the CRC or the length is wrong.
    pub(crate) fn from_bytes(bytes: &[u8; HEADER]) -> Option<Self> {
        // Before any field is used: a payload may contain the magic by chance.
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..44]) != le32(&bytes[44..48]) {
            return None;
        }
        let header = Self {
            major: bytes[8],
            minor: bytes[9],
            must: bytes[10],
            may: bytes[11],
            length: le32(&bytes[12..16]),
            run: le64(&bytes[16..24]),
            sequence: le32(&bytes[24..28]),
            samples: le64(&bytes[28..36]),
            time: le64(&bytes[36..44]),
        };
        // A right CRC does not exclude a hostile length, and a reader buffers whole blocks.
        (header.length as usize <= limits::PAYLOAD).then_some(header)
    }
}

/// Returns the CRC over header and payload that ends a block.
pub(crate) fn block_crc(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

pub(crate) fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_a_flipped_bit_is_seen() {
        let header = Header {
            major: 1,
            minor: 2,
            must: 0,
            may: 1,
            length: 77,
            run: 0x0123_4567_89ab_cdef,
            sequence: 9,
            samples: 1 << 40,
            time: u64::MAX,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::from_bytes(&bytes), Some(header));
        for bit in 0..HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::from_bytes(&flipped), None, "bit {bit}");
        }
    }
}
