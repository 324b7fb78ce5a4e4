//! The frames of the current epoch and their locations in the input: decides which records of an
//! input that was symbolized before pass unchanged.

use std::rc::Rc;

use nprof_object::ImageOffset;
use nprof_stream::{Frame, FrameId, Location, Passthrough, Record, Status};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::lookup_key::LookupKey;
use crate::lookup::reuse::Reuse;
use crate::names::location::{InternedLine, SymbolizedFrame};
use crate::stream::epoch_names::EpochNames;
use crate::stream::existing_annotations::ExistingAnnotations;
use crate::stream::frame_queue::FrameQueue;
use crate::stream::frame_targets::{FrameImages, FrameTarget};

/// A frame without a written location.
pub(crate) struct PendingFrame {
    /// Its lookup. None if it needs none.
    pub(crate) key: Option<LookupKey>,
    /// Its image's index in the catalog. None if it has no statistics.
    pub(crate) image: Option<usize>,
    /// Its location. None until the lookup.
    pub(crate) found: Option<Rc<SymbolizedFrame>>,
    /// Its location in the input, unless that replaced the lookup.
    pub(crate) existing: Option<Rc<SymbolizedFrame>>,
}

/// A frame with a written location, which the lookup did not name.
pub(crate) struct WrittenLocation {
    /// Its image's index in the catalog.
    pub(crate) image: Option<usize>,
    /// The result of the lookup.
    pub(crate) found: Rc<SymbolizedFrame>,
    /// Its location in the output.
    pub(crate) shown: Rc<SymbolizedFrame>,
}

/// The frames of the current epoch.
pub(crate) struct EpochFrames {
    /// The origin of the segment's annotations.
    pub(crate) annotations: ExistingAnnotations,
    /// The names by id.
    pub(crate) names: EpochNames,
    /// Frames without a written location.
    pub(crate) queue: FrameQueue<PendingFrame>,
    /// The lookups of frames with a provisional location. A frame that is defined again, as in a
    /// damaged stream, gets another lookup.
    pub(crate) deferred: FxHashMap<FrameId, LookupKey>,
    /// Frames for which the input may have a better location later.
    pub(crate) written: FxHashMap<FrameId, WrittenLocation>,
    /// The code that was written, by its image in the catalog.
    pub(crate) codes: FxHashSet<(usize, ImageOffset)>,
    /// The images in the catalog of frames with samples, if the stream gets their code.
    pub(crate) images_of_code: FxHashMap<FrameId, usize>,
    /// True if the input had any location so far.
    pub(crate) has_existing: bool,
}

impl EpochFrames {
    /// Starts without frames.
    pub(crate) fn new(annotations: ExistingAnnotations) -> Self {
        Self {
            annotations,
            names: EpochNames::default(),
            queue: FrameQueue::default(),
            deferred: FxHashMap::default(),
            written: FxHashMap::default(),
            codes: FxHashSet::default(),
            images_of_code: FxHashMap::default(),
            has_existing: false,
        }
    }

    /// Forgets all ids.
    pub(crate) fn forget(&mut self) {
        self.names.forget();
        self.deferred.clear();
        self.written.clear();
        self.codes.clear();
        self.images_of_code.clear();
    }

    /// Notes a frame or an annotation, and decides whether its record passes unchanged.
    pub(crate) fn classify(
        &mut self,
        record: &Record<'_>,
        catalog: &mut ImageCatalog,
        images: &FrameImages,
    ) -> Passthrough {
        let passes = match record {
            Record::Frame(frame) => {
                self.enqueue(frame, images);
                true
            }
            Record::Function(_) | Record::File(_) => {
                self.names.note(record, &mut catalog.names, self.annotations.is_same())
            }
            Record::Location(location) => {
                self.has_existing = true;
                self.passes(location, catalog)
            }
            _ => false,
        };
        if passes { self.pass() } else { Passthrough::Drop }
    }

    /// Returns whether nodes and samples may follow: not while a frame waits for its location.
    pub(crate) fn pass(&self) -> Passthrough {
        if self.queue.is_empty() { Passthrough::Forward } else { Passthrough::ForwardAlone }
    }

    /// Returns how much of a location of the input can be reused: nothing if its names are
    /// unknown, as after damage.
    pub(crate) fn reuse(&self, location: &Location<'_>) -> Reuse {
        if location.lines.iter().all(|line| self.names.knows(line)) {
            self.annotations.reuse(location)
        } else {
            Reuse::No
        }
    }

    /// Queues a frame. Its location in the input may follow.
    fn enqueue(&mut self, frame: &Frame<'_>, images: &FrameImages) {
        // A defined id starts over, as in a damaged stream.
        self.deferred.remove(&frame.id);
        self.written.remove(&frame.id);
        let (mut key, mut image) = (None, None);
        let found = match images.target_of(frame) {
            // A mark represents missing frames and has no location.
            None => return,
            Some(FrameTarget::Lookup(lookup)) => {
                (key, image) = (Some(lookup), Some(lookup.image));
                if lookup.code {
                    self.images_of_code.insert(frame.id, lookup.image);
                }
                None
            }
            Some(FrameTarget::Function(function)) => {
                let line = InternedLine { function, file: 0, line: 0, column: 0 };
                without_lookup(Status::Named, Box::new([line]))
            }
            Some(FrameTarget::Unnamed(status)) => without_lookup(status, Box::default()),
            Some(FrameTarget::Anonymous(anonymous)) => {
                image = Some(anonymous);
                without_lookup(Status::Anonymous, Box::default())
            }
        };
        self.queue.push(frame.id, PendingFrame { key, image, found, existing: None });
    }

    /// True if a location passes unchanged: a lookup would give the same, its ids mean the same in
    /// the output, and it belongs to the first frame of the queue.
    fn passes(&mut self, location: &Location<'_>, catalog: &mut ImageCatalog) -> bool {
        let Some(key) = self.queue.first(location.frame).and_then(|pending| pending.key) else {
            return false;
        };
        if !location.lines.iter().all(|line| self.names.is_same(line))
            || !catalog.can_reuse(key.image, self.annotations.reuse(location))
        {
            return false;
        }
        // Counted here, since the frame leaves the queue without a lookup.
        catalog.count(key.image, location.status, None);
        self.queue.take_first();
        true
    }
}

fn without_lookup(status: Status, lines: Box<[InternedLine]>) -> Option<Rc<SymbolizedFrame>> {
    Some(Rc::new(SymbolizedFrame { status, lines, problem: None }))
}
