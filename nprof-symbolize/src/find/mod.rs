//! Finds and opens the files an ELF image and its debug information are in.
//!
//! The order is fixed, and every step leaves a line in a trace that `--explain` prints. No file
//! is taken for another: the build ID decides, or the CRC the image has of its debug file. What
//! each file contains decides what is taken from it.

mod contents;
mod debuginfod;
mod decompress;
mod elf_file;
mod failure;
mod finder;
mod hex;
mod identity;
pub(crate) mod kallsyms;
mod live_processes;
mod recorded;
pub(crate) mod running_kernel;
mod search_log;
mod search_paths;
mod split_files;
mod vmlinux;

pub(crate) use debuginfod::{Debuginfod, Settings};
pub(crate) use failure::Failure;
pub(crate) use finder::{Finder, Opened};
pub(crate) use hex::hex;
pub(crate) use live_processes::LiveProcesses;
pub(crate) use recorded::RecordedImage;
pub(crate) use search_log::SearchLog;
pub(crate) use search_paths::SearchPaths;
