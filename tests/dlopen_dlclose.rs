//! Libraries loaded and unloaded at run time: a frame belongs to the library that was mapped at its
//! address when the sample was taken.

use nprof_tests::{Shell, rows};

/// Loads a library, runs it and unloads it, then does the same with a second library, which the
/// kernel maps at the same address; prints the addresses of both functions.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
static int run(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
    void (*spin)(void) = (void (*)(void))dlsym(library, "spin");
    printf("%p\n", (void *)spin);
    spin();
    return dlclose(library);
}
int main(void) { return run("./first.so") || run("./second.so"); }
"#;

/// Spends half a second of CPU time in a function named after the library.
const LIBRARY: &str = r#"
#include <time.h>
static volatile unsigned sink;
static __attribute__((noinline)) void NAME_work(void) { for (int i = 0; i < 100000; i++) sink = sink * 3 + i; }
void spin(void) { for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;) NAME_work(); }
"#;

#[test]
fn names_library_mapped_at_address_of_unloaded_one() {
    let shell = Shell::new();
    shell.write("loader.c", LOADER);
    for name in ["first", "second"] {
        shell.write(&format!("{name}.c"), LIBRARY.replace("NAME", name));
        shell.run(&format!("gcc -O2 -g -shared -fPIC -o {name}.so {name}.c")).quiet();
    }
    shell.run("gcc -O2 -g -o loader loader.c -ldl").quiet();
    shell.run("nprof-record -q -o raw.nprof -- ./loader > places").quiet();
    let places = String::from_utf8(shell.read("places")).unwrap_or_default();
    let places: Vec<&str> = places.lines().collect();
    assert_eq!(places.len(), 2);
    // The kernel maps the second library into the hole that the first one left. Without that the
    // test would prove nothing.
    assert_eq!(places[0], places[1], "the second library was loaded elsewhere");
    let report = "nprof-symbolize raw.nprof | nprof-flat --by function,file,image --format tsv";
    let functions = rows(&shell.run(report).quiet());
    for name in ["first", "second"] {
        let is_work = |function: &str| function == format!("{name}_work");
        let found: Vec<_> = functions.iter().filter(|row| is_work(row.text("function"))).collect();
        let [row] = &found[..] else { panic!("{name}: {functions:#?}") };
        // Each library runs for half of the time; 30 % leaves room for loading and for lost samples.
        assert!(row.number("self_percent") > 30.0, "{functions:#?}");
        assert!(row.text("file").ends_with(&format!("/{name}.c")), "{row:?}");
        assert!(row.text("image").ends_with(&format!("/{name}.so")), "{row:?}");
    }
}
