//! Code of the running kernel, its modules and BPF programs.

pub(crate) mod kallsyms;
pub(crate) mod running_kernel;
