//! Identities of tasks and processes that stay unique when ids are reused.

/// A number of a task that is never reused, in contrast to its thread id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskSerial(pub(crate) u64);

/// A process: its id, and the serial of its first thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) serial: TaskSerial,
}
