//! How fast places are named, on one core, with this program's own symbols and debug information.
//! The modules are the tool's own.

#![allow(unused, unreachable_pub, missing_docs, clippy::unwrap_used)] // a part of the tool is used

#[path = "../src"]
mod tool {
    pub(crate) mod demangle;
    pub(crate) mod detail;
    pub(crate) mod dwarf;
    pub(crate) mod elf;
    pub(crate) mod extents;
    pub(crate) mod links;
    pub(crate) mod plt;
    pub(crate) mod resolve;
    pub(crate) mod simplify;
    pub(crate) mod symbols;
}
#[path = "../fuzz/image.rs"]
mod image;

use divan::Bencher;
use divan::counter::ItemsCount;

use detail::Detail;
use resolve::{Place, resolve};
use tool::{demangle, detail, dwarf, elf, extents, links, plt, resolve, simplify, symbols};

/// How many places, evenly all over the code.
const PLACES: u64 = 10_000;

fn main() {
    divan::main();
}

fn own_bytes() -> Vec<u8> {
    std::fs::read(std::env::current_exe().unwrap()).unwrap()
}

/// Names places of an image that was never looked into.
fn name(bencher: Bencher<'_, '_>, detail: Detail) {
    let bytes = own_bytes();
    bencher
        .counter(ItemsCount::new(PLACES))
        .with_inputs(|| image::open(&bytes).unwrap())
        .bench_local_values(|(image, code)| {
            let code = code.iter().max_by_key(|segment| segment.size).unwrap();
            let places = (0..PLACES).map(|place| code.offset + place * (code.size / PLACES));
            let named = places.filter(|&offset| {
                let place = Place { offset, return_address: true };
                !resolve(&image, place, detail).calls.is_empty()
            });
            assert!(named.count() as u64 > PLACES / 2);
        });
}

#[divan::bench(sample_count = 5)]
fn functions(bencher: Bencher<'_, '_>) {
    name(bencher, Detail { inlines: false, lines: false, debug: true });
}

#[divan::bench(sample_count = 5)]
fn lines_and_inlined_calls(bencher: Bencher<'_, '_>) {
    name(bencher, Detail { inlines: true, lines: true, debug: true });
}

#[divan::bench(sample_count = 5)]
fn open(bencher: Bencher<'_, '_>) {
    let bytes = own_bytes();
    bencher.bench_local(|| image::open(&bytes).is_some());
}
