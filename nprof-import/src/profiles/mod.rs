//! Profiles that are sums by stack: folded stacks, pprof, and CPU profiles of gperftools.

mod error;
mod folded;
mod gperftools;
mod pprof;

pub(crate) use folded::{begins as is_folded, import as import_folded};
pub(crate) use gperftools::{import as import_gperftools, is_cpu_profile};
pub(crate) use pprof::import as import_pprof;
