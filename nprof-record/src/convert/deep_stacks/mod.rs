//! Completes stacks deeper than the copy: watches return addresses with hardware breakpoints and reuses
//! the callers they prove unchanged.

pub(crate) mod caller_stack;
pub(crate) mod copy_hints;
pub(crate) mod frame_watch;
pub(crate) mod walk_trace;
pub(crate) mod watchpoints;
