//! Reads procfs, sysfs and cgroupfs; explains why an event cannot be opened.

pub(crate) mod cgroup;
pub(crate) mod code_mapping;
pub(crate) mod descriptor_link;
pub(crate) mod load;
pub(crate) mod lockdown;
pub(crate) mod machine;
pub(crate) mod open_error;
pub(crate) mod procfs;
pub(crate) mod sockets;
pub(crate) mod task_serial;
