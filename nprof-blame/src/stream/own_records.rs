//! The definitions that this filter adds: its event, and frames in the place of unexplained waiting.

use std::io::{self, Write};

use nprof_stream::tables::Tables;
use nprof_stream::{
    EventId, Extras, FileId, Frame, FrameId, Function, FunctionId, Image, ImageId, ImageKind, Line,
    Location, Mark, NodeId, Nodes, Record, Status, Writer, limits,
};
use rustc_hash::FxHashMap;

use crate::charge::Reason;

/// The highest id of the input. The filter uses the ones above: while it reads a live stream, it
/// cannot know which ones the recorder will use. The recorder stays below 2^21 (its dictionary).
pub(super) const LAST_OF_INPUT: u32 = limits::ID / 2;

/// The image of the frames.
const IMAGE: ImageId = ImageId(LAST_OF_INPUT + 1);

/// Its name.
const IMAGE_NAME: &[u8] = b"[nprof-blame]";

/// Writes records of this filter, each definition before its first use.
#[derive(Debug)]
pub(super) struct OwnRecords<W> {
    pub(super) writer: Writer<W>,
    /// The definitions of the epoch, with those of the filter.
    pub(super) tables: Tables,
    /// The number of events in the epoch.
    events: u32,
    has_image: bool,
    has_frame: [bool; Reason::ALL.len()],
    nodes: FxHashMap<(NodeId, Reason), NodeId>,
    /// The records in the segment that are not annotations.
    pub(super) records: u64,
}

impl<W: Write> OwnRecords<W> {
    pub(super) fn new(writer: Writer<W>) -> Self {
        Self {
            writer,
            tables: Tables::new(),
            events: 0,
            has_image: false,
            has_frame: Default::default(),
            nodes: FxHashMap::default(),
            records: 0,
        }
    }

    /// Copies a record of the input.
    pub(super) fn copy(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.tables.apply(record);
        self.writer.write(record)
    }

    /// Forgets all ids: an epoch or a segment begins.
    pub(super) fn forget(&mut self) {
        self.events = 0;
        self.has_image = false;
        self.has_frame = Default::default();
        self.nodes.clear();
    }

    /// Writes a record of the filter.
    pub(super) fn write(&mut self, record: &Record<'_>) -> io::Result<()> {
        self.records += u64::from(!record.is_annotation());
        self.copy(record)
    }

    /// Returns the id of the next event.
    pub(super) fn next_event(&mut self) -> EventId {
        self.events += 1;
        EventId(LAST_OF_INPUT + self.events)
    }

    /// Returns the node of a reason below a stack.
    pub(super) fn node(&mut self, stack: NodeId, reason: Reason) -> io::Result<NodeId> {
        if let Some(&node) = self.nodes.get(&(stack, reason)) {
            return Ok(node);
        }
        let frame = self.frame(reason)?;
        // There are more stacks than ids only in a stream without epochs that is not nprof-record's:
        // its further stacks lack the frame.
        let Some(id) = (LAST_OF_INPUT + 1).checked_add(self.nodes.len() as u32) else {
            return Ok(stack);
        };
        if id > limits::ID {
            return Ok(stack);
        }
        let node = NodeId(id);
        self.write(&Record::Nodes(Nodes { first: node, parent: stack, frames: &[frame] }))?;
        self.nodes.insert((stack, reason), node);
        Ok(node)
    }

    fn frame(&mut self, reason: Reason) -> io::Result<FrameId> {
        let place = reason as usize;
        let id = LAST_OF_INPUT + 1 + place as u32;
        let (frame, function) = (FrameId(id), FunctionId(id));
        if std::mem::replace(&mut self.has_frame[place], true) {
            return Ok(frame);
        }
        let extras = Extras::NONE;
        if !std::mem::replace(&mut self.has_image, true) {
            let kind = ImageKind::Elf;
            let image = Image { id: IMAGE, kind, build_id: b"", path: IMAGE_NAME, extras };
            self.write(&Record::Image(image))?;
        }
        self.write(&Record::Frame(Frame {
            id: frame,
            image: IMAGE,
            // A stack without annotations still shows different places.
            offset: place as u64,
            // Below the kernel frames of a wait only kernel frames may follow.
            kernel: true,
            return_address: false,
            mark: Mark::None,
            extras,
        }))?;
        let name = reason.name().as_bytes();
        self.write(&Record::Function(Function { id: function, name, linkage: b"", extras }))?;
        let line = Line { function, file: FileId::NONE, ..Line::default() };
        let lines = &[line];
        self.write(&Record::Location(Location { frame, status: Status::Named, lines, extras }))?;
        Ok(frame)
    }
}
