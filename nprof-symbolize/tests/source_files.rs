//! Source files in streams: their MD5, by which reports know the text that was compiled.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::collections::BTreeMap;
use std::path::Path;

use fixture::{Binary, Places, run_in, stream, symbolize};
use nprof_stream::{Encoding, Md5Sum, Reader, Record};

const PROGRAM: &str = "\
#include \"part.h\"
int main(int argc, char **argv) {
    return part(argc) + argc * 7;
}
";

const PART: &str = "\
static inline int part(int n) {
    while (n > 3)
        n = n / 2 + (n & 1);
    return n;
}
";

/// Compiles the program in DWARF 5 with an MD5 of `main.c`, and none of `part.h`. It reads the same in both
/// directions: GNU as 2.40 writes it backwards.
fn compile(directory: &Path) -> Binary {
    std::fs::write(directory.join("main.c"), PROGRAM).unwrap();
    std::fs::write(directory.join("part.h"), PART).unwrap();
    run_in(directory, "gcc -O1 -gdwarf-5 -S -o @/main.s @/main.c");
    let assembly = std::fs::read_to_string(directory.join("main.s")).unwrap();
    let with_md5 = |line: &str| match line.contains(".file ") && line.ends_with("main.c\"") {
        true => format!("{line} md5 0x{}\n", "a5".repeat(16)),
        false => format!("{line}\n"),
    };
    let assembly: String = assembly.lines().map(with_md5).collect();
    std::fs::write(directory.join("main.s"), assembly).unwrap();
    run_in(directory, "gcc -Wl,--build-id -o @/prog @/main.s");
    Binary::read(&directory.join("prog"))
}

/// Returns the source files of a stream by name, each with its MD5.
fn files(stream: &[u8]) -> BTreeMap<String, Option<Md5Sum>> {
    let mut files = BTreeMap::new();
    let mut reader = Reader::new(stream);
    while let Some(record) = reader.next().unwrap() {
        if let Record::File(file) = record {
            let path = String::from_utf8_lossy(file.path).into_owned();
            let name = path.rsplit('/').next().unwrap().to_owned();
            assert_eq!(files.insert(name, file.md5()), None, "{path}");
        }
    }
    files
}

#[test]
fn file_has_the_md5_of_debug_information_with_code() {
    let directory = tempfile::tempdir().unwrap();
    let binary = compile(directory.path());
    let main = binary.symbol("main");
    let addresses: Vec<u64> = (main..main + 12).collect();
    let input = stream(&[Places::of(&binary, &addresses)], Encoding::Binary);
    let plain = symbolize(&[], &input).stdout;
    let names = ["main.c".to_owned(), "part.h".to_owned()];
    assert_eq!(files(&plain), names.clone().map(|name| (name, None)).into());
    let expected = names.into_iter().zip([Some([0xa5; 16]), None]).collect();
    let code = symbolize(&["--code"], &input).stdout;
    assert_eq!(files(&code), expected);
    // Names of another run are replaced, and kept by the same one without the program.
    assert_eq!(files(&symbolize(&["--code"], &plain).stdout), expected);
    std::fs::remove_file(directory.path().join("prog")).unwrap();
    assert_eq!(files(&symbolize(&["--code"], &code).stdout), expected);
}
