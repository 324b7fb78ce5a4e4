//! The tasks of the tree, and the state that the threads of a process share. Pure.

use std::rc::Rc;

use nprof_stream::TaskId;

use crate::convert::address_space::AddressSpace;
use crate::image::jit::process_jit::ProcessJit;
use crate::os::task_serial::TaskSerial;

/// A process or thread that is followed.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) serial: TaskSerial,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The serial of its process, which is that of the first thread.
    pub(super) process: TaskSerial,
    /// For a thread the first thread of its process, for a process that of its parent.
    pub(super) parent: Option<(u32, TaskSerial)>,
    pub(crate) comm: Vec<u8>,
    /// The time at which it started.
    pub(crate) time_ns: u64,
    /// Its id in the stream's current epoch.
    pub(crate) id: TaskId,
    pub(super) life: Life,
}

impl Task {
    /// True if it has certainly exited.
    pub(super) fn has_exited(&self) -> bool {
        matches!(self.life, Life::Exited(_))
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Lives,
    /// A sign of its exit, from this time, that later records may refute.
    InDoubt(u64),
    /// It exited at this time.
    Exited(u64),
}

/// An exec before its image is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingExec {
    pub(crate) tid: u32,
    pub(crate) time_ns: u64,
    /// True once anything is mapped.
    pub(crate) has_mappings: bool,
}

/// The state that the threads of a process share.
#[derive(Debug)]
pub(crate) struct Process {
    /// The serial of its first thread.
    pub(crate) serial: TaskSerial,
    /// Its parent process, with its serial.
    pub(super) parent: Option<(u32, TaskSerial)>,
    pub(crate) maps: Rc<AddressSpace>,
    /// The time until which its mappings are known from /proc; [`NEVER_READ`] before they were
    /// read.
    pub(super) maps_known_until_ns: u64,
    /// True if records of mappings may have been lost since /proc was read.
    pub(super) may_lack_maps: bool,
    /// True if it had exited before its mappings could be read.
    pub(crate) has_unknown_maps: bool,
    /// True if its exit may have been lost, and its id may be that of a later process.
    pub(super) may_be_reused: bool,
    /// True if /proc refused to show its mappings.
    pub(crate) is_unreadable: bool,
    /// True from an exec until a sample with registers of the new image. Registers that are not of
    /// this image are left over from the one before.
    pub(crate) not_seen_since_exec: bool,
    pub(crate) exec: Option<PendingExec>,
    /// The code it generated at run time.
    pub(crate) jit: ProcessJit,
    pub(super) threads: usize,
    /// The CPU time of its samples.
    pub(crate) sampled_ns: u64,
    /// The time of the last exit of a thread; 0 before the first.
    pub(super) exited_ns: u64,
}

/// The end of a process, by its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessEnd {
    pub(crate) pid: u32,
    /// Its parent; 0 if that is unknown.
    pub(crate) parent: u32,
    /// The time of its exit; 0 if that is unknown.
    pub(crate) time_ns: u64,
    /// The CPU time of its samples.
    pub(crate) sampled_ns: u64,
}

/// The end of time: no record of a mapping is later, so all are ignored until /proc was read.
pub(super) const NEVER_READ: u64 = u64::MAX;

impl Process {
    /// Creates a process with one thread.
    pub(super) fn new(
        serial: TaskSerial,
        parent: Option<(u32, TaskSerial)>,
        maps_known_until_ns: u64,
        jit: ProcessJit,
    ) -> Self {
        Self {
            serial,
            parent,
            maps: Rc::default(),
            maps_known_until_ns,
            may_lack_maps: false,
            has_unknown_maps: false,
            may_be_reused: false,
            is_unreadable: false,
            not_seen_since_exec: false,
            exec: None,
            jit,
            threads: 1,
            sampled_ns: 0,
            exited_ns: 0,
        }
    }

    /// Returns its end, if it has exited.
    pub(super) fn end(&self, pid: u32) -> ProcessEnd {
        let parent = self.parent.map_or(0, |(parent, _)| parent);
        ProcessEnd { pid, parent, time_ns: self.exited_ns, sampled_ns: self.sampled_ns }
    }
}
