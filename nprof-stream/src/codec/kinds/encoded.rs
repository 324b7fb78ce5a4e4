//! The trait of all kinds, and their common buffers.

use crate::codec::field::binary::{BlockState, Bytes};
use crate::codec::field::text::TextFields;
use crate::record::error::Malformed;
use crate::record::{FrameId, Line};

/// A record of one kind, in both encodings.
pub(crate) trait Encoded<'a>: Sized {
    /// Appends the body in the binary encoding.
    fn push_binary(&self, out: &mut Vec<u8>, state: &mut BlockState);

    /// Decodes a body.
    fn read_binary(
        from: Bytes<'a>,
        state: &mut BlockState,
        scratch: &'a mut Scratch,
    ) -> Result<Self, Malformed>;

    /// Appends the fields of a line, after the word of the kind.
    fn push_text(&self, out: &mut Vec<u8>);

    /// Decodes the fields of a line, after the word of the kind.
    fn read_text(from: TextFields<'a>, scratch: &'a mut Scratch) -> Result<Self, Malformed>;

    /// Returns the time. None if records of this kind have none.
    fn time(&self) -> Option<u64> {
        None
    }
}

/// Buffers for the lists of the record that is read.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    pub(crate) frames: Vec<FrameId>,
    pub(crate) lines: Vec<Line>,
    /// The number of bytes of the body after `lines`.
    pub(crate) after_lines: usize,
}
