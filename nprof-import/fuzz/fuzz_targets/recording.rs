//! No recording of another profiler makes the import panic, loop, take memory without bound, or write a
//! stream that is wrong.
#![no_main]

use std::cell::RefCell;
use std::fs::File;

use libfuzzer_sys::fuzz_target;

thread_local! {
    /// Facts of recordings of perf are at the end of a file.
    static SCRATCH: RefCell<File> =
        RefCell::new(tempfile::tempfile().expect("a scratch file can be made"));
}

fuzz_target!(|bytes: &[u8]| {
    SCRATCH.with_borrow_mut(|file| nprof_import::in_memory::check_bytes(bytes, file));
});
