//! The nprof stream: its records, their two encodings, and the meaning of a stack.
//!
//! nprof's tools exchange a stream of records. This crate is the library of that stream:
//!
//! - [`Record`] and its parts: plain types;
//! - [`Reader`] and [`Writer`]: from and to bytes, in either encoding, with a [`Verdict`] on
//!   whether the stream was complete;
//! - [`tables`], [`labels`]: the meaning of records together: walking a stack, expanding inlined
//!   calls, naming calls;
//! - [`Validator`]: the order that a stream must have.
//!
//! The specification is the manual page nprof-format(5).

mod codec;
mod io;
mod model;
mod record;

pub use codec::binary::Passthrough;
pub use codec::body;
pub use io::incomplete::IncompleteInput;
pub use io::reader::Reader;
pub use io::verdict::{Damage, Verdict};
pub use io::writer::{Encoding, Totals, Writer};
pub use io::{reader, writer};
pub use model::assigned_ids::{self, Assigned, AssignedIds, AssignedNodes};
pub use model::code_table::CodeEntry;
pub use model::epoch_cache::EpochCache;
pub use model::id_table::IdTable;
pub use model::validate::Validator;
pub use model::{labels, tables};
pub use record::code_rows::{CodeRow, CodeRows};
pub use record::error::Error;
pub use record::extras::{Extras, ExtrasBuilder};
pub use record::load::LoadSegment;
pub use record::measure::Measure;
pub use record::pairs as meta;
pub use record::pairs::{End, Epoch, Event, Head, Naming, RunEnd, RunId, Step};
pub use record::version::{MAJOR, MINOR};
pub use record::{enums::*, ids::*, line::*, records::*};
pub use record::{error, escape, extras, kind, limits, number};
