//! No file makes naming its places panic, loop, or take memory without bound.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nprof_symbolize_fuzz::fuzz::name_places(bytes));
