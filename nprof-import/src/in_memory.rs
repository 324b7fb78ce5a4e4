//! Imports bytes in memory, for fuzz targets.

use std::fs::File;
use std::io::{Seek, Write};

use nprof_stream::{Encoding, Reader, Record, Step, Verdict, Writer};

use crate::any;

/// Imports bytes as from a pipe and as from a file, of which `file` is a scratch file.
///
/// # Panics
///
/// If the stream of an import is not readable, or is complete although the import is not.
pub fn check_bytes(bytes: &[u8], file: &mut File) {
    check(bytes, None);
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(bytes));
    written.expect("a scratch file can be written");
    check(bytes, Some(file));
}

fn check(bytes: &[u8], file: Option<&File>) {
    let mut stream = Vec::new();
    let writer = Writer::new(&mut stream as &mut dyn Write, Encoding::Binary);
    // No file of this machine decides on the result.
    let symfs = Some("/dev/null".into());
    let Ok((imported, writer)) = any::import(bytes, "input", file, symfs, Step::default(), writer)
    else {
        return;
    };
    drop(writer);
    let mut reader = Reader::new(&stream[..]);
    let mut samples = 0;
    while let Some(record) = reader.next().expect("our own stream is read") {
        samples += u64::from(matches!(record, Record::Sample(_)));
    }
    let verdict =
        if imported.incomplete.is_none() { Verdict::Complete } else { Verdict::Truncated };
    assert_eq!(reader.verdict(), verdict, "{samples} samples");
}
