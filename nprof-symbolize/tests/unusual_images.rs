//! Unusual images: however a program was compiled, linked, stripped or damaged, its addresses get
//! right names, or the right reason.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fixture::{Binary, Named, Places, names, run_in, stream, symbolize};
use nprof_stream::{Encoding, ImageKind, Status};
use object::{Object, ObjectSymbol, SymbolKind};

/// Functions that call others, have a part split off, and lie in a section of their own.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static inline int inner(int n) { return n * 7 + 3; }
__attribute__((noinline, cold)) int complain(int n) { fprintf(stderr, "%d\n", n); exit(n); }
__attribute__((noinline)) int outer(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum ^= inner(i + sum);
        if (__builtin_expect(sum == 12345, 0)) { complain(sum + i); sum += complain(i); }
    }
    return sum;
}
__attribute__((noinline, section(".far"))) int far_away(int n) { return outer(n) + 1; }
__attribute__((noinline)) static int unused(int n) { return n + 2; }
int main(int argc, char **argv) { return (far_away(argc + 1000) + (argc > 9 ? unused(argc) : 0)) & 1; }
"#;

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("odd.c"), PROGRAM).unwrap();
    directory
}

/// The functions of the program itself: name, first and last address.
fn functions(path: &Path) -> Vec<(String, u64, u64)> {
    let data = std::fs::read(path).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let own = ["complain", "outer", "far_away", "main", "outer.cold"];
    let mut functions = Vec::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
        let name = symbol.name().unwrap().to_owned();
        if own.contains(&&name[..]) && symbol.size() > 0 {
            functions.push((name, symbol.address(), symbol.address() + symbol.size() - 1));
        }
    }
    assert!(functions.len() >= 4, "{functions:?}");
    functions
}

/// Asserts that the first and the last byte of each function have its name and line, in the image at
/// `path`, which has the layout of `reference`.
fn assert_named(case: &str, args: &[&str], reference: &Path, path: &Path) {
    let binary = Binary::read(reference);
    for (name, first, last) in functions(reference) {
        let places =
            Places { path: path.as_os_str().as_bytes(), ..Places::of(&binary, &[first, last]) };
        for (status, calls) in names(args, places) {
            assert_eq!(status, Status::Named, "{case}: {name}");
            let outermost = calls.last().unwrap();
            assert_eq!(outermost.name, name, "{case}: {calls:?}");
            let is_in_source = |call: &Named| call.file.ends_with("/odd.c") && call.line > 0;
            assert!(calls.iter().all(is_in_source), "{case}: {name}: {calls:?}");
            let inlined = &calls[..calls.len() - 1];
            assert!(inlined.iter().all(|call| call.name == "inner"), "{case}: {calls:?}");
        }
    }
}

/// Builds the program and checks all its functions.
fn assert_build_is_named(case: &str, flags: &str) {
    let directory = directory();
    let at = directory.path();
    run_in(at, &format!("gcc -O2 -g -Wl,--build-id {flags} -o @/prog @/odd.c"));
    assert_named(case, &[], &at.join("prog"), &at.join("prog"));
}

#[test]
fn names_every_kind_of_program() {
    for (case, flags) in [
        ("position independent", "-fPIE -pie"),
        ("fixed", "-no-pie"),
        ("static", "-static"),
        ("static and position independent", "-static-pie"),
        ("a library", "-shared -fPIC"),
        ("a library at an address of its own", "-shared -fPIC -Wl,-Ttext-segment=0x3f00000000"),
    ] {
        assert_build_is_named(case, flags);
    }
}

#[test]
fn names_the_layouts_of_all_linkers() {
    for (case, flags) in [
        ("lld", "-fuse-ld=lld"),
        ("lld, headers and code together", "-fuse-ld=lld -Wl,--no-rosegment"),
        ("lld, sections sorted by their names", "-fuse-ld=lld -Wl,-z,keep-text-section-prefix"),
        ("lld, equal functions folded", "-fuse-ld=lld -ffunction-sections -Wl,--icf=all"),
        ("mold", "-fuse-ld=mold"),
        ("headers and code in one segment", "-Wl,-z,noseparate-code"),
        (
            "segments aligned to 2 MiB",
            "-Wl,-z,max-page-size=0x200000 -Wl,-z,common-page-size=0x200000",
        ),
        ("unused functions dropped", "-ffunction-sections -Wl,--gc-sections"),
        ("relocations kept", "-Wl,--emit-relocs"),
        ("DWARF of 64 bits", "-gdwarf64"),
        ("DWARF 2", "-gdwarf-2"),
        ("DWARF 3", "-gdwarf-3"),
        ("optimized as a whole", "-flto -fno-ipa-icf"),
    ] {
        assert_build_is_named(case, flags);
    }
}

#[test]
fn names_code_in_distant_segments() {
    for (case, flags) in [
        ("a second segment of code", "-no-pie -Wl,--section-start=.far=0x40000000"),
        ("code below the program", "-no-pie -Wl,--section-start=.far=0x10000"),
        (
            // As by BOLT: a new hot part, the old text for the rest.
            "hot and cold parts of a function",
            "-no-pie -fuse-ld=lld -Wl,-z,keep-text-section-prefix \
             -Wl,--section-start=.text.unlikely=0x50000000",
        ),
    ] {
        assert_build_is_named(case, flags);
    }
    // The cold part exists, and has a name that shows it.
    let directory = directory();
    run_in(directory.path(), "gcc -O2 -g -o @/prog @/odd.c");
    let names: Vec<String> =
        functions(&directory.path().join("prog")).into_iter().map(|(name, ..)| name).collect();
    assert!(names.contains(&"outer.cold".to_owned()), "{names:?}");
}

#[test]
fn reads_compressed_sections() {
    for packing in ["zlib", "zlib-gnu", "zstd"] {
        let directory = directory();
        let at = directory.path();
        run_in(at, "gcc -O2 -g -Wl,--build-id -o @/prog @/odd.c");
        run_in(at, &format!("objcopy --compress-debug-sections={packing} @/prog"));
        assert_named(packing, &[], &at.join("prog"), &at.join("prog"));
    }
}

#[test]
fn debug_file_names_image_without_section_headers() {
    let directory = directory();
    let at = directory.path();
    run_in(at, "gcc -O2 -g -Wl,--build-id -o @/prog @/odd.c");
    let binary = Binary::read(&at.join("prog"));
    let id = binary.id();
    // The layout of a debug directory.
    let home = at.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&home).unwrap();
    run_in(at, "cp @/prog @/bare");
    let bare = std::fs::File::options().write(true).open(at.join("bare")).unwrap();
    // e_shoff; e_shentsize, e_shnum and e_shstrndx.
    // Cleared as by sstrip(1): the program still runs.
    bare.write_all_at(&[0; 8], 0x28).unwrap();
    bare.write_all_at(&[0; 6], 0x3a).unwrap();
    let path = at.join("bare");
    let places =
        Places { path: path.as_os_str().as_bytes(), ..Places::of(&binary, &[binary.text.0]) };
    assert_eq!(names(&[], places), [(Status::Stripped, vec![])]);
    run_in(at, &format!("objcopy --only-keep-debug @/prog {}/{}.debug", home.display(), &id[2..]));
    assert_named("bare", &["--debug-dir", at.to_str().unwrap()], &at.join("prog"), &path);
}

/// Bytes to write into a file, by offset.
type Lie = Vec<(usize, Vec<u8>)>;

/// Returns the result for an offset in a file with this content: its status, and the messages.
fn fate(path: &Path, build_id: &[u8]) -> (Status, String) {
    let places = vec![(0x1000, false)];
    let path = path.as_os_str().as_bytes();
    let places = Places { kind: ImageKind::Elf, build_id, path, places };
    let output = symbolize(&["-v"], &stream(&[places], Encoding::Binary));
    assert!(output.status.success(), "{output:?}");
    let (status, _) = fixture::locations(&output.stdout).remove(0);
    (status, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn false_headers_of_a_huge_file_take_no_memory() {
    let directory = directory();
    let at = directory.path();
    run_in(at, "gcc -O2 -g -Wl,--build-id=none -o @/prog @/odd.c");
    let whole = std::fs::read(at.join("prog")).unwrap();
    let path = at.join("giant");
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap());
    let (headers, segments) = (word(0x28) as usize, word(0x20) as usize);
    let lies: [(&str, Lie); 5] = [
        (
            "2^32 - 1 sections",
            vec![(0x3c, vec![0; 2]), (headers + 32, u32::MAX.to_le_bytes().into())],
        ),
        (
            "2^32 - 1 segments",
            vec![(0x38, vec![0xff; 2]), (headers + 44, u32::MAX.to_le_bytes().into())],
        ),
        ("headers at the end of the earth", vec![(0x28, u64::MAX.to_le_bytes().into())]),
        ("segments of all there is", vec![(segments + 32, u64::MAX.to_le_bytes().into())]),
        (
            "every section as large as the file",
            (1..20).map(|i| (headers + 64 * i + 32, (1u64 << 40).to_le_bytes().into())).collect(),
        ),
    ];
    for (case, lie) in lies {
        let mut bytes = whole.clone();
        for (at, lie) in lie {
            bytes[at..at + lie.len()].copy_from_slice(&lie);
        }
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 41).unwrap();
        // 2 GB of address space suffice for a file of a terabyte.
        let places = vec![(0x1000, false)];
        let name = path.as_os_str().as_bytes();
        let places = Places { kind: ImageKind::Elf, build_id: b"", path: name, places };
        std::fs::write(at.join("in"), stream(&[places], Encoding::Binary)).unwrap();
        let limited = format!(
            "ulimit -v 4000000; exec {} -o @/out @/in",
            env!("CARGO_BIN_EXE_nprof-symbolize")
        );
        let script = limited.replace('@', at.to_str().unwrap());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{case}: {output:?}");
    }
}

#[test]
fn truncated_file_is_reported() {
    let directory = directory();
    let at = directory.path();
    run_in(at, "gcc -O2 -g -Wl,--build-id -o @/prog @/odd.c");
    let whole = std::fs::read(at.join("prog")).unwrap();
    let id = Binary::read(&at.join("prog")).build_id;
    for length in [0, 1, 20, 63, 64, 500] {
        std::fs::write(at.join("cut"), &whole[..length]).unwrap();
        let (status, message) = fate(&at.join("cut"), &id);
        assert!(matches!(status, Status::Unreadable | Status::Mismatch), "{length}: {message}");
        assert!(message.contains("cut: "), "{message}");
    }
    // With segments and the build ID the offset still maps to an address.
    for part in 1..8 {
        std::fs::write(at.join("cut"), &whole[..whole.len() * part / 8]).unwrap();
        let (status, message) = fate(&at.join("cut"), &id);
        assert!(status != Status::NoImage && status != Status::Mismatch, "{part}: {message}");
    }
}
