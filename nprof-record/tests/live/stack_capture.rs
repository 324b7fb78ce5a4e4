//! Complete stacks and the marks of incomplete ones; the ways to capture stacks; CPU modes.
//!
//! The tests assert the shapes of stacks, not times.

use std::process::Command;

use crate::support::{Directory, StackSample, Stream, can_record, record, stderr};
use nprof_stream::{Mark, Verdict};

const CPP: &str = r#"
#include <algorithm>
#include <map>
#include <string>
#include <vector>
volatile long sink;
struct Shape { virtual ~Shape() {} virtual double area(int n) const = 0; };
struct Round : Shape {
    double r; Round(double r) : r(r) {}
    __attribute__((noinline)) double area(int n) const override {
        double sum = 0; for (int i = 0; i < n; i++) sum += r / (i + 1); return sum;
    }
};
__attribute__((noinline)) long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) + (sink & 0); }
__attribute__((noinline)) void words() {
    std::map<std::string, int> m;
    for (int i = 0; i < 100000; i++) m["key" + std::to_string(i * 7919 % 50021)]++;
    sink += m.size();
}
__attribute__((noinline)) void numbers() {
    std::vector<unsigned> v;
    for (int i = 0; i < 500000; i++) v.push_back(i * 1103515245u + 12345u);
    std::sort(v.begin(), v.end()); sink += v[5];
}
int main() {
    for (int i = 0; i < 3; i++) {
        sink += fib(29); words(); numbers();
        Shape *shape = new Round(i); sink += shape->area(20000000); delete shape;
    }
}
"#;

/// Compiles and records a program. None if there is no compiler or no right to record.
fn recorded(
    name: &str,
    compiler: &str,
    source: &str,
    options: &[&str],
    how: &[&str],
) -> Option<Stream> {
    let directory = Directory::new(name);
    let program = directory.compile(compiler, source, options)?;
    if !can_record() {
        return None;
    }
    let file = directory.path("out.nprof");
    let words = [&["-o", &file][..], how, &["--", &program]].concat();
    let output = record(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    assert!(stream.samples.len() > 10, "{} samples", stream.samples.len());
    Some(stream)
}

#[test]
fn unwinds_optimized_cpp_without_frame_pointers_to_start() {
    let options = ["-O2", "-g", "-fomit-frame-pointer"];
    let Some(stream) = recorded("cpp", "g++", CPP, &options, &[]) else { return };
    let rooted = stream.samples.iter().filter(|sample| {
        // _start and main of the program, with the C library's start between them.
        let user: Vec<_> = sample.frames.iter().rev().map(|(image, _)| image.as_str()).collect();
        matches!(user[..], ["program", "libc.so.6", "libc.so.6", "program", ..])
    });
    // The rest: the dynamic loader and the code before main.
    let (rooted, all) = (rooted.count(), stream.samples.len());
    assert!(rooted * 100 >= all * 98, "{rooted} of {all} samples reach main and _start");
    let end = stream.end.expect("an end");
    assert_eq!(end.samples, all as u64);
    let incomplete = stream.samples.iter().filter(|sample| sample.mark != Mark::None).count();
    assert_eq!(end.incomplete, Some(incomplete as u64));
    assert_eq!(end.sampled_ns, Some(stream.samples.iter().map(|sample| sample.weight).sum()));
}

#[test]
fn unwinds_static_program_to_start() {
    let Some(stream) = recorded("static", "g++", CPP, &["-O2", "-static"], &[]) else { return };
    assert!(stream.complete() >= 0.98, "{}", stream.complete());
}

#[test]
fn stack_above_max_depth_is_marked() {
    let source = "
        long deep(int n) { volatile long a[4] = {n}; if (n == 0) { for (long i = 0; i < 300000000; i++) a[1] += i; \
        return a[1]; } return deep(n - 1) + a[0]; } int main() { return deep(5000) == 1; }";
    let options = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls"];
    let Some(stream) = recorded("depth", "gcc", source, &options, &["--depth", "20"]) else {
        return;
    };
    // The innermost call runs nearly all the time, 5,000 frames deep.
    let cut = stream.samples.iter().filter(|sample| {
        sample.mark == Mark::MaxDepth
            && sample.frames.iter().filter(|(_, kernel)| !kernel).count() == 20
    });
    assert!(cut.count() * 10 >= stream.samples.len() * 9);
}

#[test]
fn unwinds_through_signal_handlers() {
    let source = "
        #include <signal.h>\n#include <string.h>\n
        volatile long c; __attribute__((noinline)) void work(void) { for (int i = 0; i < 5000000; i++) c += i; }
        void handler(int s) { work(); }
        __attribute__((noinline)) void outer(void) { for (int i = 0; i < 30; i++) raise(SIGUSR1); }
        int main() { struct sigaction a; memset(&a, 0, sizeof a); a.sa_handler = handler; \
        sigaction(SIGUSR1, &a, 0); outer(); return 0; }";
    let Some(stream) = recorded("signal", "gcc", source, &["-O2"], &[]) else { return };
    assert!(stream.complete() >= 0.98, "{}", stream.complete());
    // Only stacks that continue below the signal frame are as deep.
    let through = stream.samples.iter().filter(|sample| sample.frames.len() >= 8).count();
    assert!(
        through * 10 >= stream.samples.len() * 9,
        "work, handler, trampoline, raise, outer, main, ..."
    );
}

#[test]
fn records_threads_and_forked_children() {
    let source = "
        #include <pthread.h>\n#include <sys/wait.h>\n#include <unistd.h>\n
        void *spin(void *p) { volatile long c = 0; for (long i = 0; i < 60000000; i++) c += i; return p; }
        int main() { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, spin, 0); \
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0); \
        if (fork() == 0) { spin(0); _exit(0); } wait(0); if (vfork() == 0) _exit(3); wait(0); return 0; }";
    let Some(stream) = recorded("threads", "gcc", source, &["-O2", "-pthread"], &[]) else {
        return;
    };
    assert_eq!(stream.tasks, 6, "main, three threads, two children");
    assert!(stream.complete() >= 0.98, "{}", stream.complete());
}

#[test]
fn unwind_option_selects_stack_capture() {
    let source = "long f(long n) { volatile long c = 0; for (long i = 0; i < n; i++) c += i; return c; } \
                  int main() { return f(200000000) == 1; }";
    let options = ["-O1", "-fno-omit-frame-pointer", "-fno-inline"];
    for (how, word) in [("auto", "dwarf"), ("dwarf", "dwarf"), ("fp", "fp"), ("none", "none")] {
        let Some(stream) = recorded(how, "gcc", source, &options, &["--unwind", how]) else {
            return;
        };
        assert_eq!(stream.event.unwind, word.as_bytes());
        let depth = stream.samples.iter().map(|sample| sample.frames.len()).max();
        match how {
            "none" => assert_eq!(depth, Some(1)),
            _ => assert!(depth >= Some(3)),
        }
    }
}

/// A program for the 32-bit mode of the processor. It needs no C library, of which compilers have
/// none for this mode by default.
const BITS_32: &str = "
    static volatile long sum;
    __attribute__((noinline)) static void work(void) {
        // On the stack: without a local variable, the function keeps no frame pointer.
        volatile long i = 0;
        while (i < 400000000) i++;
    }
    __attribute__((noinline)) static void middle(void) { work(); sum++; }
    __attribute__((used)) static void run(void) {
        middle();
        __asm__ volatile(\"int $0x80\" :: \"a\"(1), \"b\"(0));
    }
    __asm__(\".globl _start\\n_start: xor %ebp, %ebp\\n call run\");";

#[test]
fn stacks_of_32_bit_program_are_marked_unless_by_frame_pointers() {
    let directory = Directory::new("bits-32");
    let options = ["-m32", "-O1", "-fno-omit-frame-pointer", "-nostdlib", "-static"];
    let Some(program) = directory.compile("gcc", BITS_32, &options) else { return };
    if !can_record() {
        return;
    }
    if Command::new(&program).status().is_err() {
        return eprintln!("SKIPPED: the kernel executes no 32-bit programs");
    }
    let file = directory.path("out");
    for how in ["dwarf", "fp"] {
        let output = record(&["--unwind", how, "-o", &file, "--", &program]);
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        let user = |sample: &StackSample| {
            let user = sample.frames.iter().filter(|(_, kernel)| !kernel);
            user.map(|(image, _)| image.clone()).collect::<Vec<_>>()
        };
        let count = |mark: Mark, depth: usize| {
            let is = |sample: &&StackSample| {
                sample.mark == mark && user(sample) == vec!["program"; depth]
            };
            stream.samples.iter().filter(is).count()
        };
        let (marked, complete) = (count(Mark::Bits32, 1), count(Mark::None, 4));
        // The first samples may be in execve(2), before the program has user registers.
        let almost_all = stream.samples.len() * 9 / 10;
        assert!(almost_all > 20, "{}", stderr(&output));
        match how {
            "fp" => assert!(complete > almost_all, "{complete} complete: {}", stderr(&output)),
            _ => assert!(marked > almost_all, "{marked} marked: {}", stderr(&output)),
        }
        assert_eq!(stderr(&output).contains("32-bit programs are named"), how == "dwarf");
    }
}

#[test]
fn user_only_and_kernel_only_exclude_the_other_mode() {
    let source = "#include <unistd.h>\n#include <fcntl.h>
        int main() { char b[65536]; volatile long c = 0; int f = open(\"/dev/zero\", 0); \
        for (int i = 0; i < 2000; i++) { read(f, b, sizeof b); for (int j = 0; j < 50000; j++) c += j; } return 0; }";
    let Some(user) = recorded("user", "gcc", source, &["-O1"], &["--user-only"]) else {
        return;
    };
    assert_eq!(user.event.scope, b"user");
    assert!(user.samples.iter().all(|sample| sample.frames.iter().all(|(_, kernel)| !kernel)));
    // A command that is mostly in the kernel.
    let directory = Directory::new("kernel");
    let file = directory.path("out.nprof");
    if !record(&["--kernel-only", "-o", &file, "--", "ls", "-R", "/usr/share"]).status.success() {
        eprintln!("SKIPPED: the kernel may not be sampled");
        return;
    }
    let kernel = Stream::from_file(&file);
    assert_eq!(kernel.event.scope, b"kernel");
    assert!(
        kernel.samples.iter().all(|sample| sample.frames.first().is_none_or(|(_, kernel)| *kernel))
    );
}
