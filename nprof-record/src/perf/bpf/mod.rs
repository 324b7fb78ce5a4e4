//! A BPF program that copies more of a stack than the kernel does.

pub(crate) mod assembler;
pub(crate) mod program;
pub(crate) mod shared_array;
pub(crate) mod stack_copier;
