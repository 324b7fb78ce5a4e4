//! Profiles that are sums by stack: folded stacks, pprof, CPU profiles of gperftools, heap profiles of jemalloc
//! and tcmalloc.

mod error;
mod folded;
mod gperftools;
mod heap;
mod mapped;
mod pprof;
mod whole;

pub(crate) use folded::{begins as is_folded, import as import_folded};
pub(crate) use gperftools::{import as import_gperftools, is_cpu_profile};
pub(crate) use heap::{import as import_heap, is_heap_profile};
pub(crate) use pprof::import as import_pprof;
pub(crate) use whole::run_of;
