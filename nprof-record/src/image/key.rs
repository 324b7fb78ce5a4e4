//! Keys of images within the recorder. Pure.

use std::hash::{Hash, Hasher};

/// The index of an image in `image::table`.
pub type ImageIndex = u32;

/// The image of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKey {
    /// A file, or memory without one.
    File(ImageIndex),
    /// A part of the kernel: its own text or a module, by its number.
    Kernel(u32),
    /// A function generated at run time, by its number among those sampled.
    Function(u32),
    /// Code without a name, by the number of its generation.
    Unnamed(u32),
}

impl Hash for ImageKey {
    // One word: a derived implementation hashes the variant by itself, and each frame of each
    // sample is hashed.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (variant, number) = match *self {
            Self::File(number) => (0, number),
            Self::Kernel(number) => (1, number),
            Self::Function(number) => (2, number),
            Self::Unnamed(number) => (3, number),
        };
        state.write_u64(variant << 32 | u64::from(number));
    }
}
