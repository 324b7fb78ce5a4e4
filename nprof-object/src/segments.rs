//! The loaded segments of an ELF file: the one rule for mapping file offsets to image addresses.

use crate::address::{FileOffset, ImageAddress};

/// A part of a file that is loaded into memory (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The offset of its first byte in the file.
    pub offset: FileOffset,
    /// The bytes it has in the file.
    pub size: u64,
    /// The image address of its first byte.
    pub address: ImageAddress,
    /// True if its memory may be executed.
    pub executable: bool,
}

/// The loaded segments of a file, in the order of the program headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Returns the image address of a file offset. None if no segment holds that byte.
    ///
    /// The segment that holds the very byte decides. Linkers lay segments out so that their
    /// page-rounded ranges overlap in the file, and post-link optimizers add executable segments
    /// with other distances: no single distance is right for a whole mapping. Where segments share
    /// a byte, the executable one wins: its address is the one that was executed.
    #[inline]
    pub fn image_address(&self, offset: FileOffset) -> Option<ImageAddress> {
        let (segment, at) =
            self.find(|segment| Some((segment, offset.offset_from(segment.offset)?)))?;
        // A hostile file may place a segment at the end of the address space.
        segment.address.checked_add(at)
    }

    /// Returns the file offset of an image address, by the rule of [`Segments::image_address`], and
    /// the bytes from there to the segment's end. None if no segment holds that byte.
    #[inline]
    pub fn file_offset(&self, address: ImageAddress) -> Option<(FileOffset, u64)> {
        let (segment, at) =
            self.find(|segment| Some((segment, address.offset_from(segment.address)?)))?;
        Some((segment.offset.checked_add(at)?, segment.size - at))
    }

    /// Returns the first executable segment for which the byte `at` lies within it, or else the
    /// first of all.
    fn find<'a>(
        &'a self,
        at: impl Fn(&'a Segment) -> Option<(&'a Segment, u64)>,
    ) -> Option<(&'a Segment, u64)> {
        let within = |segment| at(segment).filter(|&(segment, at)| at < segment.size);
        // Two passes instead of a sorted index: files have a handful of loaded segments.
        let code = self.0.iter().filter(|segment| segment.executable).find_map(within);
        code.or_else(|| self.0.iter().find_map(within))
    }

    /// Returns the segments.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// Returns only the executable segments: an offset of data then has no address.
    pub fn executable(&self) -> Self {
        self.iter().filter(|segment| segment.executable).copied().collect()
    }

    /// True if there is no segment.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Segment> for Segments {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(list: &[(u64, u64, u64, bool)]) -> Segments {
        let segment = |&(offset, size, address, executable): &(u64, u64, u64, bool)| Segment {
            offset: FileOffset(offset),
            size,
            address: ImageAddress(address),
            executable,
        };
        list.iter().map(segment).collect()
    }

    #[test]
    fn executable_segment_wins_where_segments_share_a_page() {
        let all = segments(&[
            (0, 0x2000, 0x40_0000, false),
            (0x1000, 0x1000, 0x50_1000, true),
            (0x2000, 0x10, 0x60_2000, false),
        ]);
        let address = |offset| all.image_address(FileOffset(offset)).map(|address| address.0);
        assert_eq!(address(0x1800), Some(0x50_1800));
        assert_eq!(address(0x800), Some(0x40_0800));
        assert_eq!(address(0x200f), Some(0x60_200f));
        assert_eq!(address(0x2010), None);
        assert_eq!(all.executable().image_address(FileOffset(0x800)), None);
    }

    #[test]
    fn each_executable_segment_has_its_own_distance() {
        let code = segments(&[(0x1000, 0x900, 0x40_1000, true), (0x1900, 0x500, 0x80_0900, true)]);
        let address = |offset| code.image_address(FileOffset(offset)).map(|address| address.0);
        assert_eq!(address(0x18ff), Some(0x40_18ff));
        assert_eq!(address(0x1900), Some(0x80_0900));
        assert_eq!(address(0xfff), None);
        assert_eq!(address(0x1e00), None);
        let offset = |address| code.file_offset(ImageAddress(address));
        assert_eq!(offset(0x40_18ff), Some((FileOffset(0x18ff), 1)));
        assert_eq!(offset(0x80_0900), Some((FileOffset(0x1900), 0x500)));
        assert_eq!(offset(0x80_0e00), None);
    }

    #[test]
    fn addresses_that_overflow_are_none() {
        let wild = segments(&[(0, u64::MAX, u64::MAX - 4, true)]);
        assert_eq!(wild.image_address(FileOffset(4)), Some(ImageAddress(u64::MAX)));
        assert_eq!(wild.image_address(FileOffset(5)), None);
    }
}
