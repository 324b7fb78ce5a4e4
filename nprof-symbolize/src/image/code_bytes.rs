//! The bytes of an image's code.

use std::borrow::Cow;
use std::io;

use nprof_object::ImageOffset;

use crate::dwarf::Section;

/// The bytes of an image.
pub(crate) trait CodeBytes {
    /// Reads `length` bytes at an offset; fewer where the image ends before that.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn read(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>>;
}

impl CodeBytes for Section {
    fn read(&self, offset: ImageOffset, length: u64) -> io::Result<Vec<u8>> {
        Section::read(self, offset.0, length).map(Cow::into_owned)
    }
}

/// The bytes of an image, or the reason why there are none that are surely its own.
pub(crate) type ImageCode = Result<Box<dyn CodeBytes>, String>;
