//! Imports a recording of the format that its beginning shows.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::PathBuf;

use nprof_stream::{Step, Writer};

use crate::perf::{self, Imported};
use crate::profiles;
use crate::unwind::ImageFiles;

/// Records are small; the system call for each would take most of the time.
const BUFFER: usize = 1 << 18;

/// The bytes that show the format: some lines of folded stacks.
const START: u64 = 1 << 16;

/// Imports one recording, which messages and folded stacks call `name`, as one segment. `file` is the
/// same input, for the facts at its end. `symfs` is the root of the recorded system, if it is another one.
///
/// # Errors
///
/// If nothing can be imported, or the output fails.
pub(crate) fn import<W: Write>(
    input: impl Read,
    name: &str,
    file: Option<&File>,
    symfs: Option<PathBuf>,
    step: Step,
    writer: Writer<W>,
) -> anyhow::Result<(Imported, Writer<W>)> {
    let mut input = BufReader::with_capacity(BUFFER, input);
    let mut start = Vec::new();
    input.by_ref().take(START).read_to_end(&mut start)?;
    let mut input = start.as_slice().chain(input);
    if start.starts_with(perf::MAGIC) || start.starts_with(b"2ELIFREP") {
        return perf::import(input, file, ImageFiles::new(symfs), step, writer).map_err(|error| {
            match error {
                // Transparent errors hide it from the search for a closed pipe.
                perf::Error::Io(error) => error.into(),
                error => error.into(),
            }
        });
    }
    let is_compressed = start.starts_with(&[0x1f, 0x8b]);
    let writer = if profiles::is_cpu_profile(&start) {
        profiles::import_gperftools(input, step, writer)?
    } else if profiles::is_heap_profile(&start) {
        profiles::import_heap(input, step, writer)?
    } else if !is_compressed && profiles::is_folded(&start) {
        // Equal counts at the beginning are no accident.
        let run = profiles::run_of(&start);
        profiles::import_folded(&mut input, name.as_bytes(), run, step, writer)?
    } else {
        profiles::import_pprof(input, is_compressed, step, writer)?
    };
    Ok((Imported::default(), writer))
}
