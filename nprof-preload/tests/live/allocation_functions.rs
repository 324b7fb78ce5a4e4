//! Every function that allocates is counted once, and everything it returns can be freed.

use std::path::Path;

use crate::recorder::Workshop;

/// Where Debian has the libraries of other allocators.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
const ALLOCATORS: [&str; 4] = [
    "libjemalloc.so.2",
    "libtcmalloc_minimal.so.4",
    "libtcmalloc_minimal_debug.so.4",
    "libmimalloc.so.2.0",
];

const FUNCTIONS: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    void *block;
    free(malloc(10001));
    free(calloc(10002, 1));
    free(aligned_alloc(64, 64 * 200));
    if (posix_memalign(&block, 128, 10004)) return 1;
    free(block);
    free(memalign(32, 10005));
    free(valloc(10006));
    free(pvalloc(10007));
    block = malloc(10008);
    block = realloc(block, 10009);
    block = reallocarray(block, 2, 5005);
    free(realloc(block, 1000010));
    free(realloc(0, 10011));
    char text[10013];
    memset(text, 'x', 10012);
    text[10012] = 0;
    free(strdup(text));
    free(0);
    char *line = 0;
    size_t room = 0;
    FILE *file = fmemopen(text, 10012, "r");
    if (getline(&line, &room, file) != 10012) return 1;
    free(line);
    fclose(file);
}
"#;

#[test]
fn each_function_of_c_counts_once() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", FUNCTIONS, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    let mut sizes: Vec<u64> = run.only().allocations().map(|block| block.size).collect();
    sizes
        .retain(|&size| (10_001..=10_013).contains(&size) || size == 64 * 200 || size == 1_000_010);
    // The line of getline(3) grows from 120 bytes by doubling.
    assert_eq!(
        sizes,
        [
            10_001, 10_002, 12_800, 10_004, 10_005, 10_006, 10_007, 10_008, 10_009, 10_010,
            1_000_010, 10_011, 10_013
        ]
    );
    assert_eq!(run.only().totals(&Default::default()).live, Default::default());
}

const OPERATORS: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
struct alignas(64) Aligned { char bytes[20032]; };
struct Sized { ~Sized() {} char bytes[20005]; };
int main(int count, char **) {
    operator delete(operator new(20001));
    operator delete[](operator new[](20002));
    operator delete(operator new(20003, std::nothrow), std::nothrow);
    operator delete[](operator new[](20004, std::nothrow), std::nothrow);
    // Compilers may leave out an allocation that the program does not use.
    Sized *volatile sized = new Sized;
    delete sized;
    Aligned *volatile aligned = new Aligned;
    delete aligned;
    aligned = new Aligned[1];
    delete[] aligned;
    operator delete(operator new(20096, std::align_val_t(32), std::nothrow), std::align_val_t(32));
    delete (std::string *)nullptr;
    { std::string text(20006, 'x'); }
    if (count == 1) try {
        void *volatile block = operator new((size_t)1 << 60);
        return 1;
    } catch (const std::bad_alloc &) {}
    if (count == 1 && operator new((size_t)1 << 60, std::nothrow)) return 1;
    free(malloc(20008));
    puts("done");
}
"#;

/// Runs the program with operators and checks that each counts once. With an allocator that rounds sizes the string
/// has the room for its zero byte.
fn check_operators(program: &Path, workshop: &Workshop, preload: &str) {
    let run = workshop.run_with(
        program,
        |_| {},
        |command| {
            let library = workshop.path().join("libnprof.so");
            command.env("LD_PRELOAD", format!("{} {preload}", library.display()));
            // mimalloc, compiled as C, aborts the program instead of throwing an exception.
            if program.to_string_lossy().contains("mimalloc") || preload.contains("mimalloc") {
                command.arg("no exceptions");
            }
        },
    );
    assert!(run.status.success(), "{preload}: {}", run.status);
    assert_eq!(run.output, "done\n");
    let mut sizes: Vec<u64> = run.only().allocations().map(|block| block.size).collect();
    sizes.retain(|size| (20_001..=20_096).contains(size));
    let expected = [20_001, 20_002, 20_003, 20_004, 20_005, 20_032, 20_032, 20_096, 20_007, 20_008];
    assert_eq!(sizes, expected, "{preload}");
    let live = run.only().totals(&Default::default()).live;
    assert!(!live.values().any(|size| (20_001..=20_096).contains(size)), "{preload}: {live:?}");
}

#[test]
fn each_operator_of_cpp_counts_once() {
    let workshop = Workshop::new();
    let Some(program) = workshop.compile("g++", OPERATORS, &["-std=c++17"]) else { return };
    check_operators(&program, &workshop, "");
}

#[test]
fn each_operator_of_other_allocators_counts_once() {
    let workshop = Workshop::new();
    let Some(program) = workshop.compile("g++", OPERATORS, &["-std=c++17"]) else { return };
    for allocator in ALLOCATORS {
        if !Path::new(LIBRARIES).join(allocator).exists() {
            println!("SKIPPED {allocator}: not installed");
            continue;
        }
        check_operators(&program, &workshop, allocator);
        let options = ["-std=c++17", "-Wl,--no-as-needed", &format!("-l:{allocator}")];
        let linked = workshop.compile("g++", OPERATORS, &options).unwrap();
        let linked_name = workshop.path().join(format!("linked-{allocator}"));
        std::fs::rename(linked, &linked_name).unwrap();
        check_operators(&linked_name, &workshop, "");
    }
}
