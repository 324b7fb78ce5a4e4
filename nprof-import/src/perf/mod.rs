//! perf.data, the recordings of perf: in a file or from a pipe.
//!
//! The layout is that of tools/perf/Documentation/perf.data-file-format.txt and of
//! include/uapi/linux/perf_event.h in the sources of Linux. The crate linux-perf-data reads it, too; but
//! it allocates by counts in the file, which ends the process if these are damaged, and it states no
//! offset of damage.

mod address_space;
mod attribute;
mod bytes;
mod compression;
#[cfg(test)]
mod copy_tests;
mod error;
mod executed;
mod features;
mod file;
mod import;
mod machine;
mod order;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use error::Error;
pub(crate) use file::MAGIC;
pub(crate) use import::{Imported, import};
