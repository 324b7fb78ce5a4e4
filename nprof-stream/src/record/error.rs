//! Errors of reading a stream.

/// The defect of a record. A reader skips and reports such a record; it does not end the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field has the wrong form.
    #[error("expected {0}")]
    Field(&'static str),
    /// The record ends before its last required field.
    #[error("the record is too short")]
    Short,
    /// Bytes are left after the record's last field.
    #[error("the record is too long")]
    Long,
    /// A number is not in its shortest form, or does not fit.
    #[error("a number is not in its shortest form or too large")]
    Number,
    /// The record is larger than the format allows.
    #[error("larger than {0} bytes")]
    Limit(usize),
}

/// An error that ends reading. Damage and truncation are not errors but verdicts, see
/// [`Verdict`](crate::io::verdict::Verdict).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    #[error("read error at byte {offset}")]
    Read {
        /// Bytes read before the error.
        offset: u64,
        /// The error of read(2).
        source: std::io::Error,
    },
    /// The input does not begin like a stream.
    #[error("not an nprof stream{hint}")]
    NotAStream {
        /// The likely kind of the input, and a remedy; may be empty.
        hint: &'static str,
    },
    /// This reader does not support the stream's major version.
    #[error(
        "byte {offset}: stream version {major}.{minor}, but this program reads {}.x; use a newer nprof",
        crate::record::version::MAJOR
    )]
    Version {
        /// Offset of the block or line.
        offset: u64,
        /// Major version of the stream.
        major: u8,
        /// Minor version of the stream.
        minor: u8,
    },
    /// The stream has a record or flag that a reader must understand and this one does not.
    #[error("byte {offset}: {what} is unknown and cannot be skipped; use a newer nprof")]
    Required {
        /// Offset of the block or record.
        offset: u64,
        /// The record or flag.
        what: String,
    },
}
