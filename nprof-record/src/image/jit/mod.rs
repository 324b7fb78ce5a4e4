//! Code that a process generates at run time, named by its perf map or jitdump file.

pub(crate) mod growing_file;
pub(crate) mod jitdump;
pub(crate) mod perf_map;
pub(crate) mod process_jit;
pub(crate) mod runtime_code;
pub(crate) mod runtime_unwinding;
pub(crate) mod unnamed_frames;
