//! Size limits of the stream (nprof-format(5), LIMITS). Writers observe them, readers enforce them.

/// Longest payload of a block in bytes.
pub const PAYLOAD: usize = 1 << 20;

/// Longest body of a record in bytes: a block also holds its kind (1 byte) and length (3 bytes).
pub const BODY: usize = PAYLOAD - 4;

/// Longest string in bytes. A writer cuts longer ones and appends `...`.
pub const STRING: usize = 1 << 16;

/// Longest build ID in bytes.
pub const BUILD_ID: usize = 64;

/// Most frames in one branch of nodes, and the deepest stack a reader walks.
pub const DEPTH: usize = 1 << 16;

/// Most lines (inlined calls and their caller) of one frame.
pub const LINES: usize = 1 << 12;

/// Most bytes of code in one record.
pub const CODE: usize = 1 << 16;

/// Most bytes of the encoding of the rows of one code.
pub const CODE_ROWS: usize = 1 << 18;

/// Longest line of text in bytes, without its newline.
pub const LINE: usize = 4 << 20;

/// Highest id in an epoch. Bounds the tables of a reader, which are indexed by id.
pub const ID: u32 = 1 << 26;

/// Returns the string, cut to the limit.
pub(crate) fn clip(string: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    if string.len() <= STRING {
        return string.into();
    }
    let mut clipped = string[..STRING - 3].to_vec();
    clipped.extend_from_slice(b"...");
    clipped.into()
}
