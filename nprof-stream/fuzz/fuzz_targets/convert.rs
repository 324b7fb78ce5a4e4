//! Converts whole streams in any mixture of encodings: records survive.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use nprof_stream_fuzz::{check, example, read};

static EXAMPLE: LazyLock<Vec<u8>> = LazyLock::new(example);

fuzz_target!(|data: &[u8]| {
    check(data);
    // After any damage, an appended complete segment is read to its end.
    let Some(before) = read(data) else { return };
    let Some(both) = read(&[data, &EXAMPLE].concat()) else { return };
    if before.is_complete {
        let whole = read(&EXAMPLE).expect("the example is a stream");
        assert_eq!(both.lines, [before.lines, whole.lines].concat());
    }
});
