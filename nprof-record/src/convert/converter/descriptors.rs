//! Writes the opening and closing of descriptors.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use nprof_preload::protocol::{Opened, Origin};
use nprof_stream::{ExtrasBuilder, NodeId, TaskId};

use crate::convert::allocations::descriptors::OpenDescriptor;
use crate::convert::converter::Converter;
use crate::convert::converter::library_samples::Written;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::os::sockets::SocketNames;
use crate::perf::record::SampleId;

impl<S: Sink> Converter<S> {
    pub(super) fn open_descriptor(&mut self, id: SampleId, ring: u64, opened: &Opened<'_>) {
        let Ok(number) = u32::try_from(opened.descriptor) else { return };
        let Some((task, node)) = self.locate_captured(id, &opened.capture) else { return };
        self.note_leader(ring, id.pid);
        let object = object(id.pid, number, opened, &self.sockets);
        let descriptor = OpenDescriptor { node, time_ns: id.time, object: object.clone() };
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let replaced = process.descriptors.open(number, descriptor);
        if let Some(replaced) = replaced {
            self.write_closed(id.time, task, &replaced);
        }
        let event = PreloadedEvent::FdOpen;
        self.write_descriptor(event, id.time, task, node, &object, None);
    }

    pub(super) fn close_descriptors(&mut self, id: SampleId, ring: u64, first: u32, last: u32) {
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let closed = process.descriptors.close(first, last);
        let task = self.task_of(id);
        for descriptor in closed {
            self.write_closed(id.time, task, &descriptor);
        }
    }

    pub(super) fn write_closed(&mut self, time_ns: u64, task: TaskId, closed: &OpenDescriptor) {
        let age_ns = Some(time_ns.saturating_sub(closed.time_ns));
        let (event, node) = (PreloadedEvent::FdClose, closed.node);
        self.write_descriptor(event, time_ns, task, node, &closed.object, age_ns);
    }

    pub(super) fn write_descriptor(
        &mut self,
        event: PreloadedEvent,
        time_ns: u64,
        task: TaskId,
        node: NodeId,
        object: &[u8],
        age_ns: Option<u64>,
    ) {
        let mut extras = ExtrasBuilder::new();
        if !object.is_empty() {
            extras.add("on", object);
        }
        if let Some(age_ns) = age_ns {
            extras.add("age", age_ns.to_string().as_bytes());
        }
        self.write_preloaded(&Written { event, time_ns, task, node, weight: 1, count: 1 }, &extras);
    }
}

/// Returns the file or the peer of a descriptor: the name by which it was opened if that is absolute,
/// else what /proc shows, else the kind.
fn object(pid: u32, number: u32, opened: &Opened<'_>, sockets: &SocketNames) -> Vec<u8> {
    let is_named = matches!(opened.origin, Some(Origin::File | Origin::Temporary | Origin::Memory));
    let name = if is_named { opened.name } else { b"" };
    if name.starts_with(b"/") {
        return name.to_vec();
    }
    let link = fs::read_link(format!("/proc/{pid}/fd/{number}"));
    let link = link.map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    // The process may have closed it by now, and opened another file with its number.
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if !link.is_empty() && (!is_named || link.ends_with(base)) {
        return sockets.name(pid, &link).unwrap_or(link);
    }
    if !name.is_empty() {
        return name.to_vec();
    }
    match opened.origin {
        Some(Origin::Socket | Origin::Accept) => b"socket".to_vec(),
        Some(Origin::Pipe) => b"pipe".to_vec(),
        _ => Vec::new(),
    }
}
