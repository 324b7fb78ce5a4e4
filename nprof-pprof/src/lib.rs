//! The messages of the pprof format: profile.proto of the project pprof.
//!
//! A file is one [`Profile`], compressed with gzip. Strings are indices into
//! [`Profile::string_table`], of which the first is empty. Encoded messages may be concatenated: the
//! result is a message with the repeated fields of all.

mod messages;
mod size;

pub use messages::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
pub use size::decoded_bytes;
