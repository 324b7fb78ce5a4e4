//! Encodes and decodes single record bodies outside of a stream: for programs that keep records.

use crate::codec::binary;
use crate::codec::field::binary::BlockState;
use crate::record::Record;

pub use crate::codec::kinds::encoded::Scratch;

/// Appends a record's body in the binary encoding, with its time in full.
pub fn push_body(out: &mut Vec<u8>, record: &Record<'_>) {
    binary::push_body(out, record, &mut BlockState::new(0));
}

/// Decodes a body that [`push_body`] wrote for a record of this kind. None if it is malformed.
pub fn read_body<'a>(kind: u8, body: &'a [u8], scratch: &'a mut Scratch) -> Option<Record<'a>> {
    binary::read_body(kind, body, &mut BlockState::new(0), scratch).ok()
}
