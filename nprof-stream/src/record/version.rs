//! The version of the format.

/// The major version of the stream this crate reads and writes.
pub const MAJOR: u8 = 1;

/// The minor version of the stream this crate writes.
pub const MINOR: u8 = 1;
