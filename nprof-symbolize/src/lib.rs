//! nprof-symbolize: gives the frames of an nprof stream their functions, files, lines and
//! inlined calls.
//!
//! Reads one stream and writes the same stream, annotated:
//!
//! ```text
//! nprof-record -o - -- ./prog | nprof-symbolize | nprof-flat
//! ```

mod cli;
mod dwarf;
mod elf;
mod find;
mod go;
mod image;
mod lookup;
mod names;
mod stats;
mod stream;

pub use cli::main;
pub use image::in_memory;
