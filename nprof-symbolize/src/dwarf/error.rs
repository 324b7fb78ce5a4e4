//! The reasons why debug information cannot be used, or only a part of it.

use std::fmt;

/// An error of debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DwarfError {
    /// A value that DWARF does not allow.
    Malformed(gimli::Error),
    /// More of something than any compiler makes: a damaged or hostile file.
    Limit(&'static str),
    /// Bytes that cannot be read.
    Unreadable(String),
    /// The file of a split unit is missing or has no such unit; its name.
    NoSplit(String),
    /// The supplementary file is missing.
    NoSupplementary,
}

/// The result of reading debug information.
pub(crate) type Result<T> = std::result::Result<T, DwarfError>;

impl From<gimli::Error> for DwarfError {
    fn from(error: gimli::Error) -> Self {
        Self::Malformed(error)
    }
}

impl From<std::io::Error> for DwarfError {
    fn from(error: std::io::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl fmt::Display for DwarfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "malformed DWARF: {error}"),
            Self::Limit(limit) => write!(f, "malformed DWARF: {limit}"),
            Self::Unreadable(why) => write!(f, "unreadable DWARF: {why}"),
            Self::NoSplit(name) => {
                let why = "which was not found or is of another compilation";
                write!(f, "DWARF in {name}, {why}: no inlined calls from there")
            }
            Self::NoSupplementary => {
                f.write_str("part of its DWARF is in a file shared by several, which was not found")
            }
        }
    }
}

impl DwarfError {
    /// True if a file is missing, and none is damaged.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoSplit(_) | Self::NoSupplementary)
    }
}
