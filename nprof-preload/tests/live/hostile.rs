//! Programs that break preloaded libraries: their output and status must be those without the library.

use std::path::Path;
use std::process::Command;

use crate::recorder::{Run, Workshop};

/// Constructors, thread-local destructors, threads that end early, cancellation, coroutines, signal stacks, closed
/// descriptors, a cleared environment.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static void *early;
__attribute__((constructor)) static void start(void) { early = malloc(500); }
__attribute__((destructor)) static void end(void) { free(early); }
static pthread_key_t key;
static void *body(void *argument) {
    pthread_setspecific(key, malloc(100));
    free(malloc((long)argument));
    return 0;
}
static void *cancelled(void *argument) {
    int *pair = argument;
    char byte;
    void *block = malloc(70);
    pthread_cleanup_push(free, block);
    FILE *stream = fdopen(dup(pair[0]), "r");
    pthread_testcancel();
    for (;;) { close(open("/dev/null", O_RDONLY)); }
    pthread_cleanup_pop(1);
    return 0;
}
static ucontext_t outer, inner;
static void coroutine(void) { for (int index = 0; index < 100; index++) free(malloc(300)); }
static void handler(int number) { void *block = malloc(60); free(block); }
int main(void) {
    pthread_t thread;
    int pair[2];
    pthread_key_create(&key, free);
    for (long index = 0; index < 200; index++) {
        pthread_create(&thread, 0, body, (void *)(index * 40));
        pthread_join(thread, 0);
    }
    pipe(pair);
    pthread_create(&thread, 0, cancelled, pair);
    pthread_cancel(thread);
    pthread_join(thread, 0);
    /* A coroutine on a stack of two pages, between unmapped ones. */
    char *stack = mmap(0, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(stack + 4096, 2 * 4096, PROT_READ | PROT_WRITE);
    getcontext(&inner);
    inner.uc_stack.ss_sp = stack + 4096;
    inner.uc_stack.ss_size = 2 * 4096;
    inner.uc_link = &outer;
    makecontext(&inner, coroutine, 0);
    swapcontext(&outer, &inner);
    munmap(stack, 4 * 4096);
    stack_t alternative = {malloc(65536), 0, 65536};
    struct sigaction action = {0};
    action.sa_handler = handler;
    action.sa_flags = SA_ONSTACK;
    sigaltstack(&alternative, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    errno = 77;
    free(malloc(1 << 20));
    free(0);
    if (errno != 77) return 2;
    struct rlimit limit = {0, 0};
    clearenv();
    int status, sum = 0;
    for (int index = 0; index < 20; index++) {
        if (fork() == 0) {
            /* A forked child whose ring would exceed its limits. */
            setrlimit(RLIMIT_FSIZE, &limit);
            free(malloc(90));
            _exit(3);
        }
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    for (int number = 3; number < 20; number++) close(number);
    printf("%d %d\n", open("/dev/null", O_RDONLY), sum);
    return 5;
}
"#;

fn check(run: &Run, bare: &std::process::Output) {
    assert_eq!(run.output, String::from_utf8_lossy(&bare.stdout));
    assert_eq!(run.status.code(), bare.status.code());
}

#[test]
fn hostile_program_behaves_as_without_the_library() {
    let workshop = Workshop::new();
    let compilers: [(&str, &[&str]); 3] =
        [("cc", &[]), ("cc", &["-no-pie", "-O0"]), ("cc", &["-static", "-O1", "-pthread"])];
    for (compiler, options) in compilers {
        let program = workshop.compile(compiler, HOSTILE, options).unwrap();
        let bare = Command::new(&program).output().unwrap();
        assert_eq!(bare.status.code(), Some(5), "{}", String::from_utf8_lossy(&bare.stdout));
        for period in [1, 100] {
            let run = workshop.run(&program, &[], |settings| {
                settings.heap_period = period;
                settings.descriptors = true;
            });
            check(&run, &bare);
            let is_static = options.contains(&"-static");
            assert_eq!(run.processes.is_empty(), is_static, "{options:?}");
        }
    }
}

/// A coroutine of the first thread, with memory above its stack that is unmapped between two allocations.
#[test]
fn coroutine_below_unmapped_memory_is_copied_to_its_end() {
    let workshop = Workshop::new();
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
static ucontext_t outer, inner;
static void coroutine(void) {
    free(malloc(3000));
    swapcontext(&inner, &outer);
    free(malloc(3001));
}
static char *map(void) { return mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
int main(void) {
    char *above = map(), *stack = map();
    getcontext(&inner);
    inner.uc_stack.ss_sp = stack;
    inner.uc_stack.ss_size = 65536;
    inner.uc_link = &outer;
    makecontext(&inner, coroutine, 0);
    swapcontext(&outer, &inner);
    munmap(above, 65536);
    swapcontext(&outer, &inner);
    return stack + 65536 != above;
}
"#;
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert_eq!(run.status.code(), Some(0), "{}", run.status);
    let sizes: Vec<u64> = run.only().allocations().map(|block| block.size).collect();
    assert!([3000, 3001].iter().all(|size| sizes.contains(size)), "{sizes:?}");
}

#[test]
fn musl_program_is_recorded() {
    let workshop = Workshop::new();
    let source = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *body(void *argument) { free(malloc(2000)); return strdup("text"); }
int main(void) {
    pthread_t threads[10];
    void *texts[10];
    for (int index = 0; index < 10; index++) pthread_create(&threads[index], 0, body, 0);
    for (int index = 0; index < 10; index++) pthread_join(threads[index], &texts[index]), free(texts[index]);
    void *block = realloc(calloc(50, 50), 3000);
    free(block);
    free(aligned_alloc(64, 6400));
    puts("done");
    return 0;
}
"#;
    let Some(program) = workshop.compile("musl-gcc", source, &[]) else { return };
    let run = workshop.run(&program, &[], |settings| settings.descriptors = true);
    assert!(run.status.success());
    assert_eq!(run.output, "done\n");
    let mut sizes: Vec<u64> = run.only().allocations().map(|block| block.size).collect();
    sizes.retain(|&size| size == 5 || size >= 2000);
    sizes.sort_unstable();
    let expected = [vec![5; 10], vec![2000; 10], vec![2500, 3000, 6400]].concat();
    assert_eq!(sizes, expected);
    let live = run.only().totals(&Default::default()).live;
    assert!(!live.values().any(|size| expected.contains(size)), "{live:?}");
}

#[test]
fn libraries_with_deep_binding_are_harmless() {
    let workshop = Workshop::new();
    let library = workshop
        .compile(
            "cc",
            "#include <stdlib.h>\nvoid *give(void) { return malloc(900); } void take(void *block) { free(block); }",
            &["-shared", "-fPIC"],
        )
        .unwrap();
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **arguments) {
    for (int round = 0; round < 50; round++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
        void *(*give)(void) = dlsym(library, "give");
        void (*take)(void *) = dlsym(library, "take");
        free(give());
        take(malloc(901));
        take(give());
        dlclose(library);
    }
    puts("done");
}
"#;
    let program = workshop.compile("cc", source, &["-ldl"]).unwrap();
    let moved = workshop.path().join("deep.so");
    std::fs::rename(library, &moved).unwrap();
    let run = workshop.run(&program, &[moved.to_str().unwrap()], |_| {});
    assert_eq!(run.output, "done\n");
    assert!(run.status.success());
}

#[test]
fn executable_with_its_own_malloc_says_so() {
    let workshop = Workshop::new();
    let source = r#"
#include <stddef.h>
static char memory[1 << 20];
static size_t used;
void *malloc(size_t size) { void *block = memory + used; used += (size + 15) & ~15ul; return block; }
void free(void *block) {}
int main(void) { return malloc(10) == 0; }
"#;
    let program = workshop.compile("cc", source, &["-rdynamic"]).unwrap();
    let run = workshop.run(&program, &[], |_| {});
    assert!(run.status.success());
    assert_eq!(run.only().hello.flags, nprof_preload::protocol::FLAG_PROGRAM_ALLOCATOR);
    assert_eq!(run.only().allocations().count(), 0);
}

/// Real programs, one of which checks its own output.
#[test]
fn real_programs_behave_as_without_the_library() {
    let workshop = Workshop::new();
    let python = "import threading, subprocess\n\
                  threads = [threading.Thread(target=lambda: sum(len(str(n)) for n in range(2000))) for _ in range(8)]\n\
                  [thread.start() for thread in threads]; [thread.join() for thread in threads]\n\
                  print(subprocess.run(['echo', 'x'], capture_output=True).stdout, len(b'y' * 10**7))";
    let programs: [(&str, &[&str]); 4] = [
        ("python3", &["-c", python]),
        (
            "perl",
            &[
                "-e",
                "my %h; $h{$_ % 777} .= 'x' x $_ for 1..3000; print length(join '', values %h), qx(echo z)",
            ],
        ),
        ("bash", &["-c", "for i in {1..20}; do (echo $i | cat); done | sort -n | tail -1; exit 9"]),
        ("git", &["--version"]),
    ];
    for (program, arguments) in programs {
        let Ok(bare) = Command::new(program).args(arguments).output() else {
            println!("SKIPPED {program}: not installed");
            continue;
        };
        for period in [1, 4096] {
            let run = workshop.run(Path::new(program), arguments, |settings| {
                settings.heap_period = period;
                settings.descriptors = true;
            });
            check(&run, &bare);
            assert!(!run.processes.is_empty(), "{program}");
        }
    }
}

#[test]
#[ignore = "1000 runs take minutes"]
fn thousand_runs_end_well() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", HOSTILE, &[]).unwrap();
    let bare = Command::new(&program).output().unwrap();
    for round in 0..1000 {
        let run = workshop.run(&program, &[], |settings| {
            settings.heap_period = [1, 100, 4096, 524_288][round % 4];
            settings.descriptors = round % 3 == 0;
            settings.wait = round % 2 == 0;
        });
        check(&run, &bare);
    }
}
