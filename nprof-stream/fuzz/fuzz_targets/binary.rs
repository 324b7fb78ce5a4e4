//! Decodes arbitrary payloads in valid blocks. 0xff 0xfe ends a block.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nprof_stream_fuzz::{block, check};

fuzz_target!(|data: &[u8]| {
    // A head, so that the payload is part of a segment.
    let mut stream = block(0, b"\x01\x07run=0x7");
    let mut rest = data;
    for sequence in 1.. {
        let end = rest.windows(2).position(|pair| pair == [0xff, 0xfe]);
        stream.extend_from_slice(&block(sequence, &rest[..end.unwrap_or(rest.len())]));
        let Some(end) = end else { break };
        rest = &rest[end + 2..];
    }
    check(&stream);
});
