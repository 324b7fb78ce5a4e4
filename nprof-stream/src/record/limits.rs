//! What a stream may ask of its reader. Writers keep to these; readers refuse what does not.

/// The longest payload of a block, bytes.
pub const PAYLOAD: usize = 1 << 20;

/// The longest body of a record, bytes: what fits into a block with its kind and length.
pub const BODY: usize = PAYLOAD - 4;

/// The longest string, bytes. A writer cuts longer ones and ends them in `...`.
pub const STRING: usize = 1 << 16;

/// The longest build ID, bytes.
pub const BUILD_ID: usize = 64;

/// The most frames in one branch of nodes, and the deepest stack a reader walks.
pub const DEPTH: usize = 1 << 16;

/// The most lines (inlined calls and their caller) of one frame.
pub const LINES: usize = 1 << 12;

/// The longest line of text, bytes without its newline.
pub const LINE: usize = 4 << 20;

/// The highest id in an epoch. Bounds a reader's tables whatever ids a stream uses.
pub const ID: u32 = 1 << 26;

/// A string as it may stand in the stream.
pub(crate) fn clip(string: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if string.len() <= STRING {
        return string.into();
    }
    let mut clipped = string[..STRING - 3].to_vec();
    clipped.extend_from_slice(b"...");
    clipped.into()
}
