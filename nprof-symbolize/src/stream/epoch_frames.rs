//! The frames of the epoch at hand, and what the input says of them: which records of an input
//! that was symbolized before are passed on as they are.

use std::rc::Rc;

use nprof_stream::{Frame, FrameId, Location, Pass, Record, Status};
use rustc_hash::FxHashMap;

use crate::image::opened::Place;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::reuse::Reuse;
use crate::names::location::{InternedLine, SymbolizedFrame};
use crate::stream::epoch_names::EpochNames;
use crate::stream::existing_names::ExistingAnnotations;
use crate::stream::frame_queue::FrameQueue;
use crate::stream::frame_sites::{FrameImages, FrameTarget};

/// What a frame is called.
pub(crate) struct PendingFrame {
    /// Its image's index in the catalog, and where it is in that.
    pub(crate) site: Option<(usize, Place)>,
    /// `None` until it was looked up.
    pub(crate) named: Option<Rc<SymbolizedFrame>>,
    /// What the input says, unless that is taken for what was looked up.
    pub(crate) theirs: Option<Rc<SymbolizedFrame>>,
}

/// What a frame is called that has no name of ours.
pub(crate) struct WrittenLocation {
    /// Its image's index in the catalog.
    pub(crate) slot: Option<usize>,
    pub(crate) ours: Rc<SymbolizedFrame>,
    pub(crate) shown: Rc<SymbolizedFrame>,
}

/// The frames of the epoch at hand.
pub(crate) struct EpochFrames {
    /// What the segment's steps say of its names.
    pub(crate) earlier: ExistingAnnotations,
    /// The names.
    pub(crate) names: EpochNames,
    /// Frames whose locations have yet to be written.
    pub(crate) waiting: FrameQueue<PendingFrame>,
    /// Of which place each frame is whose second location has yet to be written: what is defined
    /// anew in between, as in a damaged stream, has another.
    pub(crate) pending: FxHashMap<FrameId, (usize, Place)>,
    /// Frames for which the input may yet have a better location, once it had any.
    pub(crate) located: FxHashMap<FrameId, WrittenLocation>,
    /// Whether it had any so far.
    pub(crate) has_theirs: bool,
}

impl EpochFrames {
    /// No frames yet.
    pub(crate) fn new(earlier: ExistingAnnotations) -> Self {
        Self {
            earlier,
            names: EpochNames::default(),
            waiting: FrameQueue::default(),
            pending: FxHashMap::default(),
            located: FxHashMap::default(),
            has_theirs: false,
        }
    }

    /// All ids are forgotten.
    pub(crate) fn forget(&mut self) {
        self.names.forget();
        self.pending.clear();
        self.located.clear();
    }

    /// Takes note of a frame or of what the input says of one, unless that is to be weighed.
    pub(crate) fn classify(
        &mut self,
        record: &Record<'_>,
        catalog: &mut ImageCatalog,
        sites: &FrameImages,
    ) -> Pass {
        let passes = match record {
            Record::Frame(frame) => {
                self.wait(frame, sites);
                true
            }
            Record::Function(_) | Record::File(_) => {
                self.names.note(record, &mut catalog.names, self.earlier.is_same())
            }
            Record::Location(location) => {
                self.has_theirs = true;
                self.passes(location, catalog)
            }
            _ => false,
        };
        if passes { self.pass() } else { Pass::Not }
    }

    /// Whether nodes and samples may follow.
    pub(crate) fn pass(&self) -> Pass {
        if self.waiting.is_empty() { Pass::On } else { Pass::Hold }
    }

    /// What a location of the input is worth: little where what it refers to is not known, as of a
    /// damaged one.
    pub(crate) fn worth(&self, location: &Location<'_>) -> Reuse {
        match location.lines.iter().all(|line| self.names.knows(line)) {
            true => self.earlier.worth(location),
            false => Reuse::No,
        }
    }

    /// Takes note of a frame, whose location may yet come.
    fn wait(&mut self, frame: &Frame<'_>, sites: &FrameImages) {
        self.pending.remove(&frame.id);
        self.located.remove(&frame.id);
        let nameless =
            |status, lines| Some(Rc::new(SymbolizedFrame { status, lines, problem: None }));
        let (site, named) = match sites.of(frame) {
            // A mark stands for frames that are missing.
            None => return,
            Some(FrameTarget::Place(slot, place)) => (Some((slot, place)), None),
            Some(FrameTarget::Function(function)) => {
                let line = InternedLine { function, file: 0, line: 0, column: 0 };
                (None, nameless(Status::Named, Box::new([line])))
            }
            Some(FrameTarget::Unnamed(status)) => (None, nameless(status, Box::default())),
        };
        self.waiting.push(frame.id, PendingFrame { site, named, theirs: None });
    }

    /// Whether a location is passed on: it is taken for what would be found, its ids mean the same
    /// here, and no other frame's comes before it.
    fn passes(&mut self, location: &Location<'_>, catalog: &mut ImageCatalog) -> bool {
        let site = self.waiting.first(location.frame).and_then(|answer| answer.site);
        let Some((slot, _)) = site else { return false };
        if !location.lines.iter().all(|line| self.names.is_same(line))
            || !catalog.can_reuse(slot, self.earlier.worth(location))
        {
            return false;
        }
        catalog.count(slot, location.status, None);
        self.waiting.take_first();
        true
    }
}
