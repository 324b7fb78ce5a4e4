//! Waiting: the BPF programs of `bpf/waits.bpf.c`, and the data that they report.

pub(crate) mod data;
pub(crate) mod stack_copies;
pub(crate) mod stack_reader;
pub(crate) mod tracer;
pub(crate) mod windows;
