//! The nprof stream: what a record is, how it is spelled, and what a stack means.
//!
//! nprof's tools meet in a stream of records. This crate is that stream's library:
//!
//! - [`Record`] and its parts: plain types;
//! - [`Reader`] and [`Writer`]: from and to bytes, in either spelling, with a [`Verdict`] on
//!   whether the stream was complete;
//! - [`tables`], [`profile`]: what the records mean together: walking a stack, expanding
//!   inlined calls, sums per stack;
//! - [`merge`]: several streams as one segment;
//! - [`key`], [`filter`], [`time`]: what samples and calls are grouped and chosen by;
//! - [`layout`], [`machine`], [`folded`]: what tables, lines for scripts and folded stacks look like;
//! - [`stage`], [`usage`], [`report`]: how a program behaves as a stage of a pipe, as a command,
//!   and as a report.
//!
//! The specification is the manual page nprof-format(5).

mod binary;
pub mod cell;
pub mod error;
pub mod escape;
pub mod extras;
mod facts;
pub mod filter;
pub mod folded;
pub mod key;
pub mod kind;
pub mod labels;
pub mod layout;
pub mod limits;
pub mod live;
pub mod machine;
pub mod margin;
pub mod merge;
pub mod meta;
pub mod number;
pub mod order;
pub mod profile;
pub mod reader;
pub mod record;
pub mod report;
mod runs;
pub mod shell;
pub mod snapshot;
pub mod stage;
pub mod summary;
pub mod tables;
mod text;
pub mod time;
pub mod usage;
mod verdict;
mod window;
pub mod writer;

pub use binary::Pass;
pub use error::Error;
pub use extras::{Extras, ExtrasBuilder};
pub use meta::{End, Epoch, Event, Head, Naming, Ran, RunId, Step};
pub use reader::{Reader, Verdict};
pub use record::*;
pub use writer::{Spelling, Totals, Writer};

/// The major version of the stream this crate reads and writes.
pub const MAJOR: u8 = 1;

/// The minor version of the stream this crate writes.
pub const MINOR: u8 = 0;
