//! The places of a recording that is a file: read ahead, and resolved image by image in the order
//! of their addresses, so that the debug information of each unit is read once however large it is.

use std::io::Read;

use nprof_stream::{Location, Pass, Reader, Record, Step};

use crate::image::opened::Place;
use crate::lookup::image_catalog::ImageCatalog;
use crate::lookup::parallel::LookupThreads;
use crate::stream::existing_names::ExistingAnnotations;
use crate::stream::frame_queue::FrameQueue;
use crate::stream::frame_sites::{FrameImages, FrameTarget};

/// How much of a recording is read ahead, bytes: what is behind it is resolved as it comes.
const AHEAD: u64 = 32 << 20;

/// Resolves the places of a recording in `catalog`, which keeps what they are called. Names are
/// given as `step` says; `crew` is made for the processes that were seen.
pub(crate) fn resolve(
    input: impl Read,
    catalog: &mut ImageCatalog,
    step: &Step,
    crew: impl FnOnce(Vec<u32>) -> LookupThreads,
) {
    let mut reader = Reader::new(input.take(AHEAD));
    let places = places(&mut reader, catalog, step);
    let crew = crew(catalog.finder.living.pids());
    catalog.resolve_all(&places, &crew);
}

/// The places of a stream that are to be looked up, by image and address. What cannot be read ends
/// it.
fn places<R: Read>(
    reader: &mut Reader<R>,
    catalog: &mut ImageCatalog,
    step: &Step,
) -> Vec<(usize, Place)> {
    let (sites, earlier) = (FrameImages::default(), ExistingAnnotations::new(step.clone()));
    let (waiting, places) = (FrameQueue::default(), Vec::new());
    let mut ahead = ReadAhead { catalog, sites, earlier, waiting, places };
    while let Ok(Some(record)) = reader.next() {
        let pass = ahead.take(&record);
        let latest = reader.pass_over(pass, |record| ahead.take(record));
        ahead.sites.advance(latest);
    }
    ahead.flush_pending_frames();
    let mut places = ahead.places;
    places.sort_unstable_by_key(|&(slot, place)| (slot, place.offset, place.return_address));
    places.dedup();
    places
}

/// What is read ahead.
struct ReadAhead<'a> {
    catalog: &'a mut ImageCatalog,
    sites: FrameImages,
    earlier: ExistingAnnotations,
    /// Frames of which the input may yet say where they are; `None` once it has.
    waiting: FrameQueue<Option<(usize, Place)>>,
    /// The places to look up.
    places: Vec<(usize, Place)>,
}

impl ReadAhead<'_> {
    /// Takes note of a record.
    fn take(&mut self, record: &Record<'_>) -> Pass {
        match record {
            Record::Frame(frame) => {
                if let Some(FrameTarget::Place(slot, place)) = self.sites.of(frame) {
                    self.waiting.push(frame.id, Some((slot, place)));
                }
            }
            Record::Location(location) => self.locate(location),
            record => {
                self.sites.note(record, self.catalog);
                self.earlier.note(record);
                if !record.is_annotation() {
                    self.flush_pending_frames();
                }
            }
        }
        if self.waiting.is_empty() { Pass::On } else { Pass::Hold }
    }

    fn locate(&mut self, location: &Location<'_>) {
        let worth = self.earlier.worth(location);
        if let Some(site) = self.waiting.get_mut(location.frame)
            && let Some((slot, _)) = *site
            && self.catalog.can_reuse(slot, worth)
        {
            *site = None;
            if self.waiting.first(location.frame).is_some_and(Option::is_none) {
                self.waiting.take_first();
            }
        }
    }

    fn flush_pending_frames(&mut self) {
        self.places.extend(self.waiting.drain().filter_map(|(_, site)| site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::detail::Detail;
    use crate::find::{Finder, SearchPaths};

    #[test]
    fn places_come_by_image_and_address_over_all_epochs() {
        let text = "@nprof\t1.1\trun=0x1\nI\t1\telf\t0a\t/a\nI\t2\telf\t0b\t/b\nI\t3\tjit\t-\tf\n\
                    F\t1\t2\t0x9\tu\nF\t2\t1\t0x7\tu\nF\t3\t1\t0x7\tu,ra\nF\t4\t3\t0x1\tu\n\
                    F\t5\t0\t0x0\tu,stack-truncated\n\
                    @epoch\tnumber=1\nI\t1\telf\t0b\t/b\nF\t1\t1\t0x5\tu\nF\t2\t1\t0x9\tu\n";
        let detail = Detail { inlines: true, lines: true, debug: true };
        let mut catalog = ImageCatalog::new(Finder::new(SearchPaths::default(), detail).into());
        let places = places(&mut Reader::new(text.as_bytes()), &mut catalog, &Step::default());
        let place = |slot, offset, return_address| (slot, Place { offset, return_address });
        let expected =
            [place(0, 7, false), place(0, 7, true), place(1, 5, false), place(1, 9, false)];
        assert_eq!(places, expected);
    }
}
