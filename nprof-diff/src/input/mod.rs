//! Reads the streams of both sides and counts the samples of each row key per run.

pub(crate) mod event;
pub(crate) mod fold;
pub(crate) mod key;
pub(crate) mod load;
pub(crate) mod moved_files;
pub(crate) mod preconditions;
pub(crate) mod rename;
pub(crate) mod row_kind;
pub(crate) mod run_counts;
pub(crate) mod side;
mod stable_names;
