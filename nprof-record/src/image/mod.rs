//! Sources of code: the ELF files of processes, the kernel, JIT code.

pub(crate) mod allocator;
pub(crate) mod jit;
pub(crate) mod kept_images;
pub(crate) mod kernel;
pub mod key;
pub(crate) mod mapped_file;
pub(crate) mod table;
