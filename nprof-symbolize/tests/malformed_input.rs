//! Malformed and hostile files cost their own names at most.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use fixture::{Binary, Places, names, run_in, sources};
use nprof_stream::{ImageKind, Status};
use object::{Object, ObjectSection};

/// Debug information with one function, and `DEPTH` inlined calls inside of each other.
const NESTED: &str = r#"
 .text
 .globl main
 .type main,@function
main:
.Lb: nop
 ret
.Le:
 .size main,.-main
 .section .debug_abbrev,"",@progbits
 .uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0,0
 .uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0,0
 .uleb128 3; .uleb128 0x1d; .byte 1; .byte 0,0
 .uleb128 4; .uleb128 0x1d; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0,0
 .byte 0
 .section .debug_info,"",@progbits
 .long .Lie-.Lis
.Lis: .short 4
 .long 0
 .byte 8
 .uleb128 1
 .quad .Lb
 .quad .Le-.Lb
 .uleb128 2
 .quad .Lb
 .quad .Le-.Lb
 ENTRIES
 .fill DEPTH,1,0
 .byte 0,0,0
.Lie:
"#;

fn nested(entries: &str, depth: usize) -> (Status, String, usize) {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = NESTED.replace("ENTRIES", entries).replace("DEPTH", &depth.to_string());
    std::fs::write(at.join("a.s"), source).unwrap();
    run_in(at, "gcc -o @/prog @/a.s");
    let binary = Binary::read(&at.join("prog"));
    let (status, calls) = names(&[], Places::of(&binary, &[binary.symbol("main")])).remove(0);
    (status, calls.last().map(|call| call.name.clone()).unwrap_or_default(), calls.len())
}

#[test]
fn deeply_nested_inlined_calls_are_bounded() {
    let main = || "main".to_owned();
    // Without addresses they cover nothing; with them they cover the function.
    assert_eq!(nested(" .fill DEPTH,1,3", 16_000), (Status::Named, main(), 1));
    assert_eq!(nested(" .fill DEPTH,1,3", 3_000_000), (Status::Named, main(), 1));
    let covering = ".rept DEPTH\n .uleb128 4\n .quad .Lb\n .quad .Le-.Lb\n .endr";
    assert_eq!(nested(covering, 100), (Status::Named, main(), 101));
    let (status, _, calls) = nested(covering, 10_000);
    assert_eq!((status, calls), (Status::Named, nprof_stream::limits::LINES));
}

#[test]
fn damaged_programs_do_not_crash() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id=none -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let addresses = binary.addresses(29);
    let whole = std::fs::read(&binary.path).unwrap();
    let file = object::File::parse(&*whole).unwrap();
    let sections: Vec<(u64, u64)> = file
        .sections()
        .filter(|section| {
            let name = section.name().unwrap();
            [".debug", ".symtab", ".strtab", ".plt", ".rela"]
                .iter()
                .any(|part| name.starts_with(part))
        })
        .filter_map(|section| section.file_range())
        .collect();
    let mut numbers = fastrand::Rng::with_seed(7);
    let mut unnamed = 0;
    for round in 0..60 {
        let mut damaged = whole.clone();
        // From one damaged byte to twenty.
        for _ in 0..1 + round % 20 {
            let (start, size) = match numbers.usize(..5) {
                // The ELF header and the program headers.
                0 => (0, 64 + 56 * 13),
                // The section headers are at the end of the file.
                1 => (whole.len() as u64 - 64 * 40, 64 * 40),
                _ => sections[numbers.usize(..sections.len())],
            };
            let place = start as usize + numbers.usize(..(size as usize).max(1));
            damaged[place] = [0, 0xff, 0x7f, 0x80, damaged[place] ^ 1][numbers.usize(..5)];
        }
        // Truncated files have headers that point beyond their end.
        if round % 10 == 0 {
            damaged.truncate(numbers.usize(..whole.len()));
        }
        std::fs::write(&binary.path, damaged).unwrap();
        let named = names(&[], Places::of(&binary, &addresses));
        assert_eq!(named.len(), addresses.len());
        unnamed += named.iter().filter(|(status, _)| *status != Status::Named).count();
    }
    // Otherwise the damage was never read.
    assert!(unnamed > 0);
}

#[test]
fn sparse_files_take_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hole");
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    head.resize(64, 0);
    // One section header at 64, its size in the next: there are 2^40 of them.
    head[40] = 64;
    head[58] = 64;
    head.resize(128, 0);
    head[64 + 32..64 + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
    std::fs::write(&path, &head).unwrap();
    // A sparse file of 64 TiB; file systems with a lower limit leave it short.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 46).unwrap_or(());
    let path = path.to_str().unwrap().as_bytes();
    let places = vec![(0x10, false)];
    let named = names(&[], Places { kind: ImageKind::Elf, build_id: b"", path, places });
    assert_ne!(named[0].0, Status::Named);
}
