//! What can be wrong with a stream.

/// Why a record could not be read. One such record is passed over and reported; it does not end
/// the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A field is not what its place asks for.
    #[error("expected {0}")]
    Field(&'static str),
    /// The record ends before its last required field.
    #[error("the record is too short")]
    Short,
    /// Bytes are left after the record's last field.
    #[error("the record is too long")]
    Long,
    /// A number is not spelled in its shortest form or does not fit.
    #[error("a number is not in its shortest form or too large")]
    Number,
    /// The record is larger than the format allows.
    #[error("larger than {0} bytes")]
    Limit(usize),
}

/// Why a stream cannot be read on. Damage and truncation are not errors but verdicts, see
/// [`Verdict`](crate::io::verdict::Verdict).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input could not be read.
    #[error("read error at byte {offset}")]
    Read {
        /// How far the input had been read.
        offset: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// The input does not begin like a stream.
    #[error("not an nprof stream{hint}")]
    NotAStream {
        /// What it looks like, and what to do then; may be empty.
        hint: &'static str,
    },
    /// The stream's major version is not one this reader knows.
    #[error(
        "byte {offset}: stream version {major}.{minor}, but this program reads {}.x: use a newer nprof",
        crate::record::version::MAJOR
    )]
    Version {
        /// Where the block or line begins.
        offset: u64,
        /// The version found.
        major: u8,
        /// The version found.
        minor: u8,
    },
    /// The stream uses something this reader must understand and does not.
    #[error(
        "byte {offset}: {what}, which this program does not know and must not pass over: use a newer nprof"
    )]
    Required {
        /// Where the block or record begins.
        offset: u64,
        /// What it is.
        what: String,
    },
}
