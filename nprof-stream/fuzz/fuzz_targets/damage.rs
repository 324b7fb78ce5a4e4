//! Resynchronizes after edits of a stream. The first two bytes select the stream; an edit is two bytes
//! of offset, one of operation, one of value.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use nprof_stream::Reader;
use nprof_stream_fuzz::{check, streams};

static STREAMS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(streams);

fuzz_target!(|data: &[u8]| {
    let Some((which, edits)) = data.split_first_chunk() else { return };
    let mut stream = STREAMS[usize::from(u16::from_le_bytes(*which)) % STREAMS.len()].clone();
    for edit in edits.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % stream.len().max(1);
        match edit[2] % 5 {
            0 => stream[at] = edit[3],
            1 => stream[at] ^= 1 << (edit[3] % 8),
            2 => drop(stream.drain(at..stream.len().min(at + usize::from(edit[3])))),
            3 => stream.insert(at, edit[3]),
            _ => stream.truncate(at.max(1)),
        }
        if stream.is_empty() {
            return;
        }
    }
    let mut reader = Reader::new(&stream[..]);
    while let Ok(Some(_)) = reader.next() {}
    assert!(reader.position() <= stream.len() as u64);
    check(&stream);
});
