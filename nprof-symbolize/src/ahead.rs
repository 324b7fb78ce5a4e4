//! The places of a recording that is a file: read ahead, and resolved image by image in the order
//! of their addresses, so that the debug information of each unit is read once however large it is.

use std::io::Read;

use nprof_format::{Reader, Record};

use crate::catalog::Catalog;
use crate::resolve::Place;
use crate::sites::{Site, Sites};

/// How much of a recording is read ahead, bytes: what is behind it is resolved as it comes.
const AHEAD: u64 = 32 << 20;

/// Resolves the places of a recording in `catalog`, which keeps what they are called.
pub(crate) fn resolve(input: impl Read, catalog: &mut Catalog) {
    let mut reader = Reader::new(input.take(AHEAD));
    let places = places(&mut reader, catalog);
    catalog.resolve_all(places);
}

/// The places of a stream by image and address. What cannot be read ends it.
fn places<R: Read>(reader: &mut Reader<R>, catalog: &mut Catalog) -> Vec<(usize, Place)> {
    let mut sites = Sites::default();
    let mut places = Vec::new();
    while let Ok(Some(record)) = reader.next() {
        sites.note(&record, catalog);
        if let Record::Frame(frame) = record
            && let Some(Site::Place(slot, place)) = sites.of(&frame)
        {
            places.push((slot, place));
        }
    }
    places.sort_unstable_by_key(|&(slot, place)| (slot, place.offset, place.return_address));
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{Finder, Places};
    use crate::resolve::Detail;

    #[test]
    fn places_come_by_image_and_address_over_all_epochs() {
        let text = "@nprof\t1.0\trun=0x1\nI\t1\telf\t0a\t/a\nI\t2\telf\t0b\t/b\nI\t3\tjit\t-\tf\n\
                    F\t1\t2\t0x9\tu\nF\t2\t1\t0x7\tu\nF\t3\t1\t0x7\tu,ra\nF\t4\t3\t0x1\tu\n\
                    F\t5\t0\t0x0\tu,copy\n\
                    @epoch\tnumber=1\nI\t1\telf\t0b\t/b\nF\t1\t1\t0x5\tu\nF\t2\t1\t0x9\tu\n";
        let detail = Detail { inlines: true, lines: true, debug: true };
        let mut catalog = Catalog::new(Finder::new(Places::default(), detail).into());
        let places = places(&mut Reader::new(text.as_bytes()), &mut catalog);
        let place = |slot, offset, return_address| (slot, Place { offset, return_address });
        let expected =
            [place(0, 7, false), place(0, 7, true), place(1, 5, false), place(1, 9, false)];
        assert_eq!(places, expected);
    }
}
