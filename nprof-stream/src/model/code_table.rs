//! The code of the current epoch, by image and offset.

use std::collections::BTreeMap;

use crate::record::code_rows::CodeRows;
use crate::record::{Code, ImageId};

/// The code of a function, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeEntry {
    /// The offset of the first byte in its image.
    pub offset: u64,
    /// The architecture of the instructions.
    pub arch: Box<[u8]>,
    /// The bytes.
    pub bytes: Box<[u8]>,
    rows: Box<[u8]>,
    callees: Box<[u8]>,
}

impl CodeEntry {
    /// Returns the functions and lines of the instructions.
    pub fn rows(&self) -> CodeRows<'_> {
        CodeRows::from_encoded(&self.rows).unwrap_or_default()
    }

    /// Returns the functions to which the instructions jump or which they call.
    pub fn callees(&self) -> CodeRows<'_> {
        CodeRows::from_encoded(&self.callees).unwrap_or_default()
    }

    /// Returns the distance of an offset from the first byte. None unless the code has the byte there.
    fn distance(&self, offset: u64) -> Option<u64> {
        offset.checked_sub(self.offset).filter(|&distance| distance < self.bytes.len() as u64)
    }
}

/// Code by image and offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeTable(BTreeMap<(ImageId, u64), CodeEntry>);

impl CodeTable {
    /// Returns the memory that a record takes.
    pub(crate) fn growth(code: &Code<'_>) -> usize {
        let lists = code.rows.encoded().len() + code.callees.encoded().len();
        size_of::<((ImageId, u64), CodeEntry)>() * 2 + code.arch.len() + code.bytes.len() + lists
    }

    /// Adds code of an image. A later record replaces an earlier one.
    pub(crate) fn insert(&mut self, image: ImageId, code: &Code<'_>) {
        let entry = CodeEntry {
            offset: code.offset,
            arch: code.arch.into(),
            bytes: code.bytes.into(),
            rows: code.rows.encoded().into(),
            callees: code.callees.encoded().into(),
        };
        self.0.insert((image, code.offset), entry);
    }

    /// Returns the code with the byte at an offset: the one that begins last.
    pub(crate) fn at(&self, image: ImageId, offset: u64) -> Option<&CodeEntry> {
        let (_, entry) = self.0.range((image, 0)..=(image, offset)).next_back()?;
        entry.distance(offset).map(|_| entry)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
