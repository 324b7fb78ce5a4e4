//! The key of one lookup. Pure.

use nprof_object::ImageOffset;

/// An offset in an image of the catalog. Keys are ordered by image, then by offset: lookups in
/// this order open each image once and read the tables of a unit once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LookupKey {
    /// The index of the image in the catalog.
    pub(crate) image: usize,
    /// The offset to look up: of a return address, one byte before it.
    pub(crate) offset: ImageOffset,
    /// True if the stream gets the code there.
    pub(crate) code: bool,
}

impl LookupKey {
    /// Returns the same offset without code.
    pub(crate) fn without_code(self) -> Self {
        Self { code: false, ..self }
    }
}
