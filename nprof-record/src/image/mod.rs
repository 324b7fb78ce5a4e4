//! Sources of code: ELF files with their unwind tables, the kernel, JIT code.

pub(crate) mod allocator;
pub mod cfi;
pub(crate) mod code_bytes;
mod code_pages;
pub(crate) mod elf;
pub(crate) mod jit;
pub(crate) mod kept_images;
pub(crate) mod kernel;
pub mod key;
pub(crate) mod mapped_file;
pub(crate) mod table;
