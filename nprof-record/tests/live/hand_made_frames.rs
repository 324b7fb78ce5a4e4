//! Frames that no compiler made: stubs generated at run time, the code that signal handlers and
//! coroutines return to.

#[cfg(target_arch = "x86_64")]
use crate::support::StackSample;
use crate::support::{Directory, Stream, can_record, record, stderr};
use crate::symbols::{Symbols, names};
use nprof_stream::Mark;

/// Calls `work` through five copies of a stub in anonymous memory, as CPython does with `-X perf`.
/// The functions between keep no frame pointer.
const STUBS: &str = r#"
    #include <string.h>
    #include <sys/mman.h>
    #include <time.h>
    typedef long function(long);
    typedef long stub(long, long, long, function *);
    static stub *stubs[5];
    static volatile long seen;
    __attribute__((noinline)) long work(long end) {
        while (clock() < end) for (int i = 0; i < 10000; i++) seen += i;
        return seen;
    }
    __attribute__((noinline)) long through(long level, long end);
    long e(long end) { return through(5, end) + 1; }
    long d(long end) { return through(4, end) + 2; }
    long c(long end) { return through(3, end) + 3; }
    long b(long end) { return through(2, end) + 4; }
    long a(long end) { return through(1, end) + 5; }
    static function *const functions[] = {a, b, c, d, e};
    long through(long level, long end) {
        return level == 5 ? work(end) + 1 : stubs[level](end, 0, 0, functions[level]) + 1;
    }
    int main(void) {
        /* sub $8,%rsp; call *%rcx; add $8,%rsp; ret */
        const char code[] = "\x48\x83\xec\x08\xff\xd1\x48\x83\xc4\x08\xc3";
        char *memory = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 5; i++) {
            stubs[i] = (stub *)memcpy(memory + 64 * i, code, sizeof code);
        }
        seen = through(0, CLOCKS_PER_SEC / 2);
        return 0;
    }"#;

/// Calls `first` in a thread that outlives the first one.
const THREAD: &str = r#"
    #include <pthread.h>
    static void *body(void *unused) { first(); return unused; }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, 0, body, 0);
        pthread_exit(0);
    }"#;

/// Works in a signal handler.
const HANDLER: &str = r#"
    #include <signal.h>
    #include <time.h>
    static volatile long seen;
    __attribute__((noinline)) static void work(void) {
        clock_t end = clock() + CLOCKS_PER_SEC / 2;
        while (clock() < end) for (int i = 0; i < 10000; i++) seen += i;
    }
    static void handler(int number) { work(); seen += number; }
    int main(void) { signal(SIGUSR1, handler); raise(SIGUSR1); return 0; }"#;

/// Works in a coroutine.
const COROUTINE: &str = r#"
    #include <stdlib.h>
    #include <time.h>
    #include <ucontext.h>
    static ucontext_t outer, inner;
    static volatile long seen;
    __attribute__((noinline)) static void work(void) {
        clock_t end = clock() + CLOCKS_PER_SEC / 2;
        while (clock() < end) for (int i = 0; i < 10000; i++) seen += i;
    }
    static void coroutine(void) { work(); seen++; }
    int main(void) {
        getcontext(&inner);
        inner.uc_stack.ss_sp = malloc(1 << 16);
        inner.uc_stack.ss_size = 1 << 16;
        inner.uc_link = &outer;
        makecontext(&inner, coroutine, 0);
        swapcontext(&outer, &inner);
        return 0;
    }"#;

/// Compiles and records a program. None if that is not possible here.
fn run(name: &str, source: &str) -> Option<(Stream, Symbols)> {
    if !can_record() {
        return None;
    }
    let directory = Directory::new(name);
    let program = directory.compile("gcc", source, &["-O2", "-w"])?;
    let file = directory.path("out");
    let output = record(&["-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    Some((Stream::from_file(&file), Symbols::from_file(&program)))
}

/// Checks the numbers of samples and of right ones, unless samples were lost.
fn assert_right(stream: &Stream, (all, right): (usize, usize), percent: usize) {
    if let Some(reason) = stream.overload() {
        return eprintln!("SKIPPED: {reason}; {right} of {all} stacks are right");
    }
    assert!(all > 100 && right * 100 >= all * percent, "{right} of {all}");
}

/// Counts the samples in `work`, and those of them with these callers up to the end of a complete
/// stack; `?` stands for any frame.
fn through(stream: &Stream, symbols: &Symbols, callers: &[&str]) -> (usize, usize) {
    let (mut all, mut right) = (0, 0);
    for sample in &stream.samples {
        let names = names(sample, symbols);
        let Some(at) = names.iter().position(|&name| name == "work") else { continue };
        all += 1;
        let found = &names[at + 1..];
        let is_right = found.len() >= callers.len()
            && found.iter().zip(callers).all(|(&name, &caller)| caller == "?" || name == caller);
        right += usize::from(is_right && sample.mark == Mark::None);
    }
    (all, right)
}

/// The callers of `work` up to the outermost `through`.
const STUB_CALLERS: [&str; 16] = [
    "through", "e", "[anon]", "through", "d", "[anon]", "through", "c", "[anon]", "through", "b",
    "[anon]", "through", "a", "[anon]", "through",
];

#[test]
fn stubs_in_anonymous_memory_are_unwound() {
    let Some((stream, symbols)) = run("stubs", STUBS) else { return };
    let callers = [&STUB_CALLERS[..], &["main"]].concat();
    // Samples of the last batch are resolved after the process has ended, by earlier results.
    assert_right(&stream, through(&stream, &symbols, &callers), 95);
}

#[test]
fn stubs_are_unwound_after_the_first_thread_has_ended() {
    let source = format!("#define main first\n{STUBS}\n#undef main\n{THREAD}");
    let Some((stream, symbols)) = run("stubs-thread", &source) else { return };
    assert_right(&stream, through(&stream, &symbols, &STUB_CALLERS), 90);
}

/// Returns the offset in libc of the frame that called a function of the program.
fn libc_caller(stream: &Stream, symbols: &Symbols, function: &str) -> Vec<u64> {
    let samples = stream.samples.iter().filter_map(|sample| {
        let at =
            sample.frames.iter().zip(&sample.offsets).position(|((image, kernel), offset)| {
                image == "program"
                    && !kernel
                    && symbols
                        .0
                        .range(..=offset)
                        .next_back()
                        .is_some_and(|(_, (_, name))| name == function)
            })?;
        let (image, _) = sample.frames.get(at + 1)?;
        image.contains("libc.so").then(|| sample.offsets[at + 1])
    });
    samples.collect()
}

#[test]
fn signal_trampoline_is_no_return_address() {
    let Some((stream, symbols)) = run("handler", HANDLER) else { return };
    assert_right(&stream, through(&stream, &symbols, &["handler", "?", "?"]), 99);
    // Functions of glibc are aligned; a return address would be looked up one byte before.
    let offsets = libc_caller(&stream, &symbols, "handler");
    assert!(!offsets.is_empty() && offsets.iter().all(|offset| offset % 16 == 0), "{offsets:x?}");
}

/// The child of a program that generates code for x86-64 writes other code, with another frame, to the same address.
/// The word at which its return address would be by the frame of the parent is one into `decoy`.
#[cfg(target_arch = "x86_64")]
const FORKED_CODE: &str = r#"
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #define OUT __attribute__((noinline, noclone))
    typedef void (*generated)(long count, void *unused);
    static unsigned char *code;
    static void *stale;
    static double now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec + time.tv_nsec * 1e-9;
    }
    OUT void note(void) { stale = __builtin_return_address(0); }
    OUT void decoy(void) { note(); __asm__ volatile(""); }
    /* sub $FRAME, %rsp; mov %rsi, 0x18(%rsp), where the frame has room; a loop; add $FRAME, %rsp; ret */
    static void generate(char frame) {
        unsigned char made[] = {
            0x48, 0x83, 0xec, frame, 0x48, 0x89, 0x74, 0x24, frame > 0x18 ? 0x18 : 0,
            0x48, 0xff, 0xcf, 0x75, 0xfb, 0x48, 0x83, 0xc4, frame, 0xc3,
        };
        memcpy(code, made, sizeof made);
    }
    OUT void work(void) {
        for (double end = now() + 0.4; now() < end;) ((generated)code)(100000, stale);
    }
    int main(void) {
        decoy();
        code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (code == MAP_FAILED) return 1;
        generate(0x18);
        work();
        if (fork() == 0) {
            generate(0x28);
            work();
            _exit(0);
        }
        return wait(0) < 0;
    }"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn child_with_other_code_at_the_address_has_its_own_stacks() {
    let Some((stream, symbols)) = run("forked-code", FORKED_CODE) else { return };
    let is_generated =
        |sample: &&StackSample| sample.frames.first().is_some_and(|(image, _)| image == "[anon]");
    let is_right = |sample: &&StackSample| {
        let names = names(sample, &symbols);
        sample.mark == Mark::None && names.get(1..3) == Some(&["work", "main"])
    };
    let generated: Vec<_> = stream.samples.iter().filter(is_generated).collect();
    let right = generated.iter().filter(|sample| is_right(sample)).count();
    assert_right(&stream, (generated.len(), right), 95);
}

#[test]
fn coroutine_ends_at_the_code_that_started_it() {
    let Some((stream, symbols)) = run("coroutine", COROUTINE) else { return };
    assert_right(&stream, through(&stream, &symbols, &["coroutine", "?"]), 99);
    let offsets = libc_caller(&stream, &symbols, "coroutine");
    assert!(!offsets.is_empty() && offsets.iter().all(|offset| offset % 16 == 0), "{offsets:x?}");
}
