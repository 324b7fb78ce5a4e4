//! The text encoding: a record is a line, fields are separated by one TAB, the first field is the
//! kind's word.

mod checksum;
mod line;
mod read;
mod write;

pub(crate) use checksum::Check;
pub(crate) use line::{HEAD_WORD, find_head, head_version, is_head};
pub(crate) use read::{begins_with_a_record, read_line, required_kind};
pub(crate) use write::push_line;
