//! Where the frames of a stream are: its images by their ids, in the epoch at hand.

use nprof_stream::{Frame, Image, ImageId, ImageKind, Mark, Record, Status};
use rustc_hash::FxHashMap;

use crate::find::RecordedImage;
use crate::image::opened::Place;
use crate::lookup::image_catalog::ImageCatalog;
use crate::stream::wall_clock::WallClock;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameTarget {
    /// At a place of the image of this index in the catalog.
    Place(usize, Place),
    /// In the function of this number in the catalog's names, which is all of an image.
    Function(u32),
    /// Where nothing can have a name.
    Unnamed(Status),
}

/// The images of the epoch at hand.
#[derive(Default)]
pub(crate) struct FrameImages {
    /// The time of day in the stream, and when images without a build ID were first seen.
    clock: WallClock,
    seen: FxHashMap<Box<[u8]>, u64>,
    /// For each image a place in it, whose offset means nothing.
    images: FxHashMap<ImageId, FrameTarget>,
}

impl FrameImages {
    /// Takes note of a record.
    pub(crate) fn note(&mut self, record: &Record<'_>, catalog: &mut ImageCatalog) {
        self.clock.note(record);
        match record {
            Record::Head(_) => {
                self.images.clear();
                self.seen.clear();
            }
            Record::Epoch(_) => self.images.clear(),
            Record::Image(image) => self.remember(image, catalog),
            Record::Task(task) if task.pid == task.tid => catalog.note_process(task.pid),
            _ => {}
        }
    }

    /// Takes note of the time of records that were passed over.
    pub(crate) fn advance(&mut self, time: u64) {
        self.clock.advance(time);
    }

    /// Where a frame is; `None` for a mark, which stands for frames that are missing.
    pub(crate) fn of(&self, frame: &Frame<'_>) -> Option<FrameTarget> {
        if frame.mark != Mark::None {
            return None;
        }
        let place = Place { offset: frame.offset, return_address: frame.return_address };
        Some(match self.images.get(&frame.image) {
            Some(&FrameTarget::Place(slot, _)) => FrameTarget::Place(slot, place),
            Some(&other) => other,
            None if frame.image.is_none() => FrameTarget::Unnamed(Status::Anonymous),
            // The image's record was lost to damage.
            None => FrameTarget::Unnamed(Status::NoImage),
        })
    }

    fn remember(&mut self, image: &Image<'_>, catalog: &mut ImageCatalog) {
        let site = match image.kind {
            ImageKind::Elf | ImageKind::Kernel | ImageKind::Module | ImageKind::Vdso => {
                let recorded = RecordedImage {
                    kind: image.kind,
                    build_id: image.build_id.into(),
                    path: image.path.into(),
                    seen: self.first_seen(image),
                };
                FrameTarget::Place(
                    catalog.slot(recorded),
                    Place { offset: 0, return_address: false },
                )
            }
            // A function of generated code, named when it was recorded.
            ImageKind::Jit if !image.path.is_empty() => {
                FrameTarget::Function(catalog.names.shown(image.path))
            }
            ImageKind::Anonymous | ImageKind::Jit => FrameTarget::Unnamed(Status::Anonymous),
            ImageKind::Other(_) => FrameTarget::Unnamed(Status::NoImage),
        };
        self.images.insert(image.id, site);
    }

    /// When an image without a build ID was first seen in the segment.
    fn first_seen(&mut self, image: &Image<'_>) -> Option<u64> {
        let is_unproven = image.kind == ImageKind::Elf && image.build_id.is_empty();
        let now = self.clock.utc().filter(|_| is_unproven)?;
        Some(*self.seen.entry(image.path.into()).or_insert(now))
    }
}
