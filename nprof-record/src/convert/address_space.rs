//! The executable mappings of one process, kept from the kernel's records. Pure.
//!
//! A later mapping covers earlier ones where they overlap. Perf does not report munmap(2), so memory
//! that was unmapped keeps its last mapping.

use nprof_object::{ImageOffset, RuntimeAddress};

use crate::image::key::ImageIndex;

/// A range of addresses and the image that is mapped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: RuntimeAddress,
    /// The address after the last byte.
    pub(crate) end: RuntimeAddress,
    /// The offset in the image of the byte at `start`.
    pub(crate) offset: ImageOffset,
    pub(crate) image: ImageIndex,
}

/// The executable mappings of a process, sorted and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressSpace(Vec<Mapping>);

impl AddressSpace {
    /// Sets the image of each mapping to that which `image_of` returns for it.
    pub(crate) fn set_images(&mut self, mut image_of: impl FnMut(ImageIndex) -> ImageIndex) {
        self.0.iter_mut().for_each(|mapping| mapping.image = image_of(mapping.image));
    }

    /// Adds a mapping over earlier ones. An empty range maps nothing.
    pub(crate) fn map(&mut self, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        let from = self.0.partition_point(|old| old.end <= new.start);
        let to = self.0.partition_point(|old| old.start < new.end);
        // At most the start of the first and the end of the last covered mapping remain.
        let mut parts = Vec::with_capacity(3);
        if let Some(first) = self.0[from..to].first().filter(|old| old.start < new.start) {
            parts.push(Mapping { end: new.start, ..*first });
        }
        parts.push(new);
        if let Some(last) = self.0[from..to].last().filter(|old| old.end > new.end) {
            let offset = last.offset.wrapping_add(new.end.0 - last.start.0);
            parts.push(Mapping { start: new.end, offset, ..*last });
        }
        self.0.splice(from..to, parts);
    }

    /// Returns the images that are mapped, some more than once.
    pub(crate) fn images(&self) -> impl Iterator<Item = ImageIndex> {
        self.0.iter().map(|mapping| mapping.image)
    }

    /// True if all addresses fit in 32 bits: those of 64-bit programs do not, as the vDSO is higher.
    pub(crate) fn is_32_bit(&self) -> bool {
        self.0.last().is_none_or(|last| last.end.0 <= 1 << 32)
    }

    /// Returns the image at an address, and the offset in it. None if nothing is mapped there.
    pub(crate) fn find(&self, address: RuntimeAddress) -> Option<(ImageIndex, ImageOffset)> {
        let mapping = self.0.get(self.0.partition_point(|mapping| mapping.end <= address))?;
        let at = address.offset_from(mapping.start)?;
        Some((mapping.image, mapping.offset.wrapping_add(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(ranges: &[(u64, u64, u64, u32)]) -> AddressSpace {
        let mut maps = AddressSpace::default();
        for &(start, end, offset, image) in ranges {
            let (start, end) = (RuntimeAddress(start), RuntimeAddress(end));
            maps.map(Mapping { start, end, offset: ImageOffset(offset), image });
        }
        maps
    }

    fn find(maps: &AddressSpace, address: u64) -> Option<(u32, u64)> {
        maps.find(RuntimeAddress(address)).map(|(image, offset)| (image, offset.0))
    }

    #[test]
    fn address_is_found_only_in_its_mapping() {
        let maps =
            maps(&[(0x1000, 0x2000, 0x300, 1), (0x2000, 0x3000, 0, 2), (0x5000, 0x6000, 0, 3)]);
        assert_eq!(find(&maps, 0xfff), None);
        assert_eq!(find(&maps, 0x1000), Some((1, 0x300)));
        assert_eq!(find(&maps, 0x1fff), Some((1, 0x12ff)));
        assert_eq!(find(&maps, 0x2000), Some((2, 0)));
        assert_eq!(find(&maps, 0x3000), None);
        assert_eq!(find(&maps, u64::MAX), None);
    }

    #[test]
    fn later_mapping_covers_earlier_one() {
        let split = maps(&[(0x1000, 0x9000, 0, 1), (0x3000, 0x4000, 0, 2)]);
        assert_eq!(find(&split, 0x2fff), Some((1, 0x1fff)));
        assert_eq!(find(&split, 0x3000), Some((2, 0)));
        assert_eq!(find(&split, 0x4000), Some((1, 0x3000)));
        let covered = maps(&[(1, 5, 0, 1), (7, 9, 0, 2), (12, 20, 0, 3), (3, 15, 0, 4)]);
        assert_eq!(covered, maps(&[(1, 3, 0, 1), (3, 15, 0, 4), (15, 20, 3, 3)]));
    }

    #[test]
    fn program_is_32_bit_without_mapping_beyond_4_gib() {
        let libraries = (0xf000_0000, 1 << 32, 0, 1);
        assert!(maps(&[libraries]).is_32_bit());
        assert!(!maps(&[(0x7fff_0000_0000, 0x7fff_0000_2000, 0, 2), libraries]).is_32_bit());
    }

    #[test]
    fn empty_and_inverted_ranges_map_nothing() {
        assert_eq!(maps(&[(5, 5, 0, 1), (9, 2, 0, 1)]), AddressSpace::default());
    }
}
