//! The experiments of the papers nprof comes from.

mod call_paths;
mod scripts;
