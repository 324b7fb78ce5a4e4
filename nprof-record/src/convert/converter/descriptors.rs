//! Writes the opening and closing of descriptors.

use nprof_preload::protocol::{Opened, Origin};
use nprof_stream::{ExtrasBuilder, NodeId, TaskId};

use crate::convert::allocations::descriptors::{Descriptors, OpenDescriptor};
use crate::convert::converter::Converter;
use crate::convert::converter::library_samples::Written;
use crate::convert::dictionary::Sink;
use crate::event::PreloadedEvent;
use crate::os::descriptor_link::{FileId, link_of};
use crate::os::sockets::SocketNames;
use crate::perf::record::SampleId;

impl<S: Sink> Converter<S> {
    pub(super) fn open_descriptor(&mut self, id: SampleId, ring: u64, opened: &Opened<'_>) {
        let Ok(number) = u32::try_from(opened.descriptor) else { return };
        let Some((task, node)) = self.locate_captured(id, &opened.capture) else { return };
        self.note_leader(ring, id.pid);
        let Some(state) = &mut self.allocations else { return };
        let Some(process) = state.processes.get_mut(&ring) else { return };
        let object = object(id.pid, number, opened, &process.descriptors, &self.sockets);
        let descriptor = OpenDescriptor { node, time_ns: id.time, object: object.clone() };
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
        let closed = process.descriptors.close(first, last, id.time);
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
            extras.add_number("age", age_ns);
        }
        self.write_preloaded(&Written { event, time_ns, task, node, weight: 1, count: 1 }, &extras);
    }
}

/// Returns the file or the peer of a descriptor: the name by which it was opened if that is absolute,
/// else what /proc shows if it is still open, else that of its original or the kind.
fn object(
    pid: u32,
    number: u32,
    opened: &Opened<'_>,
    descriptors: &Descriptors,
    sockets: &SocketNames,
) -> Vec<u8> {
    let is_named = matches!(
        opened.origin,
        Some(Origin::File | Origin::Temporary | Origin::Memory | Origin::Queue)
    );
    let name = if is_named { opened.name } else { b"" };
    if name.starts_with(b"/") {
        return name.to_vec();
    }
    let kind = match opened.origin {
        // They share one inode.
        Some(Origin::Epoll) => return b"anon_inode:[eventpoll]".to_vec(),
        Some(Origin::Event) => return b"anon_inode:[eventfd]".to_vec(),
        Some(Origin::Timer) => return b"anon_inode:[timerfd]".to_vec(),
        Some(Origin::Signal) => return b"anon_inode:[signalfd]".to_vec(),
        Some(Origin::Inotify) => return b"anon_inode:inotify".to_vec(),
        Some(Origin::Fanotify) => return b"anon_inode:[fanotify]".to_vec(),
        // A socket, a file or an inode of its own kind, by the version of the kernel.
        Some(Origin::Process) => return b"anon_inode:[pidfd]".to_vec(),
        Some(Origin::Socket | Origin::Accept) => Some(libc::S_IFSOCK),
        Some(Origin::Pipe) => Some(libc::S_IFIFO),
        _ => None,
    };
    let file = FileId { inode: opened.inode, kind, is_shown: true };
    let file = Some(file).filter(|file| file.inode != 0);
    let link = link_of(pid, number, file).unwrap_or_default();
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
        Some(Origin::Duplicate) => {
            let original = std::str::from_utf8(opened.name).ok().and_then(|name| name.parse().ok());
            let original = original.and_then(|number| descriptors.get(number));
            original.map(|original| original.object.clone()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
