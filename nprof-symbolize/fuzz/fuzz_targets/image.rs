//! No file makes the lookup of its addresses panic, loop, or take memory without bound.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nprof_symbolize::in_memory::check_bytes(bytes));
