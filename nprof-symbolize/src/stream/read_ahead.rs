//! The lookups of a recording in a file: collected before the first record is written, and run
//! image by image in the order of addresses. The debug information of each unit is read once,
//! however large it is.

use std::io::Read;

use nprof_stream::{Location, Passthrough, Reader, Record, Step};

use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::lookup_key::LookupKey;
use crate::lookup::parallel::LookupThreads;
use crate::stream::existing_annotations::ExistingAnnotations;
use crate::stream::frame_queue::FrameQueue;
use crate::stream::frame_targets::{FrameImages, FrameTarget};

/// The bytes of a recording that are read ahead. Later frames are looked up as they come.
const MAX_BYTES: u64 = 32 << 20;

/// Looks up the offsets of a recording, so that `catalog` has their names. `step` describes the
/// names of this run; `has_code` requests the code of functions with samples; `open_threads` gets the processes of the recording.
pub(crate) fn resolve(
    input: impl Read,
    catalog: &mut ImageCatalog,
    step: &Step,
    has_code: bool,
    open_threads: impl FnOnce(Vec<u32>) -> LookupThreads,
) {
    let mut reader = Reader::new(input.take(MAX_BYTES));
    let keys = lookup_keys(&mut reader, catalog, step, has_code);
    // The processes are known only now.
    let threads = open_threads(catalog.finder.live_processes.pids());
    catalog.resolve_all(&keys, &threads);
}

/// Returns the lookups of a stream, sorted, up to the first error.
fn lookup_keys<R: Read>(
    reader: &mut Reader<R>,
    catalog: &mut ImageCatalog,
    step: &Step,
    has_code: bool,
) -> Vec<LookupKey> {
    let mut ahead = ReadAhead {
        catalog,
        images: FrameImages::new(has_code),
        annotations: ExistingAnnotations::new(step.clone()),
        queue: FrameQueue::default(),
        keys: Vec::new(),
    };
    while let Ok(Some(record)) = reader.next() {
        let pass = ahead.take(&record);
        let latest_ns = reader.skip_records(pass, |record| ahead.take(record));
        ahead.images.advance(latest_ns);
    }
    ahead.flush_queue();
    let mut keys = ahead.keys;
    // By image and offset: units are read in order.
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The state of reading ahead.
struct ReadAhead<'a> {
    catalog: &'a mut ImageCatalog,
    images: FrameImages,
    annotations: ExistingAnnotations,
    /// Frames that may have a location in the input; None after one that replaces the lookup.
    queue: FrameQueue<Option<LookupKey>>,
    keys: Vec<LookupKey>,
}

impl ReadAhead<'_> {
    /// Notes a record; returns which records may be skipped next.
    fn take(&mut self, record: &Record<'_>) -> Passthrough {
        match record {
            Record::Frame(frame) => {
                if let Some(FrameTarget::Lookup(key)) = self.images.target_of(frame) {
                    self.queue.push(frame.id, Some(key));
                }
            }
            Record::Location(location) => self.reuse(location),
            record => {
                self.images.note(record, self.catalog);
                self.annotations.note(record);
                if !record.is_annotation() {
                    self.flush_queue();
                }
            }
        }
        if self.queue.is_empty() { Passthrough::Forward } else { Passthrough::ForwardAlone }
    }

    /// Drops the lookup of a frame if its location in the input replaces it.
    fn reuse(&mut self, location: &Location<'_>) {
        let reuse = self.annotations.reuse(location);
        if let Some(waiting) = self.queue.get_mut(location.frame)
            && let Some(key) = *waiting
            && self.catalog.can_reuse(key.image, reuse)
        {
            *waiting = None;
            if self.queue.first(location.frame).is_some_and(Option::is_none) {
                self.queue.take_first();
            }
        }
    }

    /// Collects the lookups of the queued frames: none of their locations can follow.
    fn flush_queue(&mut self) {
        self.keys.extend(self.queue.drain().filter_map(|(_, key)| key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::{Finder, SearchPaths};
    use nprof_object::ImageOffset;

    #[test]
    fn lookups_are_sorted_by_image_and_offset_over_all_epochs() {
        let text = "@nprof\t1.1\trun=0x1\nI\t1\telf\t0a\t/a\nI\t2\telf\t0b\t/b\nI\t3\tjit\t-\tf\n\
                    F\t1\t2\t0x9\tu\nF\t2\t1\t0x7\tu\nF\t3\t1\t0x7\tu,ra\nF\t4\t3\t0x1\tu\n\
                    F\t5\t0\t0x0\tu,stack-truncated\n\
                    @epoch\tnumber=1\nI\t1\telf\t0b\t/b\nF\t1\t1\t0x5\tu\nF\t2\t1\t0x9\tu\n";
        let detail = Detail { inlines: true, lines: true, debug: true };
        let finder = Finder::new(SearchPaths::default(), detail);
        let mut catalog = ImageCatalog::new(finder.into());
        let mut reader = Reader::new(text.as_bytes());
        let keys = lookup_keys(&mut reader, &mut catalog, &Step::default(), false);
        let key = |image, offset| LookupKey { image, offset: ImageOffset(offset), code: false };
        // The return address is looked up one byte before it.
        assert_eq!(keys, [key(0, 6), key(0, 7), key(1, 5), key(1, 9)]);
    }
}
