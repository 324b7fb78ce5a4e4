//! The formats, each over the model alone. Pure.

pub(crate) mod callgrind;
pub(crate) mod firefox;
pub(crate) mod pprof;
pub(crate) mod speedscope;
