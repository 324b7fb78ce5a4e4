//! The code of functions generated at run time that have samples. It is read at the first sample of a
//! function in an epoch, since it may be overwritten later, and written once. Pure.

use std::rc::Rc;

use nprof_stream::{Code, CodeRow, CodeRows, Extras, FrameId, FunctionId, Line, Record};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::convert::dictionary::Sink;
use crate::image::key::ImageKey;

/// The most code that is kept, and that is written, in an epoch, in bytes.
const BYTES_MAX: usize = 64 << 20;

/// The code of functions, by their number among those sampled.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCode {
    /// None if it could not be read.
    codes: FxHashMap<u32, Option<Rc<[u8]>>>,
    bytes: usize,
    /// The code that the epoch has: functions, and the images of their frames.
    written: FxHashSet<(u32, ImageKey)>,
    written_bytes: usize,
    /// The frames that samples are in: no callers.
    sampled: FxHashSet<FrameId>,
    /// True if an epoch has begun: the code read before is dropped at the next stack.
    is_stale: bool,
}

impl GeneratedCode {
    /// Begins a new stack.
    pub(super) fn begin_stack(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.codes.clear();
            self.bytes = 0;
        }
    }

    /// Begins a new epoch, to which the current stack already belongs.
    pub(super) fn begin_epoch(&mut self) {
        self.written.clear();
        self.written_bytes = 0;
        self.sampled.clear();
        self.is_stale = true;
    }

    /// Keeps the code of a function. At the first call for it, `read` returns the code.
    pub(super) fn keep(&mut self, function: u32, read: impl FnOnce() -> Option<Vec<u8>>) {
        let bytes = &mut self.bytes;
        self.codes.entry(function).or_insert_with(|| {
            if *bytes >= BYTES_MAX {
                return None;
            }
            let code = read()?;
            *bytes += code.len();
            Some(code.into())
        });
    }

    /// Returns the code of a function, once in an epoch for each image of its frames.
    pub(super) fn take_unwritten(&mut self, function: u32, image: ImageKey) -> Option<Rc<[u8]>> {
        let code = self.codes.get(&function)?.clone()?;
        if self.written_bytes >= BYTES_MAX || !self.written.insert((function, image)) {
            return None;
        }
        self.written_bytes += code.len();
        Some(code)
    }

    /// Adds a frame that a sample is in.
    pub(super) fn add_sampled(&mut self, frame: FrameId) {
        self.sampled.insert(frame);
    }

    /// True if a sample of the epoch is in a frame.
    pub(super) fn is_sampled(&self, frame: FrameId) -> bool {
        self.sampled.contains(&frame)
    }
}

/// Writes the code of a function that begins at an offset in the image of a frame.
pub(super) fn write(
    frame: FrameId,
    offset: u64,
    bytes: &[u8],
    function: FunctionId,
    sink: &mut impl Sink,
) {
    let mut rows = Vec::new();
    let line = Line { function, ..Line::default() };
    CodeRows::encode(&[CodeRow { offset: 0, line }], &mut rows);
    sink.take(&Record::Code(Code {
        frame,
        offset,
        arch: std::env::consts::ARCH.as_bytes(),
        bytes,
        rows: CodeRows::from_encoded(&rows).unwrap_or_default(),
        callees: CodeRows::NONE,
        extras: Extras::NONE,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_read_once_and_written_once_in_an_epoch_and_image() {
        let mut code = GeneratedCode::default();
        code.keep(1, || Some(vec![0x90]));
        code.keep(1, || panic!("it was read"));
        code.keep(2, || None);
        let (one, other) = (ImageKey::Function(1), ImageKey::File(7));
        assert_eq!(code.take_unwritten(1, one).as_deref(), Some(&[0x90][..]));
        assert_eq!(code.take_unwritten(1, one), None);
        assert!(code.take_unwritten(1, other).is_some());
        assert_eq!((code.take_unwritten(2, one), code.take_unwritten(3, one)), (None, None));
        code.begin_epoch();
        // The stack that began the epoch has its code in it.
        assert!(code.take_unwritten(1, one).is_some());
        code.begin_stack();
        code.keep(1, || Some(vec![0xcc]));
        assert_eq!(code.take_unwritten(1, other).as_deref(), Some(&[0xcc][..]));
    }

    #[test]
    fn memory_of_code_is_bounded_in_an_epoch() {
        let mut code = GeneratedCode::default();
        code.keep(1, || Some(vec![0; BYTES_MAX]));
        code.keep(2, || panic!("there is no room"));
        assert!(code.take_unwritten(2, ImageKey::Function(2)).is_none());
        // The images of frames without names are many.
        let images = (0..9).map(ImageKey::Unnamed);
        assert_eq!(images.filter_map(|image| code.take_unwritten(1, image)).count(), 1);
        code.begin_epoch();
        code.begin_stack();
        code.keep(2, || Some(vec![0x90]));
        assert!(code.take_unwritten(2, ImageKey::Function(2)).is_some());
    }
}
