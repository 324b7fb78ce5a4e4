//! The state of the block that is read.

/// A block, by positions in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The end of its records.
    pub(super) payload_end: usize,
    /// The start of the bytes after it.
    pub(super) end: usize,
    /// The only valid place of a head: the front of a segment's first block.
    pub(super) head: Option<usize>,
    /// True if it was cut off and has no checksum: it ends at the first malformed record.
    pub(super) is_cut: bool,
}
