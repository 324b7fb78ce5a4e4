//! The identity of files: those accepted for an image and its debug information, and those refused.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::path::Path;

use fixture::{AREA, Binary, Places, area, is_complete, names, run_in, sources, stream, symbolize};
use nprof_stream::{Encoding, ImageKind, Status};

/// A compiled program, and an address in `area`.
fn compile(directory: &Path) -> (Binary, u64) {
    run_in(directory, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&directory.join("prog"));
    let address = binary.symbol(AREA) + 4;
    (binary, address)
}

#[test]
fn linked_debug_file_is_found_in_every_directory() {
    let directory = sources();
    let at = directory.path();
    let (binary, address) = compile(at);
    assert!(is_complete(&area(&[], &binary, address)));
    run_in(at, "objcopy --only-keep-debug @/prog @/prog.debug");
    run_in(at, "strip @/prog");
    let bare = area(&[], &binary, address);
    assert_eq!(bare.0, Status::NoSymbol, "only exports have names");
    assert_eq!(bare.1.len(), 1, "the unwind table has the start of the function");
    assert!(bare.1[0].name.starts_with("prog+0x"), "{bare:?}");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    assert!(is_complete(&area(&[], &binary, address)));
    std::fs::create_dir(at.join(".debug")).unwrap();
    run_in(at, "mv @/prog.debug @/.debug/prog.debug");
    assert!(is_complete(&area(&[], &binary, address)));
    // A debug directory has the path of the image below it.
    let inside = at.join("far").join(at.strip_prefix("/").unwrap());
    std::fs::create_dir_all(&inside).unwrap();
    std::fs::rename(at.join(".debug/prog.debug"), inside.join("prog.debug")).unwrap();
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
    let far = at.join("far");
    assert!(is_complete(&area(&["--debug-dir", far.to_str().unwrap()], &binary, address)));
}

#[test]
fn debug_file_is_found_by_build_id() {
    let directory = sources();
    let at = directory.path();
    for packing in ["none", "zlib", "zlib-gnu", "zlib-gabi"] {
        let (binary, address) = compile(at);
        let id = binary.id();
        let home = at.join(".build-id").join(&id[..2]);
        std::fs::create_dir_all(&home).unwrap();
        run_in(
            at,
            &format!(
                "objcopy --only-keep-debug --compress-debug-sections={packing} @/prog {}/{}.debug",
                home.display(),
                &id[2..]
            ),
        );
        run_in(at, "strip @/prog");
        assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
        let args = ["--debug-dir", at.to_str().unwrap()];
        assert!(is_complete(&area(&args, &binary, address)), "{packing}");
    }
}

#[test]
fn refuses_another_build_id() {
    let directory = sources();
    let at = directory.path();
    let (binary, address) = compile(at);
    run_in(at, "g++ -O1 -g -Wl,--build-id -o @/prog @/a.cc");
    assert_eq!(area(&[], &binary, address), (Status::Mismatch, vec![]));
    // A debug file of another build is refused, too, although the link names it.
    let (binary, address) = compile(at);
    run_in(at, "g++ -O1 -g -Wl,--build-id -o @/other @/a.cc");
    run_in(at, "objcopy --only-keep-debug @/other @/prog.debug");
    run_in(at, "strip @/prog");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
}

#[test]
fn checksum_decides_without_build_ids() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id=none -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    assert!(binary.build_id.is_empty());
    let address = binary.symbol(AREA) + 4;
    run_in(at, "objcopy --only-keep-debug @/prog @/prog.debug");
    run_in(at, "strip @/prog");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    assert!(is_complete(&area(&[], &binary, address)));
    let mut debug = std::fs::read(at.join("prog.debug")).unwrap();
    // One byte changes the checksum, and nothing else.
    debug.push(0);
    std::fs::write(at.join("prog.debug"), debug).unwrap();
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
}

#[test]
fn images_are_found_under_symfs() {
    let directory = sources();
    let at = directory.path();
    let (mut binary, address) = compile(at);
    std::fs::create_dir_all(at.join("root/usr/bin")).unwrap();
    run_in(at, "mv @/prog @/root/usr/bin/prog");
    binary.path = "/usr/bin/prog".into();
    assert_eq!(area(&[], &binary, address), (Status::NoImage, vec![]));
    let root = at.join("root");
    let args = ["--symfs", root.to_str().unwrap()];
    assert!(is_complete(&area(&args, &binary, address)));
}

#[test]
fn stripped_program_without_exports_has_status_stripped() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "gcc -O2 -static -s -o @/bare @/a.c");
    let binary = Binary::read(&at.join("bare"));
    let (status, calls) = area(&[], &binary, binary.text.0);
    assert_eq!(status, Status::Stripped);
    let names: Vec<&str> = calls.iter().map(|call| &call.name[..]).collect();
    assert_eq!(names, [format!("bare+{:#x}", binary.text.0 & 0xffff)], "where it begins");
}

#[test]
fn does_not_open_pipes_and_devices() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    run_in(directory.path(), "mkfifo @/pipe");
    std::fs::write(directory.path().join("text"), "no program").unwrap();
    for (path, expected) in [
        (pipe.to_str().unwrap(), Status::Unreadable),
        ("/dev/zero", Status::Unreadable),
        (directory.path().to_str().unwrap(), Status::Unreadable),
        (directory.path().join("text").to_str().unwrap(), Status::Unreadable),
        ("/nowhere/at/all", Status::NoImage),
        ("relative", Status::NoImage),
        ("/a\0b", Status::NoImage),
    ] {
        let places = vec![(0x1000, false)];
        let places =
            Places { kind: ImageKind::Elf, build_id: b"\x01\x02", path: path.as_bytes(), places };
        assert_eq!(names(&[], places), [(expected, vec![])], "{path}");
    }
}

#[test]
fn explain_lists_the_files_tried() {
    let directory = sources();
    let at = directory.path();
    let (binary, address) = compile(at);
    run_in(at, "strip @/prog");
    let input = stream(&[Places::of(&binary, &[address])], Encoding::Binary);
    let output = symbolize(&["--explain", "prog", "-v"], &input);
    let message = String::from_utf8(output.stderr).unwrap();
    let id = binary.id();
    assert!(message.contains(&format!("{}: is the image", binary.path.display())), "{message}");
    assert!(message.contains(&format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])));
    assert!(message.contains("0 of 1 frames named, no-symbol 1"), "{message}");
    assert!(message.contains("or try --debuginfod"), "{message}");
    let output = symbolize(&["--explain", "nothing"], &input);
    assert!(String::from_utf8(output.stderr).unwrap().contains("nothing: no such image"));
}
