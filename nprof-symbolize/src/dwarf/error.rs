//! Why debug information cannot be used as it should.

use std::fmt;

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DwarfError {
    /// It is not what it should be.
    Malformed(gimli::Error),
    /// More of something than any compiler makes: what is meant to do harm stops here.
    Limit(&'static str),
    /// Its bytes cannot be had.
    Unreadable(String),
    /// The file of a unit that was split off was not found, or has no such unit; its name.
    NoSplit(String),
    /// The file its parts were moved to, to be shared, was not found.
    NoSupplementary,
}

/// What reading gives.
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
            Self::Limit(what) => write!(f, "malformed DWARF: {what}"),
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
    /// Whether what is needed is absent, and not wrong.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoSplit(_) | Self::NoSupplementary)
    }
}
