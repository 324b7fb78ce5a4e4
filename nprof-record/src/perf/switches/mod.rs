//! Waiting without BPF: records of context switches, and looks at threads that are blocked.

pub(crate) mod peek;
pub(crate) mod tracer;
