//! Heap events of programs whose bytes, calls and leaks are known by construction.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::allocations::{Allocations, compile, recorded};
use crate::support::{Directory, Stream, frames, record, sampled_nodes, stderr};

/// Runs a test of random samples up to three times.
fn retried(test: impl Fn() -> Result<(), String>) {
    let failures: Vec<_> = (0..3).map_while(|_| test().err()).collect();
    assert!(failures.len() < 3, "{failures:?}");
}

/// The period of the tests in bytes.
const PERIOD: u64 = 64 << 10;
const OPTIONS: [&str; 2] = ["-e", "heap:64k"];

/// Returns the sizes of 200 sites, 16 bytes to 64 MiB, and their numbers of calls.
fn sites() -> Vec<(u64, u64)> {
    let size = |site: i32| (16.0 * 2_f64.powf(22.0 * f64::from(site) / 199.0)) as u64;
    (0..200).map(|site| (size(site), (8 * PERIOD / size(site)).max(5))).collect()
}

#[test]
fn two_hundred_sites_have_their_bytes_and_calls() {
    let directory = Directory::new("heap-200-sites");
    let sites = sites();
    let mut source = "#include <stdlib.h>\nstatic void *volatile sink;\n".to_owned();
    let (mut table, mut calls) = (String::new(), String::new());
    for (site, (size, number)) in sites.iter().enumerate() {
        writeln!(
            source,
            "__attribute__((noinline)) void site_{site}(void) {{ sink = malloc({size}); free(sink); }}"
        )
        .expect("room");
        write!(table, "site_{site}, ").expect("room");
        write!(calls, "{number}, ").expect("room");
    }
    write!(
        source,
        "static void (*sites[])(void) = {{ {table} }};
        static const long calls[] = {{ {calls} }};
        static long done[200];
        int main(void) {{
            for (long round = 1; round <= 1000; round++)
                for (int site = 0; site < 200; site++)
                    while (done[site] * 1000 < round * calls[site]) {{ sites[site](); done[site]++; }}
            return 0;
        }}"
    )
    .expect("room");
    let Some(program) = compile(&directory, &source) else { return };
    retried(|| {
        let heap = recorded(&directory, &program, &OPTIONS);
        let (mut small, mut outside) = (0, Vec::new());
        for (site, &(size, calls)) in sites.iter().enumerate() {
            let truth = size * calls;
            let found = heap.of("heap.alloc", &format!("site_{site}"));
            // Each has a sample of its own, with its size.
            if size >= PERIOD {
                assert_eq!((found.weight, found.samples), (truth, calls), "site {site}");
                continue;
            }
            // In one thread the error is smaller: samples have equal distances.
            small += 1;
            let error = ((truth * PERIOD) as f64).sqrt();
            if (found.weight as f64 - truth as f64).abs() > 3.0 * error {
                outside.push((site, found.weight, truth));
            }
        }
        assert_eq!(heap.weight("heap.free", ""), heap.weight("heap.alloc", ""), "all are released");
        // The margin of a site that has 8 samples is exceeded in 0.4 % of all cases.
        if outside.len() * 50 > small { Err(format!("{outside:?}")) } else { Ok(()) }
    });
}

/// `large` keeps 100 blocks of 1 MiB, `small` COUNT of 32 bytes; those of `churn` are released by four other threads.
const LEAKS: &str = "
    #include <pthread.h>
    #include <stdlib.h>
    static void *kept[100], **list;
    static struct block { struct block *next; } *released[4];
    __attribute__((noinline)) void large(void) {
        for (int i = 0; i < 100; i++) kept[i] = malloc(1 << 20);
    }
    __attribute__((noinline)) void small(void) {
        for (int i = 0; i < COUNT; i++) {
            void **block = malloc(32);
            *block = list;
            list = block;
        }
    }
    __attribute__((noinline)) void churn(void) {
        for (int i = 0; i < COUNT / 4; i++) {
            struct block *block = malloc(i % 2000 ? 16 + i % 500 : 200000);
            block->next = released[i % 4];
            released[i % 4] = block;
        }
    }
    static void *release(void *of) {
        struct block **first = of;
        while (*first) {
            struct block *block = *first;
            *first = block->next;
            free(block);
        }
        return 0;
    }
    int main(void) {
        pthread_t threads[4];
        large(); small(); churn();
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, release, &released[i]);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        return 0;
    }";

fn leaks(directory: &Directory, count: u64, options: &[&str]) -> Option<Allocations> {
    let program = compile(directory, &LEAKS.replace("COUNT", &count.to_string()))?;
    let heap = recorded(directory, &program, options);
    assert_eq!(heap.weight("heap.live", "large"), 100 << 20);
    assert_eq!(heap.of("heap.live", "churn").samples, 0, "a false leak");
    assert!(heap.weight("heap.free", "churn") > 0);
    assert_eq!(heap.weight("heap.free", "churn"), heap.weight("heap.alloc", "churn"));
    Some(heap)
}

#[test]
fn leaks_are_found_and_no_others() {
    let directory = Directory::new("heap-leaks");
    retried(|| {
        let Some(heap) = leaks(&directory, 1_000_000, &OPTIONS) else { return Ok(()) };
        let (small, truth) = (heap.weight("heap.live", "small") as f64, 32e6);
        let error = (truth * PERIOD as f64).sqrt();
        // The control blocks of the threads are live, too: one of them is sampled in 2 % of all cases.
        let leaked = (100 << 20) + heap.weight("heap.live", "small");
        let is_true =
            (small - truth).abs() <= 4.0 * error && heap.weight("heap.live", "") == leaked;
        if is_true { Ok(()) } else { Err(format!("{small} instead of {truth}")) }
    });
}

#[test]
fn leaks_are_exact_if_each_block_is_recorded() {
    let directory = Directory::new("heap-exact-leaks");
    let Some(heap) = leaks(&directory, 40_000, &["-e", "heap:1"]) else { return };
    // The control blocks of the threads are live, too.
    assert_eq!(heap.weight("heap.live", "small"), 40_000 * 32);
}

/// Allocates with several functions, and holds most when it frees `aligned`: massif looks at the peak before a free, and
/// misses one that a realloc(3) ends.
const PHASES: &str = "
    #include <malloc.h>
    #include <stdlib.h>
    static void *kept[3000];
    __attribute__((noinline)) void fill(int count, int size) {
        for (int i = 0; i < count; i++) kept[i] = i % 3 ? malloc(size + i) : calloc(i + 1, size / 100);
    }
    __attribute__((noinline)) void grow(int count) {
        for (int i = 0; i < count; i += 7) kept[i] = realloc(kept[i], 40000 + i);
    }
    __attribute__((noinline)) void empty(int count) {
        for (int i = 0; i < count; i++) free(kept[i]);
    }
    int main(void) {
        fill(1000, 500); empty(1000);
        fill(3000, 900); grow(3000);
        void *aligned = memalign(4096, 100000);
        free(aligned); empty(3000);
        fill(2000, 300); empty(2000);
        return 0;
    }";

#[test]
fn peak_is_that_of_massif() {
    let directory = Directory::new("heap-massif");
    let Some(program) = compile(&directory, PHASES) else { return };
    let profile = directory.path("massif");
    let mut massif = Command::new("valgrind");
    massif.args(["-q", "--tool=massif", "--peak-inaccuracy=0.0"]);
    let Ok(output) = massif.arg(format!("--massif-out-file={profile}")).arg(&program).output()
    else {
        return eprintln!("SKIPPED: there is no valgrind");
    };
    if !output.status.success() {
        return eprintln!("SKIPPED: valgrind does not work here: {output:?}");
    }
    let text = fs::read_to_string(&profile).expect("a profile");
    // The lines of a snapshot end with that of its tree.
    let (before, _) = text.split_once("heap_tree=peak").expect("a peak");
    let (_, bytes) = before.rsplit_once("mem_heap_B=").expect("its bytes");
    let peak: u64 = bytes.lines().next().and_then(|line| line.parse().ok()).expect("a number");
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    assert_eq!((heap.weight("heap.peak", ""), heap.weight("heap.live", "")), (peak, 0));
}

/// Other allocators align blocks of at most 8 bytes to 8.
#[test]
fn released_neighbours_of_eight_bytes_are_not_live() {
    let directory = Directory::new("heap-eight-bytes");
    let source = "
        #include <stdlib.h>
        static void *blocks[20000];
        int main(void) {
            for (int i = 0; i < 20000; i++) blocks[i] = malloc(i % 8 + 1);
            for (int i = 0; i < 20000; i += 2) free(blocks[i]);
            for (int i = 1; i < 20000; i += 2) free(blocks[i]);
            return 0;
        }";
    let mut found = 0;
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2.0"] {
        let places = ["x86_64", "aarch64"].map(|arch| format!("/usr/lib/{arch}-linux-gnu/{name}"));
        let is_there = |path: &String| fs::exists(path).is_ok_and(|exists| exists);
        let Some(path) = places.into_iter().find(is_there) else { continue };
        let options = ["-O1", "-fno-builtin", "-Wl,--no-as-needed", &path];
        let Some(program) = directory.compile("gcc", source, &options) else { return };
        found += 1;
        let heap = recorded(&directory, &program, &["-e", "heap:1"]);
        assert_eq!(heap.of("heap.alloc", "main").samples, 20_000, "{name}");
        assert_eq!(heap.of("heap.live", "main").samples, 0, "{name}");
    }
    if found == 0 {
        eprintln!("SKIPPED: no other allocator");
    }
}

#[test]
fn blocks_that_jemalloc_frees_by_its_own_functions_are_not_live() {
    let directory = Directory::new("heap-sdallocx");
    let places =
        ["x86_64", "aarch64"].map(|arch| format!("/usr/lib/{arch}-linux-gnu/libjemalloc.so.2"));
    let is_there = |path: &&String| fs::exists(path).is_ok_and(|exists| exists);
    let Some(path) = places.iter().find(is_there) else {
        return eprintln!("SKIPPED: no jemalloc");
    };
    let source = "
        #include <stdlib.h>
        void sdallocx(void *block, size_t size, int flags);
        void dallocx(void *block, int flags);
        int main(void) {
            for (int i = 0; i < 1000; i++) sdallocx(malloc(1000), 1000, 0);
            for (int i = 0; i < 1000; i++) dallocx(malloc(1000), 0);
            return 0;
        }";
    let options = ["-O1", "-fno-builtin", "-Wl,--no-as-needed", path];
    let Some(program) = directory.compile("gcc", source, &options) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    let count = |event| heap.of(event, "main").samples;
    assert_eq!(["heap.alloc", "heap.free", "heap.live"].map(count), [2000, 2000, 0]);
}

/// A burst of 900 MB must not hide the 88 MB that stay, which come right after it.
#[test]
fn adapted_period_finds_what_stays_after_a_burst() {
    let directory = Directory::new("heap-burst");
    let source = "
        #include <stdlib.h>
        #include <unistd.h>
        static void *volatile sink, *kept[400000];
        __attribute__((noinline)) static void churn(void) {
            for (int i = 0; i < 300000; i++) { sink = malloc(3000); free(sink); }
        }
        __attribute__((noinline)) static void keep(void) {
            for (int i = 0; i < 50; i++) kept[i] = malloc(1 << 20);
            for (int i = 50; i < 390000; i++) kept[i] = malloc(100);
        }
        int main(void) {
            churn();
            usleep(50000);
            keep();
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    retried(|| {
        let heap = recorded(&directory, &program, &["-e", "heap"]);
        let truth = (50_u64 << 20) as f64 + 100.0 * 389_950.0;
        let found = ["heap.peak", "heap.live"].map(|event| heap.weight(event, "keep") as f64);
        let is_near = |found: &f64| (found / truth - 1.0).abs() < 0.5;
        if found.iter().all(is_near) { Ok(()) } else { Err(format!("{found:?} of {truth}")) }
    });
}

#[test]
fn period_of_all_events_is_that_of_memory() {
    let directory = Directory::new("heap-period");
    let source = "
        #include <stdlib.h>
        int main(void) {
            for (int i = 0; i < 1000; i++) free(malloc(100));
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap", "-c", "1"]);
    let found = heap.of("heap.alloc", "main");
    assert_eq!((found.weight, found.samples), (100_000, 1000));
}

/// Three libraries take turns at one address, and other threads use the ring. Each has a size of its own.
#[test]
fn blocks_of_libraries_at_one_address_are_those_of_each() {
    let directory = Directory::new("heap-plugins");
    let library = "#include <stdlib.h>
        __attribute__((noinline)) void *take(size_t bytes) { return malloc(bytes); }
        void use(size_t bytes) { free(take(bytes)); }
        const char *name(void) { return";
    for name in ["a.so", "b.so", "c.so"] {
        let options = ["-O1", "-fno-builtin", "-shared", "-fPIC"];
        // Equal files would be one image.
        let library = format!("{library} \"{name}\"; }}");
        let Some(built) = directory.compile("gcc", &library, &options) else { return };
        fs::rename(built, directory.path(name)).expect("renamed");
    }
    let source = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdlib.h>
        static volatile int stop;
        static void *churn(void *unused) {
            while (!stop) free(malloc(40));
            return unused;
        }
        int main(int count, char **libraries) {
            pthread_t thread;
            pthread_create(&thread, 0, churn, 0);
            unsigned seed = 13;
            for (int round = 0; round < 50; round++) {
                seed = seed * 1103515245 + 12345;
                int number = 1 + (seed >> 16) % 3;
                void *library = dlopen(libraries[number], RTLD_NOW);
                void (*use)(size_t) = dlsym(library, "use");
                for (int again = 0; again < 3; again++) use(3000 + number);
                dlclose(library);
            }
            stop = 1;
            return pthread_join(thread, 0);
        }"#;
    let options = ["-O1", "-fno-builtin", "-pthread", "-ldl"];
    let Some(program) = directory.compile("gcc", source, &options) else { return };
    let libraries = ["a.so", "b.so", "c.so"].map(|name| directory.path(name));
    // Without the order of mappings and blocks most runs fail.
    for _ in 0..5 {
        let file = directory.path("out");
        let [a, b, c] = libraries.each_ref().map(String::as_str);
        let output = record(&["-e", "heap.alloc:1", "-o", &file, "--", &program, a, b, c]);
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::read(&fs::read(&file).expect("a stream"));
        let mut seen = 0;
        for sample in stream.samples.iter().filter(|sample| (3001..=3003).contains(&sample.weight))
        {
            let expected = ["a.so", "b.so", "c.so"][sample.weight as usize - 3001];
            let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
            assert!(images.contains(&expected), "{}: {images:?}", sample.weight);
            seen += 1;
        }
        assert_eq!(seen, 150);
    }
}

/// The parent of a process that has recorded nothing is not the one with its blocks.
#[test]
fn grandchild_has_the_blocks_of_the_first_fork() {
    let directory = Directory::new("heap-grandchild");
    let source = "
        #include <stdlib.h>
        #include <unistd.h>
        #include <sys/wait.h>
        #define SITE __attribute__((noinline)) void *
        SITE before(int bytes) { void *volatile block = malloc(bytes); return block; }
        SITE after(int bytes) { void *volatile block = malloc(bytes); return block; }
        SITE child(int bytes) { void *volatile block = malloc(bytes); return block; }
        SITE grandchild(int bytes) { void *volatile block = malloc(bytes); return block; }
        int main(void) {
            void *blocks[10];
            int ready[2];
            char byte = 0;
            for (int at = 0; at < 10; at++) blocks[at] = before(100);
            if (pipe(ready)) return 2;
            if (!fork()) {
                if (!fork()) {
                    if (read(ready[0], &byte, 1) != 1) _exit(2);
                    for (int at = 0; at < 3; at++) free(blocks[at]);
                    grandchild(5);
                    _exit(0);
                }
                wait(0);
                child(7);
                for (int at = 0; at < 5; at++) free(blocks[at]);
                _exit(0);
            }
            for (int at = 0; at < 10; at++) {
                free(blocks[at]);
                blocks[at] = after(200);
            }
            if (write(ready[1], &byte, 1) != 1) return 2;
            wait(0);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    let live = |function| heap.weight("heap.live", function);
    // 500 bytes of the child and 700 of the grandchild.
    let found = ["before", "after", "child", "grandchild"].map(live);
    assert_eq!(found, [1200, 2000, 7, 5]);
    assert_eq!(heap.weight("heap.peak", "before"), 2000);
}

#[test]
fn child_has_descriptors_of_which_the_parent_uses_the_numbers_again() {
    let directory = Directory::new("fd-numbers");
    let source = "
        #include <fcntl.h>
        #include <unistd.h>
        #include <sys/wait.h>
        #define SITE __attribute__((noinline)) int
        SITE before(void) { volatile int number = open(\"/dev/null\", O_RDONLY); return number; }
        SITE after(void) { volatile int number = open(\"/dev/zero\", O_RDONLY); return number; }
        int main(void) {
            int numbers[4], ready[2];
            char byte = 0;
            for (int at = 0; at < 4; at++) numbers[at] = before();
            if (pipe(ready)) return 2;
            if (!fork()) {
                if (read(ready[0], &byte, 1) != 1) _exit(2);
                after();
                _exit(0);
            }
            close(numbers[0]);
            after();
            dup2(numbers[3], numbers[1]);
            close(numbers[2]);
            if (write(ready[1], &byte, 1) != 1) return 2;
            wait(0);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let descriptors = recorded(&directory, &program, &["-e", "fd"]);
    let live = |function| descriptors.of("fd.live", function).samples;
    // One of the parent and four of the child; one of each.
    assert_eq!(["before", "after"].map(live), [5, 2]);
}

/// Opens a file with fopen(3), in which the C library allocates a block: between both is the library's own fopen.
#[test]
fn functions_of_the_library_are_on_no_stack() {
    let directory = Directory::new("heap-own-frames");
    let source = "
        #include <stdio.h>
        __attribute__((noinline)) void site(void) { FILE *file = fopen(\"/etc/passwd\", \"r\"); fclose(file); }
        int main(void) { for (int i = 0; i < 100; i++) site(); return 0; }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    assert!(heap.of("heap.alloc", "site").samples >= 100);
    let bytes = fs::read(directory.path("out")).expect("a stream");
    let (tables, nodes, _) = sampled_nodes(&bytes);
    for node in nodes {
        let (frames, _, _) = frames(&tables, node);
        assert!(frames.iter().all(|(image, _)| !image.contains("libnprof")), "{frames:?}");
    }
}
