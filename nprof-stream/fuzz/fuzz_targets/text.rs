//! Decodes arbitrary lines of text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nprof_stream_fuzz::check;

fuzz_target!(|data: &[u8]| {
    check(&[b"@nprof\t1.1\trun=0x7\n", data].concat());
});
