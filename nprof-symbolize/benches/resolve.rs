//! Speed of address lookup on one core, with this program's own symbols and debug information.

#![allow(clippy::unwrap_used)] // an image that cannot be opened is a failed benchmark

use divan::Bencher;
use divan::counter::ItemsCount;

use nprof_symbolize::in_memory::MemoryImage;

/// The number of addresses, evenly over the code.
const ADDRESSES: u64 = 10_000;

fn main() {
    divan::main();
}

fn own_bytes() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

/// Looks up addresses of an image that was just opened, so that all tables are built.
fn look_up(bencher: Bencher<'_, '_>, inlines_and_lines: bool) {
    let bytes = own_bytes();
    bencher
        .counter(ItemsCount::new(ADDRESSES))
        .with_inputs(|| MemoryImage::open(&bytes).unwrap())
        .bench_local_values(|image| {
            let offsets = image.code_offsets(ADDRESSES).into_iter();
            let named = offsets.filter(|&offset| image.look_up(offset, inlines_and_lines) > 0);
            assert!(named.count() as u64 > ADDRESSES / 2);
        });
}

#[divan::bench(sample_count = 5)]
fn functions(bencher: Bencher<'_, '_>) {
    look_up(bencher, false);
}

#[divan::bench(sample_count = 5)]
fn lines_and_inlined_calls(bencher: Bencher<'_, '_>) {
    look_up(bencher, true);
}

#[divan::bench(sample_count = 5)]
fn open(bencher: Bencher<'_, '_>) {
    let bytes = own_bytes();
    bencher.bench_local(|| MemoryImage::open(&bytes).is_some());
}
