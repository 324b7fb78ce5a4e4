//! BPF: the loader of object files, and programs in assembler, of which one copies more of a stack than
//! the kernel does and one looks up symbols.

pub(crate) mod assembler;
mod kernel_types;
pub(crate) mod object;
pub(crate) mod program;
pub(crate) mod shared_array;
pub(crate) mod stack_copier;
pub(crate) mod symbol_lookup;
