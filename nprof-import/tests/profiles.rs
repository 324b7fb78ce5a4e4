//! Profiles of other programs: folded stacks, pprof and gperftools come back as they were.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nprof_tests::{ODD_NAME, Shell, have, heap, odd_names, rows, waits};

/// Returns self samples, self and total weight of a function in an event.
#[track_caller]
fn row(shell: &Shell, stream: &str, event: &str, function: &str) -> [u64; 3] {
    let table = shell.run(&format!(
        "nprof-flat --match event=^{event}$ --by function --format tsv -n 0 {stream}"
    ));
    let rows = rows(&table.out);
    let row = rows.iter().find(|row| row.text("function") == function);
    let row = row.unwrap_or_else(|| panic!("no {function}: {table:?}"));
    ["self_samples", "self", "total"].map(|column| row.text(column).parse().unwrap())
}

#[test]
fn folded_stacks_come_back_as_they_were() {
    let shell = Shell::new();
    shell.write("odd.nprof", odd_names());
    shell.run("nprof-paths --event cpu-clock --format folded odd.nprof > a.folded").quiet();
    shell.run("nprof-import a.folded > b.nprof").quiet();
    shell.run("nprof-format check b.nprof").quiet();
    shell.run("nprof-paths --format folded b.nprof > b.folded").quiet();
    shell.run("cmp a.folded b.folded").quiet();
    assert_eq!(row(&shell, "b.nprof", "samples", ODD_NAME)[0], 2);
    shell.write("bad", "a;b 1\na;c\n");
    let run = shell.run("nprof-import bad > x.nprof");
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.contains("bad: line 2: "), "{run:?}");
}

#[test]
fn pprof_file_comes_back_with_the_numbers_of_the_stream() {
    let shell = Shell::new();
    let waits = String::from_utf8(waits()).unwrap();
    let without_stack = waits.replace("@end\t", "S\t90\t1\t1\t0\t0\t3000000\t1\n@end\t");
    assert_ne!(waits, without_stack);
    shell.write("waits.nprof", without_stack);
    shell.run("nprof-export --to pprof --partial-ok -o p.pb.gz waits.nprof 2> /dev/null").quiet();
    let run = shell.run("nprof-import p.pb.gz > x.nprof");
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:?}");
    shell.run("nprof-format check x.nprof").quiet();
    assert_eq!(row(&shell, "x.nprof", "cpu-clock", "crc"), [4, 4_000_000, 4_000_000]);
    assert_eq!(row(&shell, "x.nprof", "cpu-clock", "handle"), [2, 2_000_000, 6_000_000]);
    assert_eq!(row(&shell, "x.nprof", "cpu-clock", "[no stack]"), [1, 3_000_000, 3_000_000]);
    let image =
        shell.run("nprof-flat --match event=^cpu-clock$ --by image --format tsv x.nprof").quiet();
    assert!(image.contains("cpu-clock\t[no stack]\t1\t"), "{image}");
    assert_eq!(row(&shell, "x.nprof", "blocked", "ep_poll"), [28, 28_000_000, 28_000_000]);
    // Not compressed, and from a pipe.
    shell.run("zcat p.pb.gz | nprof-import > y.nprof").quiet();
    assert_eq!(row(&shell, "y.nprof", "cpu-clock", "crc"), [4, 4_000_000, 4_000_000]);
}

/// The values of a heap profile of Go, with a stack of one function: 3 live objects of 4096 bytes in total,
/// of 7 of 8192 bytes.
const GO_HEAP: &[u8] = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x0a\x04\x08\x05\x10\x02\
    \x0a\x04\x08\x06\x10\x04\x12\x0b\x0a\x01\x01\x12\x06\x07\x80\x40\x03\x80\x20\
    \x22\x06\x08\x01\x22\x02\x08\x01\x2a\x04\x08\x01\x10\x07\
    \x32\x00\x32\x0dalloc_objects\x32\x05count\x32\x0balloc_space\x32\x05bytes\
    \x32\x0dinuse_objects\x32\x0binuse_space\x32\x08main.new";

#[test]
fn estimates_have_no_margins_of_error() {
    let shell = Shell::new();
    shell.write("heap.pb", GO_HEAP);
    shell.run("nprof-import heap.pb > x.nprof").quiet();
    shell.run("nprof-format check x.nprof").quiet();
    assert_eq!(row(&shell, "x.nprof", "alloc_space", "main.new"), [7, 8192, 8192]);
    assert_eq!(row(&shell, "x.nprof", "inuse_space", "main.new"), [3, 4096, 4096]);
    let table = shell.run("nprof-flat -v x.nprof").quiet();
    assert!(table.contains("margin:  unknown: the samples are estimates"), "{table}");
    let table = shell.run("nprof-flat --match event=inuse_space x.nprof").quiet();
    assert!(!table.contains('±'), "{table}");
    let json = shell.run("nprof-flat --match event=inuse_space --format json x.nprof").quiet();
    assert!(json.contains("\"self_margin\":null"), "{json}");
    let path = shell.run("nprof-paths --event inuse_space x.nprof").quiet();
    assert!(path.contains("100.00 %, 3 samples"), "{path}");
    shell.write("other.pb", [GO_HEAP, &b"\x48\x01"[..]].concat());
    shell.run("nprof-import other.pb > y.nprof").quiet();
    let diff = shell.run("nprof-diff --event inuse_space --base x.nprof --new y.nprof");
    assert_eq!(diff.status, 2, "{diff:?}");
    assert!(diff.err.contains("at least two runs"), "{diff:?}");
    // Weights that were not scaled up stay samples.
    shell.write("heap.nprof", heap());
    shell.run("nprof-export --to pprof heap.nprof 2> /dev/null | nprof-import > z.nprof").quiet();
    assert_eq!(row(&shell, "z.nprof", "heap\\.alloc", "grow"), [256, 1_048_576, 1_048_576]);
    let table = shell.run("nprof-flat --match event=heap.alloc z.nprof").quiet();
    assert!(table.contains('±'), "{table}");
}

#[test]
fn first_mapping_is_the_program_of_a_single_process_only() {
    let shell = Shell::new();
    let system = "@nprof\t1.1\trun=0x1\tcommand=system\n@event\tid=1\tname=cycles\n\
                  I\t1\telf\t-\t/bin/a\nF\t1\t1\t0x10\tu\nN\t1\t0\t1\n\
                  T\t1\t0\t7\t7\t0\ta\texe=/bin/a\nT\t2\t0\t8\t8\t0\tb\texe=/bin/b\n\
                  S\t1\t1\t1\t0\t1\t1\t1\nS\t2\t1\t2\t0\t1\t1\t1\n";
    let one = system.replace("S\t2\t1\t2\t", "S\t2\t1\t1\t");
    for (stream, expected) in [(system, 0), (&one, 1)] {
        shell.write("s.nprof", stream);
        shell.run("nprof-export --to pprof --partial-ok -o p.pb.gz s.nprof 2> /dev/null").quiet();
        let text = shell.run("nprof-import p.pb.gz | nprof-format text").out;
        assert_eq!(text.matches("exe=/bin/a").count(), expected, "{text}");
        assert!(!text.contains("exe=/bin/b"), "{text}");
    }
}

#[test]
fn profile_of_many_empty_messages_is_refused() {
    let shell = Shell::new();
    // Two bytes each, a hundred in memory.
    shell.run("yes $'\\022' | head -c 20000000 | tr '\\n' '\\0' > many.pb");
    let run = shell.run("nprof-import many.pb > x.nprof");
    assert_eq!(run.status, 2, "{run:?}");
    assert!(run.err.contains("many.pb: a profile that takes more than"), "{run:?}");
}

/// Returns a field of a message of protobuf with these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut found = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        found.push(length as u8 | 128);
        length >>= 7;
    }
    found.push(length as u8);
    found.extend(bytes);
    found
}

#[test]
fn name_of_many_inlined_calls_takes_its_memory_once() {
    let shell = Shell::new();
    let texts = ["", "samples", "count", &"x".repeat(1_000_000)];
    let mut profile: Vec<u8> = texts.iter().flat_map(|text| field(6, text.as_bytes())).collect();
    // The type of values, and the function 1 with the long name.
    profile.extend(field(1, &[8, 1, 16, 2]));
    profile.extend(field(5, &[8, 1, 16, 3]));
    for id in 1..=10 {
        let calls: Vec<u8> =
            (0..1000).flat_map(|call| field(4, &[8, 1, 16, (call + id) as u8 & 127])).collect();
        profile.extend(field(4, &[vec![8, id as u8], calls].concat()));
        profile.extend(field(2, &[8, id as u8, 16, 1]));
    }
    shell.write("calls.pb", profile);
    shell.run("(ulimit -v 1000000; exec nprof-import calls.pb) > x.nprof").quiet();
    shell.run("nprof-format check x.nprof").quiet();
}

#[test]
fn program_of_go_is_imported_as_pprof_shows_it() {
    if !have(&["go"]) {
        return;
    }
    let shell = Shell::new();
    shell.write(
        "main.go",
        "package main\nimport (\"os\"; \"runtime/pprof\"; \"time\")\n\
         //go:noinline\nfunc spin(x uint32) uint32 { for i := 0; i < 1000000; i++ { x = x*1664525 + 1013904223 }; return x }\n\
         func main() { f, _ := os.Create(\"cpu.pb.gz\"); pprof.StartCPUProfile(f); x := uint32(1)\n\
         for t := time.Now(); time.Since(t) < 500*time.Millisecond; { x = spin(x) }\n\
         pprof.StopCPUProfile(); f.Close(); os.Exit(int(x & 0)) }\n",
    );
    let run = shell
        .run("HOME=$PWD GOCACHE=$PWD/cache GO111MODULE=off go build -o prog main.go && ./prog");
    if run.status != 0 {
        return nprof_tests::skipped(&format!("go cannot build: {}", run.err));
    }
    shell.run("nprof-import cpu.pb.gz > x.nprof").quiet();
    let [samples, weight, _] = row(&shell, "x.nprof", "cpu", "main.spin");
    let top = shell.run("HOME=$PWD go tool pprof -top -unit=ns cpu.pb.gz").out;
    let line = top.lines().find(|line| line.contains("main.spin")).unwrap_or_default();
    assert_eq!(line.split_whitespace().next(), Some(&*format!("{weight}ns")), "{top}");
    assert_eq!(weight, samples * 10_000_000);
}

#[test]
fn gperftools_profile_has_its_samples() {
    let shell = Shell::new();
    let words: [u64; 18] =
        [0, 3, 0, 10_000, 0, 5, 2, 0x401010, 0x401020, 2, 1, 0x7fff0, 0, 1, 0, 0, 0, 0];
    let mut bytes: Vec<u8> = words[..15].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(b"00400000-00402000 r-xp 00000000 08:01 12 /opt/my prog (deleted)\n");
    shell.write("prof", &bytes);
    shell.run("nprof-import prof > x.nprof").quiet();
    shell.run("nprof-format check x.nprof").quiet();
    assert_eq!(row_of_address(&shell, "my prog+0x1010"), (5, 50_000_000));
    assert_eq!(row_of_address(&shell, "[unknown]+0x7fff0"), (2, 20_000_000));
    for length in [40, 60, 100] {
        shell.write("cut", &bytes[..length]);
        let run = shell.run("nprof-import cut > y.nprof");
        assert_eq!(run.status, 2, "{run:?}");
        assert!(run.err.contains("cut: byte "), "{run:?}");
    }
}

/// The mappings of the profiles below.
const MAPS: &str = "MAPPED_LIBRARIES:\n00400000-00402000 r--p 00000000 08:01 12 /opt/my prog\n\
                    00402000-00403000 r-xp 00002000 08:01 12 /opt/my prog\n";

/// Two blocks of 1000 bytes and one of 3000 were seen at one call at intervals of 4096 bytes, and all but one
/// of 1000 were released.
const JEMALLOC: &str = "heap_v2/4096\n  t*: 1: 1000 [3: 5000]\n  t0: 1: 1000 [3: 5000]\n\
                        @ 0x402010 0x403000\n  t*: 1: 1000 [2: 2000]\n  t0: 1: 1000 [2: 2000]\n\
                        @ 0x402020 0x403000\n  t*: 0: 0 [1: 3000]\n  t7: 0: 0 [1: 3000]\n\n";

#[test]
fn heap_profile_of_jemalloc_has_the_estimates_of_jeprof() {
    let shell = Shell::new();
    shell.write("jeprof.heap", format!("{JEMALLOC}{MAPS}"));
    shell.run("nprof-import jeprof.heap > x.nprof").quiet();
    shell.run("nprof-format check x.nprof").quiet();
    let unnamed = |event: &str, offset: &str| {
        let table = shell.run(&format!(
            "nprof-flat --match event={event} --by function --format tsv -n 0 x.nprof 2> /dev/null"
        ));
        let rows = rows(&table.out);
        let row = rows.iter().find(|row| row.text("function") == format!("my prog+{offset}"));
        let row = row.unwrap_or_else(|| panic!("no {offset}: {table:?}"));
        ["self_blocks", "self", "total"].map(|column| row.text(column).parse::<u64>().unwrap())
    };
    // 1 / (1 - exp(-1000 / 4096)) = 4.6163 and 1 / (1 - exp(-3000 / 4096)) = 1.9258.
    assert_eq!(unnamed("inuse_space", "0x2010"), [4, 4616, 4616]);
    assert_eq!(unnamed("alloc_space", "0x2010"), [9, 9232, 9232]);
    assert_eq!(unnamed("alloc_space", "0x2020"), [1, 5777, 5777]);
    // A call at the end of the mapping.
    assert_eq!(unnamed("alloc_space", "0x3000"), [0, 0, 15_009]);
    let table = shell.run("nprof-flat --match event=inuse_space x.nprof").out;
    assert!(table.contains("my prog+0x2010") && !table.contains('±'), "{table}");
}

#[test]
fn heap_profiles_of_tcmalloc_and_go_are_read() {
    let shell = Shell::new();
    let stack = "   2:  2000 [  3: 3000] @ 0x402010 0x402020\n# 0x402010 main.f+0x1 a.go:1\n\n";
    for (kind, maps, live, all) in [
        ("heapprofile", MAPS, 2000, 3000),
        ("heap_v2/4096", MAPS, 9232, 13_848),
        ("heap/8192", MAPS, 9232, 13_848),
        ("heap/8192", "", 9232, 13_848),
    ] {
        shell.write("heap", format!("heap profile:  2: 2000 [ 3: 3000] @ {kind}\n{stack}{maps}"));
        shell.run("nprof-import heap > x.nprof").quiet();
        let sum = |event: &str| -> u64 {
            let table =
                shell.run(&format!("nprof-flat --match event={event} --format tsv x.nprof"));
            let rows = rows(&table.out);
            rows.iter().map(|row| row.text("self").parse::<u64>().unwrap()).sum()
        };
        assert_eq!([sum("inuse_space"), sum("alloc_space")], [live, all], "{kind}");
    }
}

#[test]
fn damaged_heap_profile_is_refused_with_its_line() {
    let shell = Shell::new();
    for (text, message) in [
        (JEMALLOC, "MAPPED_LIBRARIES"),
        ("heap_v2/x\n", "line 1: it has no sampling interval"),
        ("heap_v2/9\n@ 0x1\n t*: 1: 2 [3]\n", "line 3: it has no numbers"),
        ("heap_v2/9\n@ 1 0x1\n", "line 2: an address"),
        ("heap_v2/9\nnoise\n", "line 2: it is neither"),
        ("heap profile: 1: 1 [1: 1] @ growthz\n", "line 1: it has no sums and kind"),
        ("heap profile: 1: 1 [1: 1] @ heapprofile\n1: 1 [1: 1]\n", "line 2: it is no line"),
        ("heap profile: 1: 1 [1: 1] @ heapprofile\n", "MAPPED_LIBRARIES"),
    ] {
        shell.write("bad", text);
        let run = shell.run("nprof-import bad > x.nprof");
        assert_eq!(run.status, 2, "{text}: {run:?}");
        assert!(run.err.contains(message), "{text}: {run:?}");
    }
}

/// Allocates 50 blocks of 100,000 bytes.
const ALLOCATE: &str = "#include <stdlib.h>\n#include <string.h>\nvoid *volatile kept[50];\n\
    __attribute__((noinline)) void grow(int i) { kept[i] = malloc(100000); memset(kept[i], 1, 100000); }\n\
    int main(void) { for (int i = 0; i < 50; i++) grow(i); return 0; }\n";

#[test]
fn allocators_write_profiles_that_are_read() {
    if !have(&["cc"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("a.c", ALLOCATE);
    shell.run("cc -g -O1 -o prog a.c").quiet();
    // Every block is seen at an interval of a byte.
    let jemalloc = "MALLOC_CONF=prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:./je";
    for (library, settings, files) in [
        ("libjemalloc.so.2", jemalloc, "je.*.heap"),
        ("libtcmalloc.so.4", "HEAPPROFILE=./tc", "tc.*.heap"),
    ] {
        let library = format!("/usr/lib/x86_64-linux-gnu/{library}");
        shell.run(&format!("{settings} LD_PRELOAD={library} ./prog 2> /dev/null"));
        // An allocator may be missing, or lack the profiler.
        if shell.run(&format!("ls {files} 2> /dev/null")).status != 0 {
            nprof_tests::skipped(&format!("{library} writes no heap profile"));
            continue;
        }
        shell
            .run(&format!("nprof-import {files} | nprof-symbolize 2> /dev/null > x.nprof"))
            .quiet();
        let [_, _, total] = row(&shell, "x.nprof", "inuse_space", "grow");
        // jemalloc rounds to a size that it has a class for.
        assert!((5_000_000..6_000_000).contains(&total), "{library}: {total}");
    }
}

#[test]
fn profiles_of_two_files_are_different_runs() {
    let shell = Shell::new();
    for (name, count) in [("base", 50), ("new", 90)] {
        shell.write(name, format!("prog;main;f {count}\nprog;main;g 50\n"));
        shell.run(&format!("nprof-import {name} > {name}.nprof")).quiet();
    }
    let run = shell.run("nprof-diff --fail-on any --base base.nprof --new new.nprof");
    assert!(!run.err.contains("on both sides"), "{run:?}");
}

fn row_of_address(shell: &Shell, address: &str) -> (u64, u64) {
    let table = shell.run("nprof-flat --format tsv -n 0 x.nprof 2> /dev/null").out;
    let rows = rows(&table);
    let row = rows.iter().find(|row| row.text("function") == address).expect(&table);
    (row.text("self_samples").parse().unwrap(), row.text("self").parse().unwrap())
}

#[test]
fn damaged_profile_is_an_error_and_never_a_panic() {
    let shell = Shell::new();
    shell.write("waits.nprof", waits());
    shell.run("nprof-export --to pprof waits.nprof 2> /dev/null | zcat > p.pb").quiet();
    let whole = shell.read("p.pb");
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        shell.write("damaged.pb", &damaged);
        let run = shell.run("nprof-import damaged.pb > x.nprof");
        assert!([0, 2].contains(&run.status), "byte {at}: {run:?}");
        assert!(!run.err.contains("panicked"), "byte {at}: {run:?}");
        assert!(run.status == 0 || run.err.contains(".pb: byte ") || run.err.contains("no format"));
    }
    shell.write("cut.pb", &whole[..whole.len() / 2]);
    let run = shell.run("nprof-import cut.pb > x.nprof");
    let (_, byte) = run.err.split_once("cut.pb: byte ").expect(&run.err);
    let byte: usize = byte.split(':').next().unwrap().parse().unwrap();
    assert!((whole.len() / 4..=whole.len() / 2).contains(&byte), "{run:?}");
    shell.run("gzip -c p.pb | head -c 300 > cut.pb.gz").quiet();
    let run = shell.run("nprof-import cut.pb.gz > x.nprof");
    assert!(run.status == 2 && run.err.contains("cut.pb.gz: byte 300: "), "{run:?}");
    for other in [&b""[..], b"\x00\xff\xfe no profile", b"PERFILE3\x00", b"some text\n"] {
        shell.write("other", other);
        let run = shell.run("nprof-import other > x.nprof");
        assert!(run.status == 2 && run.err.contains("no format"), "{run:?}");
    }
}
