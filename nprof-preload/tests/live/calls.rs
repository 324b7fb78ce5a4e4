//! Calls of functions that the compiler instrumented.

use std::path::Path;
use std::process::Command;

use crate::recorder::{Process, Workshop};

/// The ways to instrument a program.
const WAYS: [&[&str]; 3] = [&["-finstrument-functions"], &["-pg"], &["-pg", "-mfentry"]];

/// Keeps the arcs for gprof(1) out of the current directory.
fn discard_arcs(command: &mut Command, directory: &Path) {
    command.env("GMON_OUT_PREFIX", directory.join("gmon"));
}

/// Returns the number of calls whose record was written or counted as lost.
fn all_calls(process: &Process) -> u64 {
    let recorded: u64 = process.calls().map(|(_, weight, _)| weight).sum();
    recorded + process.losses.calls + process.losses.others
}

/// Prints the sum of results, which arguments of all kinds change, and the number of calls.
const ARGUMENTS: &str = r#"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#define OUT __attribute__((noinline, noclone))
typedef double vector __attribute__((vector_size(32)));
struct large { long words[9]; };
static long calls;
OUT long integers(long a, long b, long c, long d, long e, long f, long g, long h) {
    calls++;
    return a + 3 * b + 5 * c + 7 * d + 11 * e + 13 * f + 17 * g + 19 * h;
}
OUT double floats(double a, float b, double c, double d, float e, double f, double g, double h, double i) {
    calls++;
    return a + 3 * b + 5 * c + 7 * d + 11 * e + 13 * f + 17 * g + 19 * h + 23 * i;
}
OUT double variable(int number, ...) {
    calls++;
    va_list list;
    va_start(list, number);
    double sum = 0;
    for (int index = 0; index < number; index++) sum += index % 2 ? va_arg(list, double) : va_arg(list, int);
    va_end(list);
    return sum;
}
OUT struct large large(struct large in, long add) {
    calls++;
    for (int index = 0; index < 9; index++) in.words[index] += add * index;
    return in;
}
OUT long double extended(long double a, long double b) { calls++; return a * 2 - b; }
OUT long outer(long value) {
    calls++;
    long sum = value;
    OUT long nested(long more) { calls++; sum += more; return sum * 2; }
    return nested(5) + nested(7) + sum;
}
#ifdef __AVX__
OUT vector vectors(vector a, vector b) { calls++; return a * 2 + b; }
#endif
int main(void) {
    calls++;
    double sum = 0;
    for (long round = 0; round < 500; round++) {
        sum += integers(round, 2, 3, 4, 5, 6, 7, round);
        sum += floats(round, 2, 3, 4, 5, 6, 7, 8, round);
        sum += variable(6, 1, 2.5, (int)round, 4.5, 5, (double)round);
        struct large in = {{1, 2, 3, 4, 5, 6, 7, 8, round}};
        in = large(in, round);
        for (int index = 0; index < 9; index++) sum += in.words[index];
        sum += extended(round, 3) + outer(round);
#ifdef __AVX__
        vector out = vectors((vector){round, 2, 3, 4}, (vector){5, 6, 7, round});
        sum += out[0] + 3 * out[1] + 5 * out[2] + 7 * out[3];
#endif
    }
    printf("%f %ld\n", sum, calls);
}
"#;

#[test]
fn arguments_and_results_stay_and_each_call_is_counted() {
    let workshop = Workshop::new();
    let has_avx = std::arch::is_x86_feature_detected!("avx");
    for way in WAYS {
        for optimization in ["-O0", "-O2"] {
            let vectors = if has_avx { "-mavx" } else { "-msse2" };
            let options = [way, &[optimization, vectors]].concat();
            let Some(program) = workshop.compile("gcc", ARGUMENTS, &options) else { return };
            let mut bare = Command::new(&program);
            discard_arcs(&mut bare, workshop.path());
            let bare = String::from_utf8(bare.output().unwrap().stdout).unwrap();
            for period in [1, 7, 1 << 40] {
                let change = |settings: &mut nprof_preload::protocol::Settings<'_>| {
                    (settings.heap_period, settings.call_period) = (0, period);
                };
                let prepare = |command: &mut Command| discard_arcs(command, workshop.path());
                let run = workshop.run_with(&program, change, prepare);
                assert!(run.status.success(), "{options:?}");
                assert_eq!(run.output, bare, "{options:?} with the period {period}");
                let calls: u64 = bare.trim().rsplit(' ').next().unwrap().parse().unwrap();
                let process = run.only();
                match period {
                    1 => assert_eq!(process.calls().count() as u64, calls, "{options:?}"),
                    7 => assert!(all_calls(process).abs_diff(calls) < 7, "{options:?}"),
                    _ => assert!(process.calls().count() <= 1),
                }
                assert_eq!(process.totals(&Default::default()).allocations, 0);
            }
        }
    }
}

/// Calls `work` in threads, in signal handlers that interrupt it, and in a child; leaves some handlers by longjmp.
const HANDLERS: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define OUT __attribute__((noinline, noclone))
static long *calls;
static volatile int signals, leaves;
static sigjmp_buf place;
OUT void work(void) { __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED); __asm__ volatile("" ::: "memory"); }
static void handler(int number) {
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    work();
    if (++signals % 8 == 0 && leaves) siglongjmp(place, 1);
}
static void *body(void *argument) {
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    for (int index = 0; index < 20000; index++) work();
    return 0;
}
int main(void) {
    calls = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    sigaltstack(&stack, 0);
    sigaction(SIGALRM, &action, 0);
    pthread_t threads[2];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    for (int index = 0; index < 2; index++) pthread_create(&threads[index], 0, body, 0);
    for (int index = 0; index < 2; index++) pthread_join(threads[index], 0);
    pthread_sigmask(SIG_UNBLOCK, &set, 0);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    sigsetjmp(place, 1);
    leaves = 1;
    while (signals < 200) work();
    leaves = 0;
    setitimer(ITIMER_REAL, &never, 0);
    if (fork() == 0) {
        for (int index = 0; index < 1000; index++) work();
        _exit(0);
    }
    int status;
    wait(&status);
    printf("%ld\n", *calls);
    return status != 0;
}
"#;

#[test]
fn calls_in_threads_handlers_and_children_are_recorded() {
    let workshop = Workshop::new();
    for way in WAYS {
        let Some(program) = workshop.compile("gcc", HANDLERS, way) else { return };
        let change = |settings: &mut nprof_preload::protocol::Settings<'_>| {
            (settings.heap_period, settings.call_period) = (0, 1);
        };
        let run =
            workshop.run_with(&program, change, |command| discard_arcs(command, workshop.path()));
        assert!(run.status.success(), "{way:?}: {:?}", run.status);
        assert_eq!(run.processes.len(), 2);
        let [parent, child] = &run.processes[..] else { panic!("two processes") };
        assert_eq!(child.hello.parent_id, parent.hello.id);
        // The forked child does not call main.
        assert_eq!(child.calls().count(), 1000);
        let expected: u64 = run.output.trim().parse().unwrap();
        let counted = all_calls(parent) + 1000;
        // A handler that leaves a hook leaves the call with one of both counts.
        let left = 200 / 8;
        assert!(counted.abs_diff(expected) <= left, "{way:?}: {counted} of {expected}");
    }
}

#[test]
fn executable_with_hooks_of_its_own_keeps_them() {
    let source = r#"
#include <stdio.h>
static long entered;
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *f, void *from) { entered++; }
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *f, void *from) {}
__attribute__((noinline)) void work(void) { __asm__ volatile(""); }
int main(void) {
    for (int index = 0; index < 10; index++) work();
    printf("%ld\n", entered);
}
"#;
    let workshop = Workshop::new();
    let program = workshop.compile("gcc", source, WAYS[0]).unwrap();
    let run = workshop.run(&program, &[], |settings| settings.call_period = 1);
    assert_eq!((&*run.output, run.only().calls().count()), ("11\n", 0));
}

/// Compiles a shared library beside the programs.
fn compile_library(workshop: &Workshop, name: &str, source: &str, options: &[&str]) {
    let file = workshop.path().join(format!("{name}.c"));
    std::fs::write(&file, source).unwrap();
    let output = workshop.path().join(format!("lib{name}.so"));
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-w", "-shared", "-fPIC", "-o"]).arg(output).arg(file).args(options);
    assert!(compiler.status().unwrap().success());
}

#[test]
fn hooks_of_other_library_are_called_from_its_constructor_on() {
    let tracer = r#"
long entered;
void __cyg_profile_func_enter(void *f, void *from) { entered++; }
void __cyg_profile_func_exit(void *f, void *from) {}
"#;
    let early = r#"
__attribute__((noinline)) void work(void) { __asm__ volatile(""); }
__attribute__((constructor)) static void begin(void) { for (int index = 0; index < 5; index++) work(); }
"#;
    let source = r#"
#include <stdio.h>
extern long entered;
void work(void);
int main(void) { work(); printf("%ld\n", entered); }
"#;
    let workshop = Workshop::new();
    compile_library(&workshop, "tracer", tracer, &[]);
    compile_library(&workshop, "early", early, WAYS[0]);
    let directory = workshop.path().to_str().unwrap();
    let (search, find) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    let options = [WAYS[0][0], &search, &find, "-learly", "-ltracer"];
    let program = workshop.compile("gcc", source, &options).unwrap();
    for period in [0, 1, 1000] {
        let run = workshop.run(&program, &[], |settings| {
            (settings.heap_period, settings.call_period) = (0, period);
        });
        assert!(run.status.success());
        assert_eq!(run.output, "8\n", "period {period}");
        let expected = if period == 1 { 8 } else { 0 };
        assert!(run.only().calls().count() == expected || period == 1000, "period {period}");
    }
}

/// The dynamic linker relocates the library of the program, and calls its resolver, before it relocates this one.
#[test]
fn instrumented_resolver_runs_before_this_library_is_relocated() {
    let library = r#"
static long chosen(void) { return 7; }
__attribute__((noinline)) static long look(void) { __asm__ volatile(""); return 1; }
static void *choose(void) { return look() ? chosen : 0; }
static long chosen_early(void) __attribute__((ifunc("choose")));
static long (*volatile pointer)(void) = chosen_early;
long answer(void) { return pointer(); }
"#;
    let source = r#"
#include <stdio.h>
long answer(void);
int main(void) { printf("%ld\n", answer()); }
"#;
    let workshop = Workshop::new();
    let directory = workshop.path().to_str().unwrap();
    let (search, find) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    for way in WAYS {
        // Without lazy binding the call of the hook in the resolver needs no relocation of its own at run time.
        compile_library(&workshop, "resolver", library, &[way, &["-fno-plt"]].concat());
        let options = [way, &[&search, &find, "-lresolver"]].concat();
        let Some(program) = workshop.compile("gcc", source, &options) else { return };
        let mut bare = Command::new(&program);
        discard_arcs(&mut bare, workshop.path());
        let bare = bare.output().unwrap();
        if !bare.status.success() {
            println!("SKIPPED {way:?}: the program fails without the library");
            continue;
        }
        let change = |settings: &mut nprof_preload::protocol::Settings<'_>| {
            (settings.heap_period, settings.call_period) = (0, 1);
        };
        let run =
            workshop.run_with(&program, change, |command| discard_arcs(command, workshop.path()));
        assert!(run.status.success(), "{way:?}: {:?}", run.status);
        assert_eq!(run.output, "7\n");
        // main, `answer` and `chosen`.
        assert_eq!(run.only().calls().count(), 3, "{way:?}");
    }
}
