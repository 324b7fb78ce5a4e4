//! Completes stacks that are deeper than their copy: watches return addresses with hardware
//! breakpoints, and reuses the callers that they prove unchanged; hints the BPF program at the part
//! of a stack to copy.

pub(crate) mod absent_pages;
pub(crate) mod caller_stack;
pub(crate) mod copy_hints;
pub(crate) mod frame_watch;
pub(crate) mod walk_trace;
pub(crate) mod watchpoints;
