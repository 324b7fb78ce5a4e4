//! What tells tasks and processes apart.

/// Tells tasks apart for ever, whereas pids are reused.
pub(crate) type Serial = u64;

/// A process: its id, and the serial of its first thread.
pub(crate) type Owner = (u32, Serial);
