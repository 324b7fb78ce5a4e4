//! The targets of frames: the images of the current epoch by their ids.

use nprof_object::ImageOffset;
use nprof_stream::{Frame, Image, ImageId, ImageKind, Mark, Record, Status};
use rustc_hash::FxHashMap;

use crate::find::RecordedImage;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::lookup_key::LookupKey;
use crate::stream::wall_clock::WallClock;

/// The source of a frame's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameTarget {
    /// A lookup.
    Lookup(LookupKey),
    /// The function of this number in the catalog's names: the only one of a generated image.
    Function(u32),
    /// None: nothing at this address can have a name.
    Unnamed(Status),
    /// None: memory without a file, of the image of this index in the catalog.
    Anonymous(usize),
}

/// The target of all frames in an image.
#[derive(Clone, Copy, Debug)]
enum ImageTarget {
    /// The image of this index in the catalog.
    Image(usize),
    Function(u32),
    Unnamed(Status),
    Anonymous(usize),
}

/// The images of the current epoch.
#[derive(Default)]
pub(crate) struct FrameImages {
    /// True if the stream gets the code of functions with samples.
    has_code: bool,
    /// True if an event has its samples at calls, as those of the preloaded library.
    has_samples_at_calls: bool,
    clock: WallClock,
    /// The first time each image without a build ID was seen, in ns since 1970.
    seen_ns: FxHashMap<Box<[u8]>, u64>,
    images: FxHashMap<ImageId, ImageTarget>,
}

impl FrameImages {
    /// Starts without images; with `has_code`, the stream gets the code of functions with samples.
    pub(crate) fn new(has_code: bool) -> Self {
        Self { has_code, ..Self::default() }
    }

    /// Notes a record.
    pub(crate) fn note(&mut self, record: &Record<'_>, catalog: &mut ImageCatalog) {
        self.clock.note(record);
        match record {
            Record::Head(_) => {
                self.images.clear();
                self.has_samples_at_calls = false;
                // A new segment has its own clock.
                self.seen_ns.clear();
            }
            Record::Event(event) => self.has_samples_at_calls |= event.capture == b"preload",
            Record::Epoch(_) => self.images.clear(),
            Record::Image(image) => self.add(image, catalog),
            Record::Task(task) if task.pid == task.tid => catalog.note_process(task.pid),
            _ => {}
        }
    }

    /// Notes the time of records that were passed over.
    pub(crate) fn advance(&mut self, time_ns: u64) {
        self.clock.advance(time_ns);
    }

    /// Returns the target of a frame. None for a mark, which represents missing frames.
    pub(crate) fn target_of(&self, frame: &Frame<'_>) -> Option<FrameTarget> {
        if frame.mark != Mark::None {
            return None;
        }
        Some(match self.images.get(&frame.image) {
            Some(&ImageTarget::Image(image)) => {
                // A sample was taken at the address of a frame, unless that is a return address; at a
                // return address if it is of the call of an allocator.
                let is_sampled = !frame.return_address || self.has_samples_at_calls;
                let code = self.has_code && is_sampled;
                FrameTarget::Lookup(LookupKey { image, offset: lookup_offset(frame), code })
            }
            Some(&ImageTarget::Function(function)) => FrameTarget::Function(function),
            Some(&ImageTarget::Unnamed(status)) => FrameTarget::Unnamed(status),
            Some(&ImageTarget::Anonymous(image)) => FrameTarget::Anonymous(image),
            None if frame.image.is_none() => FrameTarget::Unnamed(Status::Anonymous),
            // The record of the image was lost to damage.
            None => FrameTarget::Unnamed(Status::NoImage),
        })
    }

    fn add(&mut self, image: &Image<'_>, catalog: &mut ImageCatalog) {
        let target = match image.kind {
            ImageKind::Elf | ImageKind::Kernel | ImageKind::Module | ImageKind::Vdso => {
                let recorded = RecordedImage::of_record(image, self.first_seen_ns(image));
                ImageTarget::Image(catalog.index_of(recorded))
            }
            // The recorder named the function, since its code is in no file.
            ImageKind::Jit if !image.path.is_empty() => {
                ImageTarget::Function(catalog.names.unmangled(image.path))
            }
            // The images of all processes and times are one in the statistics.
            ImageKind::Anonymous => ImageTarget::Anonymous(catalog.index_of(RecordedImage {
                path: image.path.into(),
                ..RecordedImage::new(ImageKind::Anonymous)
            })),
            ImageKind::Jit => ImageTarget::Unnamed(Status::Anonymous),
            // A kind of a later format version.
            ImageKind::Other(_) => ImageTarget::Unnamed(Status::NoImage),
        };
        self.images.insert(image.id, target);
    }

    /// Returns the first time an image without a build ID was seen in the segment.
    fn first_seen_ns(&mut self, image: &Image<'_>) -> Option<u64> {
        // A build ID identifies the file better than a time.
        let needs_time = image.kind == ImageKind::Elf && image.build_id.is_empty();
        let now_ns = self.clock.utc_ns().filter(|_| needs_time)?;
        // The image record repeats in every epoch; the first time counts.
        Some(*self.seen_ns.entry(image.path.into()).or_insert(now_ns))
    }
}

/// Returns the offset to look up for a frame: one byte before a return address. A call may be the
/// last instruction of its function, and its return address then lies in the next function.
fn lookup_offset(frame: &Frame<'_>) -> ImageOffset {
    ImageOffset(frame.offset.saturating_sub(u64::from(frame.return_address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nprof_stream::{Extras, FrameId};

    #[test]
    fn return_address_is_looked_up_inside_the_call() {
        let frame = Frame {
            id: FrameId(1),
            image: ImageId(1),
            offset: 16,
            return_address: true,
            mark: Mark::None,
            kernel: false,
            extras: Extras::NONE,
        };
        assert_eq!(lookup_offset(&frame), ImageOffset(15));
        assert_eq!(lookup_offset(&Frame { return_address: false, ..frame }), ImageOffset(16));
        assert_eq!(lookup_offset(&Frame { offset: 0, ..frame }), ImageOffset(0));
    }
}
