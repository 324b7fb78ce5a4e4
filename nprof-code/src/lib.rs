//! The code of functions in a stream, for reports: where a frame is in its function, the function's
//! instructions and source lines.
//!
//! `nprof-symbolize --code` adds the code of functions that have samples. [`CodePlaces`](places::CodePlaces)
//! finds it, [`instructions`](disassembly::instructions) decodes it, [`find`](source::find) reads source files.

pub mod disassembly;
pub mod function;
pub mod places;
pub mod source;
