//! Files of images: finds the image, its debug files, and the kernel's symbols.
//!
//! The order of the search is fixed, and each step writes a line to a log that `--explain` prints.
//! A file must have the build ID of the image, or the checksum that the image states for its debug
//! file; its contents decide its use.

mod contents;
mod counted_functions;
mod debuginfod;
mod decompress;
mod elf_file;
mod entries;
mod failure;
mod finder;
mod identity;
mod kallsyms;
mod kernel_code;
pub(crate) mod kernel_entries;
mod live_processes;
mod recorded;
pub(crate) mod running_kernel;
mod search_log;
mod search_paths;
mod split_files;
mod vmlinux;

pub(crate) use debuginfod::Debuginfod;
#[cfg(feature = "debuginfod")]
pub(crate) use debuginfod::Settings;
pub(crate) use entries::{Entries, Entry};
pub(crate) use failure::Failure;
pub(crate) use finder::{Finder, OpenedImage};
pub(crate) use live_processes::LiveProcesses;
pub(crate) use recorded::RecordedImage;
pub(crate) use search_log::SearchLog;
pub(crate) use search_paths::SearchPaths;
