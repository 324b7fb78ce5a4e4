//! The functions with code of any number of streams, and the places of frames in them.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use nprof_stream::escape::escaped;
use nprof_stream::tables::{FrameEntry, Tables};
use nprof_stream::{CodeEntry, EpochCache, FrameId};
use rustc_hash::{FxHashMap, FxHasher};

use crate::function::Function;

/// The most memory of code, lines and their names.
const MAX_BYTES: usize = 96 << 20;

/// The place of a frame in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePlace {
    /// Index into [`CodePlaces::functions`].
    pub function: usize,
    /// The distance from the function's first byte; of a return address, that of the last byte of the call.
    pub offset: u32,
}

/// Properties that make code the same in several epochs and streams: image, start, and contents.
type CodeKey = (Arc<str>, Box<[u8]>, u64, u64);

/// Finds the code of frames. Memory is bounded: code beyond `MAX_BYTES` has no place.
#[derive(Clone, Debug, Default)]
pub struct CodePlaces {
    functions: Vec<Arc<Function>>,
    by_code: FxHashMap<CodeKey, usize>,
    bytes: usize,
    /// True if a function did not fit.
    is_full: bool,
    places: EpochCache<FrameId, FramePlace>,
}

impl CodePlaces {
    /// Returns the functions found so far.
    pub fn functions(&self) -> &[Arc<Function>] {
        &self.functions
    }

    /// Returns the place of a frame. None if the stream has no code there.
    pub fn place(&mut self, tables: &Tables, id: FrameId) -> Option<FramePlace> {
        if let Some(place) = self.places.get(tables, &id) {
            return Some(place);
        }
        // Frames without code are not cached: in a live stream it may come later.
        let frame = tables.frame(id)?;
        // A return address is the end of the call.
        let offset = frame.offset.checked_sub(u64::from(frame.return_address))?;
        let code = tables.code(frame.image, offset)?;
        let function = self.function(tables, frame, code)?;
        // Fits: the code of a record has at most 64 KiB.
        let offset = u32::try_from(offset - code.offset).ok()?;
        let place = FramePlace { function, offset };
        self.places.insert(id, place);
        Some(place)
    }

    /// Returns the index of the function of code, added if it is new. None if there is no memory for it.
    fn function(&mut self, tables: &Tables, frame: &FrameEntry, code: &CodeEntry) -> Option<usize> {
        let image = tables.image(frame.image);
        let path = image.map_or(&b""[..], |image| tables.names.get(image.path));
        let build_id = image.map_or(Box::default(), |image| image.build_id.clone());
        let hasher = BuildHasherDefault::<FxHasher>::default();
        // Without a build ID, or in a kernel that patches itself, code may change between two runs.
        let contents = hasher.hash_one((&code.bytes, code.rows().encoded().len()));
        let key: CodeKey = (escaped(path).into(), build_id, code.offset, contents);
        if let Some(&index) = self.by_code.get(&key) {
            return Some(index);
        }
        // Reading code for each of its samples would take more time than all other work.
        if self.is_full {
            return None;
        }
        let function = Function::new(tables, frame, code);
        // Each epoch repeats the code, which counts once. The key has the path once more.
        let bytes = function.size() + size_of::<CodeKey>() + key.0.len() + key.1.len();
        if self.bytes + bytes > MAX_BYTES {
            self.is_full = true;
            return None;
        }
        self.bytes += bytes;
        self.functions.push(Arc::new(function));
        self.by_code.insert(key, self.functions.len() - 1);
        Some(self.functions.len() - 1)
    }
}
