//! The search for debug information outside of the image: supplementary, split and compressed
//! files, and running processes.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fixture::{
    AREA, Binary, Places, area, is_complete, locations, run_in, sources, stream, symbolize,
};
use nprof_stream::{Encoding, Status};

/// Returns the explanation of an image without a stream.
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
fn split_units_are_found_at_their_path_or_beside_the_image() {
    for version in [4, 5] {
        let directory = sources();
        let at = directory.path();
        let flags = format!("-O2 -g -gdwarf-{version} -gsplit-dwarf -dumpdir @/");
        run_in(at, &format!("g++ {flags} -Wl,--build-id -o @/prog @/a.cc"));
        let binary = Binary::read(&at.join("prog"));
        let address = binary.symbol(AREA) + 4;
        assert!(is_complete(&area(&[], &binary, address)), "DWARF {version}");
        // Built in one directory, moved to another.
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
        let input = stream(&[Places::of(&kept, &[address])], Encoding::Binary);
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
    // The package lies next to the debug file.
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
fn supplementary_file_must_have_the_linked_id() {
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
    assert!(hidden.contains("the supplementary file (dwz) was not found"), "{hidden}");
    let debug = at.join("debug");
    let args = ["--debug-dir", debug.to_str().unwrap()];
    assert_eq!(area(&args, &binary, address), before, "found in .dwz of a debug directory");
    let output = explain(&args, at.join("prog").to_str().unwrap());
    assert!(output.contains("debug/.dwz/shared: is the supplementary file"), "{output}");
    // The supplementary file of other programs.
    run_in(at, &format!("{} @/fourth @/a.cc", compile("-O2 -DX")));
    run_in(at, &format!("{} @/fifth @/a.cc", compile("-O0 -DX")));
    run_in(at, &format!("{dwz} @/fourth @/fifth"));
    let output = explain(&args, at.join("prog").to_str().unwrap());
    assert!(output.contains(&format!("debug/.dwz/shared: another {id}: it has")), "{output}");
    let (status, calls) = area(&args, &binary, address);
    assert_eq!(status, Status::Named);
    assert!(calls.last().unwrap().name.starts_with("geometry::area"), "{calls:?}");
    let output = symbolize(&["-v"], &stream(&[Places::of(&binary, &[address])], Encoding::Binary));
    let summary = String::from_utf8_lossy(&output.stderr).into_owned();
    let reason = "in a file shared by several, which was not found";
    assert!(summary.contains(reason), "{summary}");
}

#[test]
fn dwz_partial_units_change_no_location() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // The first unit has a part in common with each other unit, and its line table is theirs.
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
    // Also addresses in no function: they use the line tables of units without ranges.
    let places = [vec![binary.text.0 + 1], binary.addresses(3)].concat();
    let input = stream(&[Places::of(&binary, &places)], Encoding::Binary);
    let before = symbolize(&[], &input).stdout;
    run_in(at, "dwz @/l.so");
    let after = symbolize(&[], &input).stdout;
    let differ = locations(&before).iter().zip(locations(&after)).filter(|(a, b)| *a != b).count();
    assert_eq!((differ, locations(&after).len()), (0, places.len()));
}

#[test]
fn gnu_debugdata_names_functions() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -Wl,--build-id -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let hidden = "_ZN12_GLOBAL__N_16hiddenEi";
    let address = binary.symbols().get(hidden).copied().unwrap_or(binary.symbol(AREA)) + 4;
    // As rpm's find-debuginfo does.
    run_in(at, "objcopy --only-keep-debug @/prog @/mini");
    run_in(at, "xz @/mini");
    run_in(at, "strip @/prog");
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
    run_in(at, "objcopy --add-section .gnu_debugdata=@/mini.xz @/prog");
    let (status, calls) = area(&[], &binary, address);
    assert_eq!(status, Status::Named);
    assert!(calls[0].name.contains("hidden") || calls[0].name.contains("area"), "{calls:?}");
    // A malformed section is a reason in the log, and no error.
    std::fs::write(at.join("lie"), b"\xfd7zXZ\0\0\x04 garbage").unwrap();
    run_in(at, "objcopy --update-section .gnu_debugdata=@/lie @/prog");
    assert_eq!(area(&[], &binary, address).0, Status::NoSymbol);
    let output = explain(&[], at.join("prog").to_str().unwrap());
    assert!(output.contains("prog(.gnu_debugdata): it is not in the format of xz(1)"), "{output}");
}

#[test]
fn explains_image_by_path_or_build_id_without_a_stream() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -gz=zlib -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let output = explain(&[], at.join("prog").to_str().unwrap());
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
        assert!(output.contains(part), "{part}: {output}");
    }
    let output = explain(&[], &binary.id());
    let missing = format!("/usr/lib/debug/.build-id/{}", &binary.id()[..2]);
    assert!(output.contains(&missing) && output.contains("no such file"), "{output}");
    let nothing = Command::new(env!("CARGO_BIN_EXE_nprof-symbolize"))
        .args(["--explain", "nothing"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no ELF file, and no build ID"));
}

/// A stream with one frame of a process, recorded at a time of day in ns.
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
fn refuses_changed_file_without_a_build_id() {
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
    // A copy may keep the modification time; the time of the inode shows the change.
    let old = std::fs::File::options().append(true).open(&path).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(first(&at_time(&[], now - hour)).0, Status::Mismatch);
    // For a copy of another system only the modification time counts.
    assert!(is_complete(&first(&at_time(&["--symfs", "/"], now - hour))));
    let output = at_time(&["--explain", "prog"], now + hour);
    assert!(String::from_utf8(output.stderr).unwrap().contains("recorded without a build ID"));
}

/// A program that reports its start, and runs until the end of its input.
const WAITS: &str = "#include <stdio.h>\n\
    __attribute__((noinline)) int wait_here(void) { while (getchar() != EOF); return 0; }\n\
    int main(void) { puts(\"ready\"); fflush(stdout); return wait_here(); }\n";

/// Starts a command, and waits until the program in it is ready.
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
fn deleted_or_replaced_file_is_read_from_a_live_process() {
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
    // The program itself is found through exe, which needs fewer rights than map_files.
    assert!(message.contains("/exe: is the image"), "{message}");
    stop(child);
    let after = symbolize(&[], &input);
    assert_eq!(locations(&after.stdout), [(Status::Mismatch, vec![])]);
}

#[test]
fn deleted_or_replaced_library_is_read_from_a_live_process() {
    // Its links need CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
    let own = std::fs::read_dir("/proc/self/map_files").into_iter().flatten().flatten();
    if own.map(|entry| std::fs::File::open(entry.path())).all(|file| file.is_err()) {
        return eprintln!("SKIPPED: no right to read map_files");
    }
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (library, main) = WAITS.split_once("int main").unwrap();
    std::fs::write(at.join("wait.c"), library).unwrap();
    let main = format!("#include <stdio.h>\nint wait_here(void);\nint main{main}");
    std::fs::write(at.join("main.c"), main).unwrap();
    let build = "gcc -shared -fPIC -Wl,--build-id -o @/libwait.so @/wait.c";
    run_in(at, &format!("{build} -O1 -g"));
    run_in(at, "gcc -o @/prog @/main.c @/libwait.so");
    let binary = Binary::read(&at.join("libwait.so"));
    let offset = binary.offset(binary.symbol("wait_here") + 4);
    let child = start(&mut Command::new(at.join("prog")));
    run_in(at, "rm @/libwait.so");
    run_in(at, &format!("{build} -O0"));
    let input = text(child.id(), 0, &binary.id(), &binary.path, offset);
    let output = symbolize(&["--explain", "libwait.so"], &input);
    let (status, calls) = locations(&output.stdout).remove(0);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(status, Status::Named, "{message}");
    assert_eq!(calls.last().unwrap().name, "wait_here");
    let found = message.lines().find(|line| line.contains("is the image")).unwrap_or_default();
    assert!(found.contains("/map_files/"), "{message}");
    stop(child);
    let after = symbolize(&[], &input);
    assert_eq!(locations(&after.stdout), [(Status::Mismatch, vec![])]);
}

#[test]
fn debug_file_beside_the_recorded_path_is_found() {
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
fn files_of_a_container_are_read_from_a_live_process() {
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
fn combines_the_best_part_of_each_debug_file() {
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
    let output = explain(&args, at.join("prog").to_str().unwrap());
    assert!(output.contains(&format!("{}: names from .symtab", by_id.display())), "{output}");
    assert!(output.contains("prog.debug: inlined calls, files and lines from DWARF"), "{output}");
}
