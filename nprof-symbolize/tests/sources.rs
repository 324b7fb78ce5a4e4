//! Where debug information is found when it is not in the image: shared, split, packed files,
//! processes that still run.

#![allow(clippy::unwrap_used)] // what cannot be set up is a failed test

mod fixture;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fixture::{
    AREA, Binary, Places, area, is_complete, locations, run_in, sources, stream, symbolize,
};
use nprof_stream::{Spelling, Status};

/// What `--explain` says of an image that is in no stream.
fn explain(args: &[&str], image: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nprof-symbolize"))
        .args(args)
        .args(["--explain", image])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn debug_information_that_was_split_off_is_found_where_it_was_made_or_beside_the_image() {
    for version in [4, 5] {
        let directory = sources();
        let at = directory.path();
        let flags = format!("-O2 -g -gdwarf-{version} -gsplit-dwarf -dumpdir @/");
        run_in(at, &format!("g++ {flags} -Wl,--build-id -o @/prog @/a.cc"));
        let binary = Binary::read(&at.join("prog"));
        let address = binary.symbol(AREA) + 4;
        assert!(is_complete(&area(&[], &binary, address)), "DWARF {version}");
        // Built in one place, kept in another.
        std::fs::create_dir_all(at.join("kept")).unwrap();
        run_in(at, "mv @/prog @/a.dwo @/kept");
        let kept = Binary::read(&at.join("kept/prog"));
        assert!(is_complete(&area(&[], &kept, address)), "DWARF {version}, moved");
        // Another compilation has another id.
        run_in(at, &format!("g++ {flags} -DOTHER -fno-inline -o @/other @/a.cc"));
        run_in(at, "cp @/a.dwo @/kept/a.dwo");
        let (status, calls) = area(&[], &kept, address);
        assert_eq!((status, calls.len()), (Status::Named, 1), "the symbol table's name");
        assert!(!calls[0].file.ends_with("/a.cc") || calls[0].line > 0);
        run_in(at, "rm @/a.dwo @/kept/a.dwo");
        let input = stream(&[Places::of(&kept, &[address])], Spelling::Binary);
        let output = symbolize(&["-v", "--explain", "prog"], &input);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("a.dwo: no such file"), "{message}");
    }
}

#[test]
fn split_units_are_found_in_their_package() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -gdwarf-4 -gsplit-dwarf -dumpdir @/ -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let address = binary.symbol(AREA) + 4;
    run_in(at, "dwp -e @/prog -o @/prog.dwp");
    run_in(at, "rm @/a.dwo");
    assert!(is_complete(&area(&[], &binary, address)));
    assert!(explain(&[], at.join("prog").to_str().unwrap()).contains("package of split units"));
    // The package stands where the debug file does.
    run_in(at, "mkdir -p @/far/@");
    let home = at.join(".build-id").join(&binary.id()[..2]);
    std::fs::create_dir_all(&home).unwrap();
    let debug = home.join(format!("{}.debug", &binary.id()[2..]));
    run_in(at, &format!("objcopy --only-keep-debug @/prog {}", debug.display()));
    run_in(at, &format!("mv @/prog.dwp {}", debug.with_extension("debug.dwp").display()));
    run_in(at, "strip @/prog");
    assert!(is_complete(&area(&["--debug-dir", at.to_str().unwrap()], &binary, address)));
}

#[test]
fn what_dwz_moved_to_a_shared_file_is_found_and_no_other_is_taken_for_it() {
    for (version, format, id) in [(4, "", "build ID"), (5, "--dwarf-5", "checksum")] {
        check_dwz(version, format, id);
    }
}

fn check_dwz(version: u32, format: &str, id: &str) {
    let compile = |flags: &str| format!("g++ {flags} -g -gdwarf-{version} -Wl,--build-id -o");
    let dwz = format!("dwz {format} -m @/debug/.dwz/shared -M /usr/lib/debug/.dwz/shared");
    let directory = sources();
    let at = directory.path();
    run_in(at, &format!("{} @/prog @/a.cc", compile("-O2")));
    run_in(at, &format!("{} @/more @/a.cc", compile("-O1")));
    let binary = Binary::read(&at.join("prog"));
    let address = binary.symbol(AREA) + 4;
    let before = area(&[], &binary, address);
    assert!(is_complete(&before));
    std::fs::create_dir_all(at.join("debug/.dwz")).unwrap();
    run_in(at, &format!("{dwz} @/prog @/more"));
    let hidden = explain(&[], at.join("prog").to_str().unwrap());
    assert!(hidden.contains("/usr/lib/debug/.dwz/shared: no such file"), "{hidden}");
    assert!(hidden.contains("the shared file (dwz) was not found"), "{hidden}");
    let debug = at.join("debug");
    let args = ["--debug-dir", debug.to_str().unwrap()];
    assert_eq!(area(&args, &binary, address), before, "found in .dwz of a debug directory");
    let told = explain(&args, at.join("prog").to_str().unwrap());
    assert!(told.contains("debug/.dwz/shared: is the shared file"), "{told}");
    // The shared file of other programs.
    run_in(at, &format!("{} @/fourth @/a.cc", compile("-O2 -DX")));
    run_in(at, &format!("{} @/fifth @/a.cc", compile("-O0 -DX")));
    run_in(at, &format!("{dwz} @/fourth @/fifth"));
    let told = explain(&args, at.join("prog").to_str().unwrap());
    assert!(told.contains(&format!("debug/.dwz/shared: another {id}: it has")), "{told}");
    let (status, calls) = area(&args, &binary, address);
    assert_eq!(status, Status::Named);
    assert!(calls.last().unwrap().name.starts_with("geometry::area"), "{calls:?}");
    let output = symbolize(&["-v"], &stream(&[Places::of(&binary, &[address])], Spelling::Binary));
    let summary = String::from_utf8_lossy(&output.stderr).into_owned();
    let reason = "in a file shared by several, which was not found";
    assert!(summary.contains(reason), "{summary}");
}

#[test]
fn what_dwz_shares_between_the_units_of_a_file_changes_no_place() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // The first unit has something in common with each other one, and its line table is theirs.
    let (mut headers, mut units) = (String::new(), "@/u.c".to_owned());
    for number in 0..12 {
        let fields: String =
            (0..100).map(|field| format!("struct t{number} *f{number}_{field};\n")).collect();
        let header = format!(
            "struct t{number} {{ int a{number}; long b{number}; }};\n\
             struct s{number} {{ {fields} }};\n\
             static inline long sum{number}(struct s{number} *s)\n\
             {{ return s->f{number}_3->b{number} * 5 + {number}; }}\n"
        );
        std::fs::write(at.join(format!("h{number}.h")), header).unwrap();
        let include = format!("#include \"h{number}.h\"\n");
        let function = |name: &str| {
            format!("long {name}{number}(struct s{number} *s) {{ return sum{number}(s) - 1; }}\n")
        };
        std::fs::write(at.join(format!("u{number}.c")), include.clone() + &function("g")).unwrap();
        units += &format!(" @/u{number}.c");
        headers += &(include + &function("f"));
    }
    std::fs::write(at.join("u.c"), headers).unwrap();
    run_in(at, &format!("gcc -O2 -g -shared -fPIC -Wl,--build-id -o @/l.so {units}"));
    let binary = Binary::read(&at.join("l.so"));
    // Also places in no function, which make the lines of units be asked that tell no addresses.
    let places = [vec![binary.text.0 + 1], binary.addresses(3)].concat();
    let input = stream(&[Places::of(&binary, &places)], Spelling::Binary);
    let before = symbolize(&[], &input).stdout;
    run_in(at, "dwz @/l.so");
    let after = symbolize(&[], &input).stdout;
    let differ = locations(&before).iter().zip(locations(&after)).filter(|(a, b)| *a != b).count();
    assert_eq!((differ, locations(&after).len()), (0, places.len()));
}

#[test]
fn symbols_that_are_packed_in_the_image_name_its_functions() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let hidden = "_ZN12_GLOBAL__N_16hiddenEi";
    let address = binary.symbols().get(hidden).copied().unwrap_or(binary.symbol(AREA)) + 4;
    // As rpm's find-debuginfo does it.
    run_in(at, "objcopy --only-keep-debug @/prog @/mini");
    run_in(at, "xz @/mini");
    run_in(at, "strip @/prog");
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
    run_in(at, "objcopy --add-section .gnu_debugdata=@/mini.xz @/prog");
    let (status, calls) = area(&[], &binary, address);
    assert_eq!(status, Status::Named);
    assert!(calls[0].name.contains("hidden") || calls[0].name.contains("area"), "{calls:?}");
    // A lie is a reason, and no more than that.
    std::fs::write(at.join("lie"), b"\xfd7zXZ\0\0\x04 not at all").unwrap();
    run_in(at, "objcopy --update-section .gnu_debugdata=@/lie @/prog");
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
    let told = explain(&[], at.join("prog").to_str().unwrap());
    assert!(told.contains("prog(.gnu_debugdata): it is not as xz(1) packs"), "{told}");
}

#[test]
fn an_image_is_explained_by_path_and_by_build_id_without_a_stream() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -gz=zlib -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let told = explain(&[], at.join("prog").to_str().unwrap());
    for part in [
        "is the image: ",
        &*format!("build ID {}", binary.id()),
        "DWARF (",
        ", compressed)",
        "symbols",
        "exports",
        "unwind table",
        "names from .symtab",
        "inlined calls, files and lines from DWARF",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = explain(&[], &binary.id());
    let missing = format!("/usr/lib/debug/.build-id/{}", &binary.id()[..2]);
    assert!(told.contains(&missing) && told.contains("no such file"), "{told}");
    let nothing = Command::new(env!("CARGO_BIN_EXE_nprof-symbolize"))
        .args(["--explain", "nothing"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no ELF file, and no build ID"));
}

/// A stream of one place, of a process, recorded at a time of day (ns).
fn text(pid: u32, utc: u64, build_id: &str, path: &Path, offset: u64) -> Vec<u8> {
    let path = path.display();
    let stream = format!(
        "@nprof\t1.1\trun=0x7\tclock=monotonic\ttime=1000\tutc={utc}\n@event\tid=1\n\
         T\t1\t1000\t{pid}\t{pid}\t0\ta\nI\t1\telf\t{build_id}\t{path}\n\
         F\t1\t1\t{offset:#x}\tu\nN\t1\t0\t1\nS\t1000\t1\t1\t0\t1\t1\t1\n\
         @end\tsamples=1\trecords=6\tlost=0\n"
    );
    stream.into_bytes()
}

#[test]
fn without_a_build_id_a_file_that_was_changed_since_is_refused() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id=none -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let (path, offset) = (at.join("prog"), binary.offset(binary.symbol(AREA) + 4));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = now.as_nanos() as u64;
    let hour = 3_600_000_000_000;
    let at_time = |args: &[&str], utc| symbolize(args, &text(1, utc, "-", &path, offset));
    let first = |output: &std::process::Output| locations(&output.stdout).remove(0);
    assert!(is_complete(&first(&at_time(&[], now + hour))));
    let before = at_time(&["-v"], now - hour);
    assert_eq!(first(&before), (Status::Mismatch, vec![]));
    let message = String::from_utf8(before.stderr).unwrap();
    assert!(message.contains("no build ID, and was changed"), "{message}");
    let marked = first(&at_time(&["--allow-mismatch"], now - hour));
    assert!(marked.1.last().unwrap().name.ends_with("[mismatch]"), "{marked:?}");
    // A copy may keep the time of its bytes; the time it was made tells.
    let old = std::fs::File::options().append(true).open(&path).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(first(&at_time(&[], now - hour)).0, Status::Mismatch);
    // Of a copy of another system only the time of its bytes says anything.
    assert!(is_complete(&first(&at_time(&["--symfs", "/"], now - hour))));
    let told = at_time(&["--explain", "prog"], now + hour);
    assert!(String::from_utf8(told.stderr).unwrap().contains("recorded without a build ID"));
}

/// A program that waits for the end of its input, and says so when it does.
const WAITS: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) int wait_here(void) { while (getchar() != EOF); return 0; }\n\
    int main(void) { puts(\"ready\"); fflush(stdout); return wait_here(); }\n";

/// Starts a command and waits until the program in it says that it is ready.
fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn stop(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_living_process_lends_the_file_that_was_removed_or_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("wait.c"), WAITS).unwrap();
    run_in(at, "gcc -O1 -g -Wl,--build-id -o @/prog @/wait.c");
    let binary = Binary::read(&at.join("prog"));
    let offset = binary.offset(binary.symbol("wait_here") + 4);
    let child = start(&mut Command::new(at.join("prog")));
    run_in(at, "rm @/prog");
    run_in(at, "gcc -O0 -Wl,--build-id -o @/prog @/wait.c");
    let input = text(child.id(), 0, &binary.id(), &binary.path, offset);
    let output = symbolize(&["--explain", "prog"], &input);
    let (status, calls) = locations(&output.stdout).remove(0);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(status, Status::Named, "{message}");
    assert_eq!(calls.last().unwrap().name, "wait_here");
    assert!(message.contains("map_files"), "{message}");
    stop(child);
    let after = symbolize(&[], &input);
    assert_eq!(locations(&after.stdout), [(Status::Mismatch, vec![])]);
}

#[test]
fn the_debug_file_beside_an_image_that_is_now_elsewhere_is_found() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let address = binary.symbol(AREA) + 4;
    run_in(at, "objcopy --only-keep-debug @/prog @/prog.debug");
    run_in(at, "strip @/prog");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    let home = at.join(".build-id").join(&binary.id()[..2]);
    std::fs::create_dir_all(&home).unwrap();
    std::fs::rename(at.join("prog"), home.join(&binary.id()[2..])).unwrap();
    assert!(is_complete(&area(&["--debug-dir", at.to_str().unwrap()], &binary, address)));
}

#[test]
fn a_living_process_lends_the_files_of_its_container() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("wait.c"), WAITS).unwrap();
    run_in(at, "gcc -O1 -g -Wl,--build-id -o @/prog @/wait.c");
    std::fs::create_dir(at.join("inside")).unwrap();
    let inside = at.join("inside").display().to_string();
    let prog = at.join("prog").display().to_string();
    let script =
        format!("mount -t tmpfs none {inside} && cp {prog} {inside} && exec {inside}/prog");
    let mut unshare = Command::new("unshare");
    let child = start(unshare.args(["-rm", "sh", "-c", &script]));
    let binary = Binary::read(&at.join("prog"));
    let offset = binary.offset(binary.symbol("wait_here") + 4);
    let path = at.join("inside/prog");
    assert!(!path.exists(), "it is in the container only");
    let input = text(child.id(), 0, &binary.id(), &path, offset);
    let output = symbolize(&["--explain", "prog"], &input);
    let (status, calls) = locations(&output.stdout).remove(0);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(status, Status::Named, "{message}");
    assert_eq!(calls.last().unwrap().name, "wait_here");
    assert!(message.contains(&format!("/proc/{}/root/", child.id())), "{message}");
    stop(child);
    assert_eq!(locations(&symbolize(&[], &input).stdout), [(Status::NoImage, vec![])]);
}

#[test]
fn each_thing_is_taken_from_the_file_that_has_the_best() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let address = binary.symbol(AREA) + 4;
    let home = at.join(".build-id").join(&binary.id()[..2]);
    std::fs::create_dir_all(&home).unwrap();
    let by_id = home.join(format!("{}.debug", &binary.id()[2..]));
    // The first candidate has symbols and no DWARF, the second DWARF and no symbols.
    run_in(at, &format!("strip -g -o {} @/prog", by_id.display()));
    run_in(at, "objcopy --only-keep-debug @/prog @/prog.debug");
    run_in(at, "objcopy --remove-section .symtab @/prog.debug");
    run_in(at, "strip @/prog");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    let args = ["--debug-dir", at.to_str().unwrap()];
    assert!(is_complete(&area(&args, &binary, address)));
    let told = explain(&args, at.join("prog").to_str().unwrap());
    assert!(told.contains(&format!("{}: names from .symtab", by_id.display())), "{told}");
    assert!(told.contains("prog.debug: inlined calls, files and lines from DWARF"), "{told}");
}
