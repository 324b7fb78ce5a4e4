//! The dictionary of the stream: the ids of images, frames and nodes. Each is defined in the stream
//! before its first use. A full dictionary is dropped, and a new epoch begins. Pure: records go to a
//! [`Sink`].

use std::rc::Rc;

use nprof_object::ImageOffset;
use nprof_stream::{
    Assigned, AssignedIds, AssignedNodes, Epoch, Extras, Frame, FrameId, Function, FunctionId,
    Image, ImageId, ImageKind, Mark, NodeId, Record, assigned_ids,
};
use rustc_hash::FxHashMap;

use crate::image::jit::runtime_code::RuntimeFunction;
use crate::image::key::ImageKey;

/// A receiver of records. It keeps write errors for the end of the recording.
pub trait Sink {
    /// Takes one record.
    fn take(&mut self, record: &Record<'_>);
}

/// The content of a frame, which identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    /// The image; `None` for a mark.
    pub image: Option<ImageKey>,
    /// The offset in the image.
    pub offset: ImageOffset,
    /// True if the frame is in the kernel.
    pub kernel: bool,
    /// True if the offset is that of a return address.
    pub return_address: bool,
    /// The reason why the stack ends here, for the frame at the root of an incomplete stack.
    pub mark: Mark,
}

impl FrameKey {
    /// Returns the frame at the root of an incomplete stack.
    pub fn mark(mark: Mark) -> Self {
        Self { image: None, offset: ImageOffset(0), kernel: false, return_address: false, mark }
    }
}

/// The definition of an image.
#[derive(Debug)]
pub struct ImageFacts<'a> {
    /// Its kind.
    pub kind: ImageKind,
    /// Its path, or a name in brackets.
    pub path: &'a [u8],
    /// Its build ID; empty if it has none.
    pub build_id: &'a [u8],
    /// Further keys.
    pub extras: Extras<'a>,
}

/// The ids of the current epoch.
#[derive(Debug)]
pub struct Dictionary {
    /// The most nodes, and the most frames, of an epoch.
    limit: u32,
    epoch: u64,
    images: AssignedIds<ImageKey>,
    frames: AssignedIds<FrameKey>,
    nodes: AssignedNodes,
    /// Functions of locations, by their address in our memory. The reference keeps the address from
    /// being used again.
    functions: FxHashMap<*const RuntimeFunction, (FunctionId, Rc<RuntimeFunction>)>,
}

impl Dictionary {
    /// Creates an empty dictionary that holds at most `limit` nodes and as many frames.
    pub fn new(limit: u32) -> Self {
        Self {
            limit,
            epoch: 0,
            images: AssignedIds::default(),
            frames: AssignedIds::default(),
            nodes: AssignedNodes::default(),
            functions: FxHashMap::default(),
        }
    }

    /// True if another stack of `depth` frames may exceed the limit, so that a new epoch must begin.
    /// One stack always fits.
    pub fn is_full(&self, depth: usize) -> bool {
        let used = self.nodes.len().max(self.frames.len());
        !assigned_ids::has_room(used, depth, self.limit as usize)
    }

    /// Drops all ids and writes the start of an epoch.
    pub fn begin_epoch(&mut self, sink: &mut impl Sink) {
        self.epoch += 1;
        // Cleared maps keep their memory: the next epoch will be about as large.
        self.images.clear();
        self.frames.clear();
        self.nodes.clear();
        self.functions.clear();
        sink.take(&Record::Epoch(Box::new(Epoch { number: self.epoch, ..Epoch::default() })));
    }

    /// Returns the highest id of a frame.
    pub fn last_frame(&self) -> FrameId {
        FrameId(self.frames.len() as u32)
    }

    /// True if an image is not defined yet.
    pub fn needs_image(&self, image: ImageKey) -> bool {
        self.images.get(&image).is_none()
    }

    /// Defines an image.
    pub fn define_image(&mut self, image: ImageKey, facts: &ImageFacts<'_>, sink: &mut impl Sink) {
        let Assigned::New(id) = self.images.assign(image) else { return };
        sink.take(&Record::Image(Image {
            id: ImageId(id),
            kind: facts.kind,
            build_id: facts.build_id,
            path: facts.path,
            extras: facts.extras,
        }));
    }

    /// Returns the id of a frame, and defines it if it is new. Its image must be defined.
    pub fn frame(&mut self, key: FrameKey, sink: &mut impl Sink) -> FrameId {
        let id = match self.frames.assign(key) {
            Assigned::Known(id) => return FrameId(id),
            Assigned::New(id) => FrameId(id),
            // Unreachable: `limit` begins an epoch long before.
            Assigned::Exhausted => return FrameId::NONE,
        };
        let image = key.image.and_then(|image| self.images.get(&image));
        sink.take(&Record::Frame(Frame {
            id,
            image: image.map_or(ImageId::NONE, ImageId),
            offset: key.offset.0,
            kernel: key.kernel,
            return_address: key.return_address,
            mark: key.mark,
            extras: Extras::NONE,
        }));
        id
    }

    /// Returns the id of a function generated at run time, for locations, and defines it if it is new.
    pub(crate) fn function(
        &mut self,
        function: &Rc<RuntimeFunction>,
        sink: &mut impl Sink,
    ) -> FunctionId {
        let next = FunctionId(self.functions.len() as u32 + 1);
        let entry = self.functions.entry(Rc::as_ptr(function));
        let (id, _) = entry.or_insert_with(|| (next, function.clone()));
        if *id == next {
            let (name, linkage) = (&*function.name, &b""[..]);
            let extras = Extras::NONE;
            sink.take(&Record::Function(Function { id: next, name, linkage, extras }));
        }
        *id
    }

    /// Returns the node of the frames `stack`, root first, below the node `parent` (none for a whole
    /// stack), and appends that of each frame to `nodes`. New nodes are defined as one branch.
    pub fn node(
        &mut self,
        parent: NodeId,
        stack: &[FrameId],
        nodes: &mut Vec<NodeId>,
        sink: &mut impl Sink,
    ) -> NodeId {
        let mut node = parent;
        for &frame in stack {
            if frame == FrameId::NONE {
                nodes.push(node);
                continue;
            }
            // Without more ids, which `limit` prevents, the stack would end here.
            let Some(below) = self.nodes.assign(node, frame) else { break };
            node = below;
            nodes.push(node);
        }
        if let Some(nodes) = self.nodes.branch() {
            sink.take(&Record::Nodes(nodes));
            self.nodes.end_branch();
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps records as their debug text.
    #[derive(Default)]
    struct Kept(Vec<String>);

    impl Sink for Kept {
        fn take(&mut self, record: &Record<'_>) {
            self.0.push(match record {
                Record::Nodes(nodes) => {
                    let frames: Vec<_> = nodes.frames.iter().map(|frame| frame.0).collect();
                    format!("N {} {} {frames:?}", nodes.first, nodes.parent)
                }
                Record::Frame(frame) => {
                    format!("F {} {} {:#x}", frame.id, frame.image, frame.offset)
                }
                Record::Image(image) => format!("I {}", image.id),
                Record::Epoch(epoch) => format!("@epoch {}", epoch.number),
                other => format!("{other:?}"),
            });
        }
    }

    const IMAGE: ImageKey = ImageKey::File(9);

    fn key(offset: u64) -> FrameKey {
        FrameKey {
            image: Some(IMAGE),
            offset: ImageOffset(offset),
            kernel: false,
            return_address: false,
            mark: Mark::None,
        }
    }

    fn stack(dictionary: &mut Dictionary, sink: &mut Kept, offsets: &[u64]) -> NodeId {
        if dictionary.needs_image(IMAGE) {
            let facts = ImageFacts {
                kind: ImageKind::Elf,
                path: b"/a",
                build_id: b"",
                extras: Extras::NONE,
            };
            dictionary.define_image(IMAGE, &facts, sink);
        }
        let frames: Vec<_> = offsets.iter().map(|&at| dictionary.frame(key(at), sink)).collect();
        dictionary.node(NodeId::NONE, &frames, &mut Vec::new(), sink)
    }

    #[test]
    fn ids_are_defined_once_and_before_use() {
        let (mut dictionary, mut sink) = (Dictionary::new(100), Kept::default());
        assert_eq!(stack(&mut dictionary, &mut sink, &[1, 2, 3]), NodeId(3));
        assert_eq!(stack(&mut dictionary, &mut sink, &[1, 2, 3]), NodeId(3));
        assert_eq!(stack(&mut dictionary, &mut sink, &[1, 2]), NodeId(2));
        assert_eq!(stack(&mut dictionary, &mut sink, &[1, 2, 4, 4]), NodeId(5));
        let expected = [
            "I 1",
            "F 1 1 0x1",
            "F 2 1 0x2",
            "F 3 1 0x3",
            "N 1 0 [1, 2, 3]",
            "F 4 1 0x4",
            "N 4 2 [4, 4]",
        ];
        assert_eq!(sink.0, expected);
    }

    #[test]
    fn epoch_restarts_ids() {
        let (mut dictionary, mut sink) = (Dictionary::new(4), Kept::default());
        stack(&mut dictionary, &mut sink, &[1, 2, 3]);
        assert!(!dictionary.is_full(1));
        assert!(dictionary.is_full(2));
        dictionary.begin_epoch(&mut sink);
        assert!(!dictionary.is_full(1000), "one stack always fits");
        sink.0.clear();
        assert_eq!(stack(&mut dictionary, &mut sink, &[3]), NodeId(1));
        assert_eq!(sink.0, ["I 1", "F 1 1 0x3", "N 1 0 [1]"]);
        dictionary.begin_epoch(&mut sink);
        assert_eq!(sink.0.last().map(String::as_str), Some("@epoch 2"));
    }

    #[test]
    fn no_stack_is_no_node() {
        let (mut dictionary, mut sink) = (Dictionary::new(4), Kept::default());
        assert_eq!(dictionary.node(NodeId::NONE, &[], &mut Vec::new(), &mut sink), NodeId::NONE);
        assert!(sink.0.is_empty());
    }
}
