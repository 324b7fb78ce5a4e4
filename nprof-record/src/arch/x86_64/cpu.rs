//! Facts about the processor.

/// The line of /proc/cpuinfo that names the model.
pub(crate) const MODEL_KEY: &str = "model name";

/// Hardware breakpoints of a processor: the debug registers DR0 to DR3.
pub(crate) const BREAKPOINTS: usize = 4;
