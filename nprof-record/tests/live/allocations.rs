//! Heap and fd events: bytes by caller, leaks, the peak, fork and exec, users without rights.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use nprof_stream::tables::Tables;
use nprof_stream::{Mark, Reader, Record, Verdict};

use crate::support::{Directory, can_record, record, record_as_other_user_with, recorder, stderr};
use crate::symbols::Symbols;

/// The samples of a function and the functions below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) samples: u64,
    pub(crate) weight: u64,
}

/// The samples of heap and fd events in a stream.
pub(crate) struct Allocations {
    pub(crate) verdict: Verdict,
    /// By event and function of the program; the empty name has all samples of an event.
    totals: BTreeMap<(String, String), Total>,
    /// The values of `on` by event.
    objects: Vec<(String, String)>,
    /// The names of the processes with samples of an event below the function main, at these.
    commands: BTreeSet<(String, String)>,
    /// The number of samples with an incomplete stack.
    incomplete: usize,
}

impl Allocations {
    /// Reads the stream in a file. Functions are those of `program`.
    pub(crate) fn read(file: &str, program: &str) -> Self {
        let program = Symbols::from_file(program);
        let bytes = fs::read(file).expect("a stream");
        let (mut tables, mut reader) = (Tables::new(), Reader::new(&bytes[..]));
        let mut events = BTreeMap::new();
        let mut totals = BTreeMap::<(String, String), Total>::new();
        let (mut objects, mut incomplete) = (Vec::new(), 0);
        let mut commands = BTreeSet::new();
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match &record {
                Record::Event(event) => {
                    events.insert(event.id, String::from_utf8_lossy(&event.name).into_owned());
                }
                Record::Sample(sample) => {
                    let event = events[&sample.event].clone();
                    let path = program.on_path(&tables, sample.node);
                    incomplete += usize::from(tables.stack_mark(sample.node) != Mark::None);
                    // Recursion counts once.
                    let functions: BTreeSet<&str> =
                        path.into_iter().flatten().chain([""]).collect();
                    if functions.contains("main")
                        && let Some(task) = tables.task(sample.task)
                    {
                        let name = String::from_utf8_lossy(tables.names.get(task.comm));
                        commands.insert((event.clone(), name.into_owned()));
                    }
                    for function in functions {
                        let total = totals.entry((event.clone(), function.to_owned())).or_default();
                        total.samples += 1;
                        total.weight += sample.weight;
                    }
                    if let Some(on) = sample.extras.get("on") {
                        objects.push((event, String::from_utf8_lossy(&on).into_owned()));
                    }
                }
                _ => {}
            }
        }
        Self { verdict: reader.verdict(), totals, objects, commands, incomplete }
    }

    pub(crate) fn of(&self, event: &str, function: &str) -> Total {
        let key = (event.to_owned(), function.to_owned());
        self.totals.get(&key).copied().unwrap_or_default()
    }

    pub(crate) fn weight(&self, event: &str, function: &str) -> u64 {
        self.of(event, function).weight
    }
}

/// Compiles a program whose functions are not inlined, nor its allocations removed.
pub(crate) fn compile(directory: &Directory, source: &str) -> Option<String> {
    directory.compile("gcc", source, &["-O1", "-fno-builtin", "-pthread", "-w"])
}

/// Records a program with options, and reads the stream.
pub(crate) fn recorded(directory: &Directory, program: &str, options: &[&str]) -> Allocations {
    let file = directory.path("out");
    let output = record(&[options, &["-o", &file, "--", program]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let allocations = Allocations::read(&file, program);
    assert_eq!(allocations.verdict, Verdict::Complete);
    allocations
}

/// `large` allocates 20 MiB in blocks of 1 MiB and releases half of them; `small` allocates 640,000 blocks of
/// 100 bytes and releases all; `leak` allocates 5 blocks of 2 MiB and releases none.
const SITES: &str = "
    #include <stdlib.h>
    void *kept[5];
    __attribute__((noinline)) void large(void) {
        void *blocks[20];
        for (int i = 0; i < 20; i++) blocks[i] = malloc(1 << 20);
        for (int i = 0; i < 20; i += 2) free(blocks[i]);
        for (int i = 1; i < 20; i += 2) kept[0] = blocks[i];
    }
    __attribute__((noinline)) void small(void) {
        static void *blocks[10000];
        for (int round = 0; round < 64; round++) {
            for (int i = 0; i < 10000; i++) blocks[i] = malloc(100);
            for (int i = 0; i < 10000; i++) free(blocks[i]);
        }
    }
    __attribute__((noinline)) void leak(void) {
        for (int i = 0; i < 5; i++) kept[i] = calloc(2, 1 << 20);
    }
    int main(void) { large(); small(); leak(); return 0; }";

#[test]
fn bytes_and_leaks_of_each_function_are_true() {
    let directory = Directory::new("heap-sites");
    let Some(program) = compile(&directory, SITES) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:64k"]);
    assert_eq!(heap.incomplete, 0);
    // Blocks of a period or more are exact.
    assert_eq!(heap.of("heap.alloc", "large"), Total { samples: 20, weight: 20 << 20 });
    assert_eq!(heap.of("heap.alloc", "leak"), Total { samples: 5, weight: 10 << 20 });
    assert_eq!(heap.weight("heap.free", "large"), 10 << 20);
    assert_eq!(heap.weight("heap.live", "large"), 10 << 20);
    assert_eq!(heap.weight("heap.live", "leak"), 10 << 20);
    // 64,000,000 bytes at one sample in 65,536: the error is below one period for each thread.
    let small = heap.weight("heap.alloc", "small");
    assert!(small.abs_diff(64_000_000) <= 2 * 65536, "{small}");
    assert_eq!(heap.weight("heap.free", "small"), small, "all are released");
    assert_eq!(heap.weight("heap.live", "small"), 0, "no false leak");
    // 10 MiB and 10 MiB at the end; 20 MiB at the end of the first loop of `large`.
    let peak = heap.weight("heap.peak", "");
    assert!((20 << 20..=21 << 20).contains(&peak), "{peak}");
    let allocated = heap.weight("heap.alloc", "main");
    let live = heap.weight("heap.live", "main");
    assert_eq!(allocated - heap.weight("heap.free", "main"), live, "the books close");
}

#[test]
fn exact_mode_has_each_block() {
    let directory = Directory::new("heap-exact");
    let source = "
        #include <stdlib.h>
        #include <string.h>
        __attribute__((noinline)) void site(void) {
            char *p = malloc(10);
            p = realloc(p, 1000);
            p = realloc(p, 20);
            free(p);
            free(calloc(3, 7));
            free(strdup(\"four\"));
            void *q;
            if (posix_memalign(&q, 64, 640)) abort();
            free(q);
            free(aligned_alloc(32, 96));
            free(0);
        }
        int main(void) { for (int i = 0; i < 100; i++) site(); return 0; }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    let bytes = 10 + 1000 + 20 + 21 + 5 + 640 + 96;
    assert_eq!(heap.of("heap.alloc", "site"), Total { samples: 700, weight: 100 * bytes });
    assert_eq!(heap.of("heap.free", "site"), Total { samples: 700, weight: 100 * bytes });
    assert_eq!(heap.of("heap.live", "site"), Total::default());
}

/// The library knows all stacks after the first round, and must tell those of equal size apart: `one` and `two`
/// differ by a return address alone, and `varying` is found by a frame pointer.
#[test]
fn known_stacks_are_told_apart() {
    let directory = Directory::new("heap-known");
    let source = "
        #include <stdlib.h>
        #include <string.h>
        #define OUT __attribute__((noinline, noclone))
        OUT void site(int size) { void *p = malloc(size); __asm__ volatile(\"\" ::: \"memory\"); free(p); }
        OUT void one(int level, int size) { if (level) one(level - 1, size); else site(size); __asm__(\"\"); }
        OUT void two(int level, int size) { if (level) two(level - 1, size); else site(size); __asm__(\"\"); }
        OUT void varying(int size) {
            char *room = __builtin_alloca(size % 7 * 16 + 1);
            memset(room, size, 1);
            site(size);
            __asm__ volatile(\"\" :: \"r\"(room) : \"memory\");
        }
        int main(void) {
            for (int i = 0; i < 3000; i++) { one(i % 40, 10); two(i % 40, 1000); varying(100000 + i % 7); }
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    assert_eq!(heap.incomplete, 0);
    let sum = (0..3000).map(|i| 100_000 + i % 7).sum();
    for event in ["heap.alloc", "heap.free"] {
        assert_eq!(heap.of(event, "one"), Total { samples: 3000, weight: 30_000 });
        assert_eq!(heap.of(event, "two"), Total { samples: 3000, weight: 3_000_000 });
        assert_eq!(heap.of(event, "varying"), Total { samples: 3000, weight: sum });
    }
    // Blocks of at least the period are exact, too.
    let heap = recorded(&directory, &program, &["-e", "heap:512"]);
    assert_eq!(heap.incomplete, 0);
    for event in ["heap.alloc", "heap.free"] {
        assert_eq!(heap.of(event, "two").weight, 3_000_000);
        assert_eq!(heap.of(event, "varying").weight, sum);
        // Of the rest 59 samples of 512 bytes are expected: six standard deviations.
        let one = heap.of(event, "one").weight;
        assert!((6_500..=53_500).contains(&one), "{one}");
    }
}

/// A coroutine in memory right below the stack of its thread, which has no guard page, and another one below
/// that, which goes on after the memory between is unmapped.
const UNGUARDED: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
enum { PART = 256 << 10 };
static char *base;
static ucontext_t thread, coroutine;
static void allocate(void) {
    for (int i = 0; i < 2000; i++) free(malloc(3000 + i));
    swapcontext(&coroutine, &thread);
}
static void run(char *stack) {
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = PART;
    makecontext(&coroutine, allocate, 0);
    swapcontext(&thread, &coroutine);
}
static void *work(void *none) {
    free(malloc(3000));
    run(base + PART);
    run(base);
    munmap(base + PART, PART);
    run(base);
    return none;
}
int main(void) {
    pthread_t id;
    pthread_attr_t attributes;
    base = mmap(0, 4 * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, base + 2 * PART, 2 * PART);
    if (pthread_create(&id, &attributes, work, 0) || pthread_join(id, 0)) return 1;
    puts("done");
}
"#;

#[test]
fn coroutines_below_a_stack_without_guard_page_are_unharmed() {
    let directory = Directory::new("heap-unguarded");
    let flags = ["-O0", "-fno-builtin", "-pthread"];
    let Some(program) = directory.compile("gcc", UNGUARDED, &flags) else { return };
    for event in ["heap:1", "heap:4096"] {
        let output = record(&["-e", event, "-o", &directory.path("out"), "--", &program]);
        assert!(output.status.success(), "{event}: {}: {}", output.status, stderr(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
    }
}

#[test]
fn allocations_before_the_delay_are_not_recorded() {
    let directory = Directory::new("heap-delay");
    let source = "
        #include <stdlib.h>
        #include <unistd.h>
        void *volatile sink;
        __attribute__((noinline)) void early(void) { sink = malloc(1000); }
        __attribute__((noinline)) void late(void) { sink = malloc(2000); }
        int main(void) {
            early();
            usleep(600000);
            late();
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1", "--delay", "300ms"]);
    assert_eq!(heap.weight("heap.alloc", "early"), 0);
    for event in ["heap.alloc", "heap.live", "heap.peak"] {
        assert_eq!(heap.weight(event, "late"), 2000, "{event}");
        assert_eq!(heap.weight(event, ""), 2000, "{event}");
    }
}

#[test]
fn process_that_forks_without_the_function_has_the_blocks_of_its_parent() {
    let directory = Directory::new("heap-clone");
    let source = "
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void *volatile kept[3];
        __attribute__((noinline)) void first(void) { kept[0] = malloc(1000); }
        __attribute__((noinline)) void second(void) { kept[1] = malloc(2000); }
        __attribute__((noinline)) void third(void) { kept[2] = malloc(4000); }
        int main(void) {
            first();
            if (fork() == 0) {
                free(kept[0]);
                second();
                if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) third();
                while (wait(0) > 0) {}
                _exit(0);
            }
            free(kept[0]);
            while (wait(0) > 0) {}
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    let live = ["first", "second", "third"].map(|site| heap.weight("heap.live", site));
    // Both processes have the second block.
    assert_eq!(live, [0, 4000, 4000]);
}

/// The child waits until its parent has allocated more, and then has its first record.
#[test]
fn process_forked_without_the_function_has_no_later_blocks_of_its_parent() {
    if !can_record() {
        return eprintln!("SKIPPED: no records of forks");
    }
    let directory = Directory::new("heap-raw-fork");
    let source = "
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        void *volatile kept;
        __attribute__((noinline)) void before(void) { kept = malloc(1000); }
        __attribute__((noinline)) void after(void) { for (int i = 0; i < 100; i++) kept = malloc(100); }
        __attribute__((noinline)) void child(void) { kept = malloc(2000); }
        int main(void) {
            int ready[2];
            char byte;
            if (pipe(ready)) return 1;
            before();
            if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
                int got = read(ready[0], &byte, 1);
                child();
                _exit(got != 1);
            }
            after();
            if (write(ready[1], \"x\", 1) != 1) return 1;
            wait(0);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:1"]);
    let live = ["before", "after", "child"].map(|site| heap.weight("heap.live", site));
    // Both processes have the first block.
    assert_eq!(live, [2000, 10_000, 2000]);
}

#[test]
fn close_range_that_fails_closes_nothing() {
    let directory = Directory::new("fd-range");
    let source = "
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < 4; i++) open(\"/dev/null\", O_RDONLY);
            return close_range(3, ~0u, 64) == 0 || close_range(9, 3, 0) == 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let descriptors = recorded(&directory, &program, &["-e", "fd"]);
    let count = |event| descriptors.weight(event, "main");
    assert_eq!(["fd.open", "fd.close", "fd.live"].map(count), [4, 0, 4]);
}

#[test]
fn peak_is_that_of_plateau_and_not_of_later_churn() {
    let directory = Directory::new("heap-peak");
    let source = "
        #include <stdlib.h>
        void *volatile sink;
        __attribute__((noinline)) void plateau(void) {
            void *blocks[30];
            for (int i = 0; i < 30; i++) blocks[i] = malloc(1 << 20);
            for (int i = 0; i < 30; i++) free(blocks[i]);
        }
        __attribute__((noinline)) void churn(void) {
            for (int i = 0; i < 100; i++) { sink = malloc(3 << 20); free(sink); }
        }
        int main(void) { churn(); plateau(); churn(); return 0; }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:256k"]);
    assert_eq!(heap.weight("heap.peak", "plateau"), 30 << 20);
    assert_eq!(heap.weight("heap.peak", "churn"), 0);
    assert_eq!(heap.weight("heap.alloc", "churn"), 600 << 20);
    assert_eq!(heap.weight("heap.live", ""), 0);
}

#[test]
fn blocks_of_a_program_that_executes_another_have_its_name() {
    let directory = Directory::new("heap-exec");
    let source = "
        #include <stdlib.h>
        #include <unistd.h>
        void *volatile sink;
        int main(void) {
            for (int i = 0; i < 100; i++) sink = malloc(1 << 20);
            return execl(\"/bin/sleep\", \"sleep\", \"0.1\", (char *)0);
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let as_root = record(&["-e", "heap:256k", "-o", &file, "--", &program]);
    let seen = Allocations::read(&file, &program);
    let mut runs = vec![(as_root, seen)];
    let (file, options) = (directory.path("other"), ["-e", "heap:256k"]);
    if let Ok(output) = record_as_other_user_with(&directory, &file, &program, &options) {
        runs.push((output, Allocations::read(&file, &program)));
    }
    for (output, heap) in runs {
        assert!(output.status.success(), "{}", stderr(&output));
        for event in ["heap.alloc", "heap.live", "heap.peak"] {
            assert_eq!(heap.weight(event, "main"), 100 << 20, "{event}");
            let is_event = |(of, _): &&(String, String)| of == event;
            let names: Vec<_> = heap.commands.iter().filter(is_event).map(|it| &it.1).collect();
            assert_eq!(names, ["program"], "{event}");
        }
    }
}

/// The child has its first record after its parent has executed another program.
#[test]
fn child_has_the_blocks_of_a_parent_that_executes_another_program() {
    let directory = Directory::new("heap-fork-exec");
    let source = "
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdlib.h>
        #include <unistd.h>
        void *blocks[10], *volatile sink;
        __attribute__((noinline)) void parent(void) {
            for (int i = 0; i < 10; i++) blocks[i] = malloc(1 << 20);
        }
        int main(void) {
            int ends[2];
            char byte;
            if (pipe2(ends, O_CLOEXEC)) return 1;
            parent();
            if (fork() == 0) {
                close(ends[1]);
                if (read(ends[0], &byte, 1) != 0) _exit(1);
                sink = malloc(1 << 20);
                free(blocks[0]);
                _exit(0);
            }
            return execl(\"/bin/sleep\", \"sleep\", \"0.5\", (char *)0);
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:256k"]);
    assert_eq!(heap.weight("heap.live", "parent"), 19 << 20);
    assert_eq!(heap.weight("heap.free", "parent"), 1 << 20);
}

/// The calls have a fixed period, so that the library knows stacks: those of blocks adapt their period all the same.
#[test]
fn period_of_blocks_is_adapted_beside_a_fixed_one_of_calls() {
    let directory = Directory::new("heap-and-calls");
    let source = "
        #include <stdlib.h>
        void *volatile sink;
        __attribute__((noinline)) void churn(void) { sink = malloc(1000); free(sink); }
        int main(void) {
            for (int i = 0; i < 3000000; i++) churn();
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap", "-e", "calls:64"]);
    let Total { samples, weight } = heap.of("heap.alloc", "churn");
    // 3 GB in less than a second: some thousand samples at the start, then 250 a second, or one for each 2 MiB.
    assert!(samples < 20_000, "{samples}");
    assert!(weight.abs_diff(3_000_000_000) < 300_000_000, "{weight}");
}

#[test]
fn child_has_the_blocks_of_its_parent() {
    let directory = Directory::new("heap-fork");
    let source = "
        #include <stdlib.h>
        #include <unistd.h>
        #include <sys/wait.h>
        void *before, *volatile sink;
        __attribute__((noinline)) void parent(void) { before = malloc(4 << 20); }
        __attribute__((noinline)) void child(void) { sink = malloc(1 << 20); }
        int main(void) {
            parent();
            if (fork() == 0) { child(); _exit(0); }
            wait(0);
            if (fork() == 0) { child(); free(before); _exit(0); }
            wait(0);
            free(before);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let heap = recorded(&directory, &program, &["-e", "heap:256k"]);
    assert_eq!(heap.weight("heap.alloc", "parent"), 4 << 20);
    // The first child keeps it, the second and the parent release it.
    assert_eq!(heap.weight("heap.live", "parent"), 4 << 20);
    assert_eq!(heap.weight("heap.free", "parent"), 8 << 20);
    assert_eq!(heap.weight("heap.live", "child"), 2 << 20);
    assert_eq!(heap.weight("heap.peak", "parent"), 12 << 20, "each process has its own peak");
}

#[test]
fn descriptors_have_their_files_and_callers() {
    let directory = Directory::new("fd-events");
    let source = "
        #include <fcntl.h>
        #include <unistd.h>
        __attribute__((noinline)) void closes(void) {
            for (int i = 0; i < 10; i++) close(open(\"/dev/null\", O_RDONLY));
        }
        __attribute__((noinline)) void leaks(void) {
            for (int i = 0; i < 3; i++) open(\"/dev/zero\", O_RDONLY);
            __asm__ volatile(\"\");
        }
        int main(void) { closes(); leaks(); return 0; }";
    let Some(program) = compile(&directory, source) else { return };
    let fd = recorded(&directory, &program, &["-e", "fd"]);
    assert_eq!(fd.of("fd.open", "closes"), Total { samples: 10, weight: 10 });
    assert_eq!(fd.of("fd.close", "closes"), Total { samples: 10, weight: 10 });
    assert_eq!(fd.of("fd.live", "closes"), Total::default());
    assert_eq!(fd.of("fd.live", "leaks"), Total { samples: 3, weight: 3 });
    let leaked = ("fd.live".to_owned(), "/dev/zero".to_owned());
    assert_eq!(fd.objects.iter().filter(|it| **it == leaked).count(), 3, "{:?}", fd.objects);
}

#[test]
fn debugging_allocator_of_the_c_library_still_checks() {
    let directory = Directory::new("heap-debug");
    let source = "
        #include <stdlib.h>
        int main(void) {
            volatile char *block = malloc(24);
            block[24] = 1;
            void *other = malloc(24);
            free((void *)block);
            free(other);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let checked = |command: &mut Command| {
        command.envs([("LD_PRELOAD", "libc_malloc_debug.so.0"), ("MALLOC_CHECK_", "3")]);
        stderr(&command.output().expect("it starts"))
    };
    let alone = checked(&mut Command::new(&program));
    if !alone.contains("invalid pointer") {
        return eprintln!("SKIPPED: no such allocator: {alone}");
    }
    let out = directory.path("out");
    let recorded = checked(&mut recorder(&["-q", "-e", "heap", "-o", &out, "--", &program]));
    assert_eq!(recorded, alone);
}

#[test]
fn descriptor_has_its_own_file_when_its_number_is_used_again() {
    let directory = Directory::new("fd-reuse");
    let source = "
        #include <fcntl.h>
        #include <sys/epoll.h>
        #include <sys/eventfd.h>
        #include <sys/socket.h>
        #include <unistd.h>
        int main(void) {
            int ends[2], other = open(\"/dev/zero\", O_RDONLY), number = other + 1;
            for (int i = 0; i < 20; i++) {
                if (i % 5 == 0 && pipe(ends) == 0) close(ends[1]);
                if (i % 5 == 1) socket(AF_INET, SOCK_STREAM, 0);
                if (i % 5 == 2) eventfd(0, 0);
                if (i % 5 == 3) epoll_create1(0);
                if (i % 5 == 4) dup(other);
                close(number);
                close(open(\"/dev/null\", O_RDONLY));
            }
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let fd = recorded(&directory, &program, &["-e", "fd"]);
    let opened = |object: &str| {
        let is_it = |it: &&(String, String)| it.0 == "fd.open" && it.1.starts_with(object);
        fd.objects.iter().filter(is_it).count()
    };
    let objects = ["/dev/null", "/dev/zero", "pipe", "socket", "anon_inode:[eventfd]"];
    assert_eq!(objects.map(opened), [20, 5, 8, 4, 4], "{:?}", fd.objects);
    assert_eq!(opened("anon_inode:[eventpoll]"), 4);
    assert_eq!(fd.of("fd.open", "main").samples, 45);
}

#[test]
fn ordinary_user_records_allocations() {
    let directory = Directory::new("heap-user");
    let Some(program) = compile(&directory, SITES) else { return };
    let options = ["-e", "heap:64k"];
    let output = record_as_other_user_with(&directory, &directory.path("out"), &program, &options);
    let Ok(output) = output else { return eprintln!("SKIPPED: no setpriv") };
    assert!(output.status.success(), "{}", stderr(&output));
    let heap = Allocations::read(&directory.path("out"), &program);
    assert_eq!(heap.weight("heap.alloc", "large"), 20 << 20);
    assert_eq!(heap.weight("heap.live", "leak"), 10 << 20);
    assert_eq!(heap.incomplete, 0);
}

#[test]
fn killed_program_has_its_live_blocks_and_other_events_load_nothing() {
    let directory = Directory::new("heap-kill");
    let source = "
        #include <signal.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main(void) {
            if (!getenv(\"LD_PRELOAD\")) return 7;
            void *p = malloc(5 << 20);
            kill(getpid(), SIGKILL);
            return p == 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap:64k", "-o", &file, "--", &program]);
    assert_eq!(output.status.code(), Some(128 + 9), "{}", stderr(&output));
    let heap = Allocations::read(&file, &program);
    assert_eq!((heap.verdict, heap.weight("heap.live", "main")), (Verdict::Complete, 5 << 20));
    let output = record(&["-e", "cpu-clock", "-o", &file, "--", &program]);
    assert!([7, 125].contains(&output.status.code().expect("a status")), "{}", stderr(&output));
}

/// Executes a command for which perf_event_open(2) fails, as in a container.
const WITHOUT_PERF: &str = "
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 298), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]
system = ctypes.CDLL(None)
assert system.prctl(38, 1, 0, 0, 0) == 0
filter = Filter(4, ctypes.cast(code, ctypes.c_void_p))
assert system.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn no_right_of_the_kernel_is_needed() {
    let directory = Directory::new("heap-no-perf");
    let Some(program) = compile(&directory, SITES) else { return };
    let file = directory.path("out");
    let recorder = env!("CARGO_BIN_EXE_nprof-record");
    let run = |event: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", WITHOUT_PERF, recorder, "-e", event, "-o", &file, "--", &program]);
        python.output()
    };
    let Ok(refused) = run("cpu-clock") else { return eprintln!("SKIPPED: no python3") };
    assert_eq!(refused.status.code(), Some(125), "the filter works: {}", stderr(&refused));
    let output = run("heap:64k").expect("python3 runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let heap = Allocations::read(&file, &program);
    assert_eq!((heap.verdict, heap.incomplete), (Verdict::Complete, 0));
    assert_eq!(heap.weight("heap.alloc", "large"), 20 << 20);
    assert_eq!(heap.weight("heap.live", "leak"), 10 << 20);
}

#[test]
fn mappings_of_processes_that_exit_at_once_are_read() {
    let directory = Directory::new("heap-short");
    let source = "
        #include <stdlib.h>
        int main(void) { void *volatile p = malloc(1 << 20); _exit(p == 0); }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let script = "i=0; while [ $i -lt 20 ]; do \"$0\"; i=$((i+1)); done";
    let recorder = env!("CARGO_BIN_EXE_nprof-record");
    let mut python = Command::new("python3");
    python.args(["-c", WITHOUT_PERF, recorder, "-e", "heap:64k", "-o", &file, "--"]);
    python.args(["sh", "-c", script, &program]);
    let Ok(output) = python.output() else { return eprintln!("SKIPPED: no python3") };
    assert!(output.status.success(), "{}", stderr(&output));
    let heap = Allocations::read(&file, &program);
    assert_eq!(heap.of("heap.live", "main"), Total { samples: 20, weight: 20 << 20 });
    assert_eq!(heap.incomplete, 0);
}

#[test]
fn snapshot_is_written_on_signal_and_at_intervals() {
    let directory = Directory::new("heap-snapshot");
    // Ends when the stream has grown three times, or after a minute.
    let source = "
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/stat.h>
        #include <unistd.h>
        void *kept;
        int main(int count, char **words) {
            kept = malloc(3 << 20);
            long size = 0, grown = 0;
            for (int i = 0; i < 600 && grown < 3; i++) {
                struct stat now;
                if (count > 2) kill(getppid(), SIGUSR1);
                usleep(100000);
                if (stat(words[1], &now) == 0 && now.st_size > size) {
                    size = now.st_size;
                    grown++;
                }
            }
            free(kept);
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let run = |options: &[&str], words: &[&str]| {
        let output = record(&[options, &["-o", &file, "--", &program, &file], words].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let heap = Allocations::read(&file, &program);
        let Total { samples, weight } = heap.of("heap.snapshot", "main");
        assert!(samples > 0, "{}", stderr(&output));
        assert_eq!(weight, samples * (3 << 20));
        assert_eq!(heap.weight("heap.live", ""), 0);
    };
    run(&["-e", "heap.snapshot:64k"], &["signal"]);
    run(&["-e", "heap:64k", "--snapshot", "100ms"], &[]);
}

/// The ring is full many times. The name of the recorder's socket is unknown there.
#[test]
fn process_in_a_new_network_namespace_loses_nothing() {
    let directory = Directory::new("heap-namespace");
    let source = "
        #define _GNU_SOURCE
        #include <sched.h>
        #include <stdlib.h>
        void *volatile sink;
        __attribute__((noinline)) void after(void) {
            for (int i = 0; i < 200000; i++) { sink = malloc(100); free(sink); }
        }
        int main(void) {
            free(malloc(10));
            if (unshare(CLONE_NEWNET)) return 77;
            after();
            return 0;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    let output = record(&["-e", "heap:1", "-o", &file, "--", &program]);
    if output.status.code() == Some(77) {
        return eprintln!("SKIPPED: no right to create a network namespace");
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let heap = Allocations::read(&file, &program);
    for event in ["heap.alloc", "heap.free"] {
        assert_eq!(heap.of(event, "after"), Total { samples: 200_000, weight: 20_000_000 });
    }
}

#[test]
fn program_runs_on_without_its_recorder() {
    let directory = Directory::new("heap-no-recorder");
    // Each block is recorded, so that the ring is full long before the end.
    let source = "
        #include <signal.h>
        #include <stdlib.h>
        #include <unistd.h>
        void *volatile sink;
        int main(void) {
            for (int i = 0; i < 1000; i++) { sink = malloc(100); free(sink); }
            kill(getppid(), SIGKILL);
            for (int i = 0; i < 100000; i++) { sink = malloc(100); free(sink); }
            return write(1, \"done\", 4) != 4;
        }";
    let Some(program) = compile(&directory, source) else { return };
    let file = directory.path("out");
    // Its standard output ends when the program has exited.
    let output = record(&["-e", "heap:1", "-o", &file, "--", &program]);
    assert_eq!((output.status.code(), &output.stdout[..]), (None, &b"done"[..]));
    assert_eq!(Allocations::read(&file, &program).verdict, Verdict::Truncated);
}
