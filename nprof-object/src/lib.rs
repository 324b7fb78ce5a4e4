//! Facts about the code of Linux processes and of the kernel, shared by the recorder and the symbolizer.
//!
//! - [`address`]: the kinds of address, as types that cannot be mixed up;
//! - [`segments`]: loaded segments of an ELF file: from file offsets to image addresses and back;
//! - [`build_id`]: build IDs in ELF notes;
//! - [`elf`]: program headers within bounds;
//! - [`kallsyms`], [`modules`]: the text of `/proc/kallsyms` and `/proc/modules`;
//! - [`kprobes`]: the probes of a kernel;
//! - [`maps`]: the text of `/proc/PID/maps`;
//! - [`path`]: paths of mapped files as the kernel writes them;
//! - [`vdso`]: the vDSO of this process.
//!
//! No parser trusts its input: values outside of their bounds are errors or are left out.

pub mod address;
pub mod build_id;
pub mod elf;
pub mod kallsyms;
pub mod kprobes;
pub mod maps;
pub mod modules;
pub mod path;
pub mod segments;
pub mod vdso;

pub use address::{FileOffset, ImageAddress, ImageOffset, RuntimeAddress};
pub use segments::{Segment, Segments};
