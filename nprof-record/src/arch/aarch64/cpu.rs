//! Facts about the processor.

/// The line of /proc/cpuinfo that identifies the model. It has a number: the kernel knows no names of this
/// architecture's models.
pub(crate) const MODEL_KEY: &str = "CPU part";

/// Hardware breakpoints of a processor for data. The architecture requires two; most have four.
pub(crate) const BREAKPOINTS: usize = 4;
