//! The places of addresses in profiles that have the text of /proc/self/maps.

use std::io::Write;

use nprof_object::maps::{Mapping, mappings};
use nprof_object::path::without_deleted;
use nprof_stream::Mark;
use rustc_hash::FxHashMap;

use crate::output::{ImageDef, Output, Place};

/// The executable files of a process.
pub(super) struct MappedFiles<'a> {
    /// By address, each with the number of its image after its first place.
    maps: Vec<(Mapping<'a>, Option<u32>)>,
    program: Vec<u8>,
    /// The numbers of images, by path.
    images: FxHashMap<Vec<u8>, u32>,
}

impl<'a> MappedFiles<'a> {
    /// Reads the text of /proc/self/maps.
    pub(super) fn parse(text: &'a [u8]) -> Self {
        let mut maps: Vec<Mapping<'a>> = mappings(text).collect();
        // Addresses of samples are code; anonymous memory has no name.
        maps.retain(|mapping| mapping.is_executable() && !mapping.path.is_empty());
        let program = maps.first().map_or(Vec::new(), |mapping| path_of(mapping).to_vec());
        maps.sort_by_key(|mapping| mapping.start);
        let maps = maps.into_iter().map(|mapping| (mapping, None)).collect();
        Self { maps, program, images: FxHashMap::default() }
    }

    /// Returns the path of the program, which is mapped first. Empty if the text has no mappings.
    pub(super) fn program(&self) -> &[u8] {
        &self.program
    }

    /// Returns the place of an address.
    pub(super) fn place<W: Write>(
        &mut self,
        address: u64,
        return_address: bool,
        output: &mut Output<W>,
    ) -> Place {
        // The call before a return address may be the last instruction of a mapping.
        let after_call = u64::from(return_address && address > 0);
        let call = address - after_call;
        let next = self.maps.partition_point(|(mapping, _)| mapping.start.0 <= call);
        let found = next.checked_sub(1).map(|index| &mut self.maps[index]);
        let Some((mapping, image)) = found.filter(|(mapping, _)| call < mapping.end.0) else {
            return Place { offset: address, return_address, ..Place::mark(Mark::None) };
        };
        // A look-up by path for each place would take long if the path does.
        let image = *image.get_or_insert_with(|| {
            let path = path_of(mapping).to_vec();
            let new = || output.image(ImageDef::file(Vec::new(), path.clone()));
            *self.images.entry(path.clone()).or_insert_with(new)
        });
        let offset = mapping.offset.0.wrapping_add(address - mapping.start.0);
        Place { return_address, ..Place::in_image(image, offset) }
    }
}

/// Returns the path of a mapped file.
fn path_of<'a>(mapping: &'a Mapping<'_>) -> &'a [u8] {
    without_deleted(&mapping.path)
}
