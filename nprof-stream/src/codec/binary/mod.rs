//! The binary encoding of a record's body and of a block's header.
//!
//! A block is a header of [`HEADER`] bytes, a payload of records, and a CRC-32C over both. A
//! record is its kind (one byte), the length of its body (a varint) and its body: the fields in
//! their order, then the extras up to its end. Numbers are varints, strings are a length and
//! bytes. A sample omits the fields that it shares with the one before it in its block; only ids
//! refer out of a block.

mod block;
mod passthrough;
mod records;

pub(crate) use block::{HEADER, Header, MAGIC, TRAILER, block_crc, le32};
pub use passthrough::Passthrough;
pub(crate) use passthrough::{RawRecords, next_plain_sample};
pub(crate) use records::{push_body, push_record, read_again, read_body};
