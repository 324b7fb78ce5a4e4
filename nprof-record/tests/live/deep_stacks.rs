//! Stacks deeper than the kernel's copy, with BPF and with hardware breakpoints.
//!
//! With the right to load BPF programs, such stacks are complete at once. Without it, they are
//! completed by frames that stay on the stack between samples, and by nothing else. Where the CPU
//! has no free breakpoint, they stay incomplete, and the tests print SKIPPED.

use std::process::Command;

use nprof_stream::{Mark, Verdict};

use crate::support::{Directory, Stream, can_record, record, record_as_other_user, stderr};
use crate::symbols::Symbols;

/// Two callers with equal frames alternately call the same function; the name of the leaf
/// identifies the caller. They alternate every 30 ms down to every few microseconds.
const CALLERS: &str = "
    #include <stdlib.h>
    #include <time.h>
    volatile long sink;
    static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000L + t.tv_nsec; }
    __attribute__((noinline)) void leafA(long n) { for (; n > 0; n--) sink += n; }
    __attribute__((noinline)) void leafB(long n) { for (; n > 0; n--) sink += n; }
    __attribute__((noinline)) void callee(int b, long n) {
        volatile char pad[PAD]; pad[0] = b; if (b) leafB(n); else leafA(n); pad[PAD - 1] = b; }
    __attribute__((noinline)) void callerA(long n) { volatile long a[5]; a[0] = n; callee(0, n); a[1] = n; }
    __attribute__((noinline)) void callerB(long n) { volatile long a[5]; a[0] = n; callee(1, n); a[1] = n; }
    __attribute__((noinline)) void turns(long n, long until) {
        while (now() < until) { if (rand() & 1024) callerA(n); else callerB(n); } }
    int main() {
        long begin = now(); leafA(20000000); double each = (now() - begin) / 2e7;
        long times[] = { 30000000, 10000000, 3000000, 1000000, 100000, 10000, 3000, 1000 };
        for (int round = 0; round < 2; round++) for (int i = 0; i < 8; i++)
            turns(times[i] / each + 1, now() + (i < 2 ? 300000000 : 120000000));
        return 0;
    }";

/// Returns a command prefix that drops the right to load BPF programs. None if we lack it, too.
fn without_bpf() -> Option<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-bpf,-sys_admin", "--"]);
    let tried = Command::new("setpriv").args(["--bounding-set=-bpf,-sys_admin", "true"]).output();
    (can_load_bpf() && tried.is_ok_and(|tried| tried.status.success())).then_some(command)
}

/// True if we can load BPF programs for perf events: the kernel has BTF, and we have CAP_BPF and
/// CAP_PERFMON, or CAP_SYS_ADMIN.
pub(crate) fn can_load_bpf() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t"));
    let effective = effective.and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
    // Numbers from linux/capability.h: 21 CAP_SYS_ADMIN, 38 CAP_PERFMON, 39 CAP_BPF.
    let has = |capability: u32| effective >> capability & 1 != 0;
    std::path::Path::new("/sys/kernel/btf/vmlinux").exists() && (has(38) && has(39) || has(21))
}

#[test]
fn callers_with_equal_frames_are_distinguished() {
    callers("with", &["8", "16", "64", "1024", "16384"], || Some(Command::new("env")));
}

#[test]
fn callers_with_equal_frames_are_distinguished_without_bpf() {
    if without_bpf().is_none() {
        eprintln!("SKIPPED: BPF programs cannot be loaded here in any case");
        return;
    }
    callers("without", &["8", "64", "1024"], without_bpf);
}

/// Records the two callers with these stack copy sizes, with recorders that `start` prefixes.
fn callers(programs: &str, sizes: &[&str], start: impl Fn() -> Option<Command>) {
    let mut complete = 0;
    for &size in sizes {
        let directory = Directory::new(&format!("callers-{programs}-{size}"));
        let pad = format!("-DPAD={size}");
        let options = ["-O2", "-fno-ipa-icf", &pad];
        let Some(program) = directory.compile("gcc", CALLERS, &options) else { return };
        if !can_record() {
            return;
        }
        let functions = Symbols::from_file(&program);
        let file = directory.path("out.nprof");
        let how = ["-o", &file, "--stack-size", size, "-F", "1997", "--", &program];
        let mut recorder = start().expect("as before");
        recorder.arg(env!("CARGO_BIN_EXE_nprof-record")).args(how);
        let output = recorder.output().expect("it starts");
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        for sample in stream.samples.iter().filter(|sample| sample.mark == Mark::None) {
            let stack = functions.on_stack(sample);
            let Some(leaf) = stack.iter().find_map(|name| name.strip_prefix("leaf")) else {
                continue;
            };
            let Some(caller) = stack.iter().find_map(|name| name.strip_prefix("caller")) else {
                // The calibration loop of `main` calls a leaf directly.
                assert_eq!(stack.get(1), Some(&"main"), "{stack:?}");
                continue;
            };
            assert_eq!(leaf, caller, "copies of {size}: {stack:?}");
            complete += 1;
        }
    }
    if complete == 0 {
        eprintln!("SKIPPED: no stack deeper than its copy was completed: no breakpoints here");
    }
    eprintln!("{complete} complete");
}

const RECURSION: &str = "
    #include <stdlib.h>
    volatile long sink;
    long spin(long n) { for (long i = 0; i < n; i++) sink += i; return 0; }
    long shallow(int n) { volatile long a[16]; a[0] = n; return n ? shallow(n - 1) + a[0] : spin(20000); }
    long deep(int n) { volatile long a[21]; a[0] = n; if (n) return deep(n - 1) + a[0];
        for (int i = 0; i < 50000; i++) sink += shallow(rand() % 60); return 0; }
    int main() { return deep(5000) == 1; }";

/// Compiler options that keep every function and every frame.
const PLAIN: [&str; 3] = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls"];

/// Checks that most samples of the deep program reach `main` through 5,000 frames.
fn reaches_main(program: &str, stream: &Stream) {
    assert_eq!(stream.verdict, Verdict::Complete);
    let end = stream.end.as_ref().expect("an end");
    assert_eq!(end.stitched, Some(stream.stitched), "@end counts the samples with stitched=");
    let functions = Symbols::from_file(program);
    let all = stream.samples.len();
    assert!(all > 20, "{all} samples");
    let mut rooted = 0;
    for sample in stream.samples.iter().filter(|sample| sample.mark == Mark::None) {
        let stack = functions.on_stack(sample);
        let deep = stack.iter().filter(|name| **name == "deep").count();
        let is_below = stack.contains(&"spin") || stack.contains(&"shallow");
        assert!(deep == 0 || stack.contains(&"main"), "{deep} frames of deep, no main");
        assert!(deep == 5001 || !is_below, "{deep} frames of deep");
        rooted += usize::from(deep == 5001);
    }
    if rooted == 0 {
        eprintln!("SKIPPED: no deep stack was completed: no breakpoints here");
    } else {
        // While the recorder waits for a CPU, its rings have no room for stacks of this size.
        assert!(rooted * 2 >= all, "{rooted} of {all}");
    }
}

#[test]
fn five_thousand_frames_reach_main() {
    let directory = Directory::new("recursion");
    let Some(program) = directory.compile("gcc", RECURSION, &PLAIN) else { return };
    if !can_record() {
        return;
    }
    let file = directory.path("out.nprof");
    let output = record(&["-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    reaches_main(&program, &Stream::from_file(&file));
}

/// A function with a frame of 500 kB at the base of a stack. The depth above it varies around the
/// size of the kernel's copy.
const WIDE: &str = "
    #include <stdlib.h>
    volatile long sink;
    long spin(long n) { for (long i = 0; i < n; i++) sink += i; return 0; }
    long shallow(int n) { volatile long a[96]; a[0] = n; return n ? shallow(n - 1) + a[0] : spin(20000); }
    long wide(void) { volatile char a[500000]; for (int i = 0; i < 500000; i += 1000) a[i] = 1;
        for (int i = 0; i < 60000; i++) sink += shallow(rand() % 200) + a[0]; return a[1]; }
    int main() { return wide() == 1; }";

#[test]
fn bpf_copies_stack_beyond_kernel_copy() {
    let directory = Directory::new("wide");
    let Some(program) = directory.compile("gcc", WIDE, &PLAIN) else { return };
    if !can_record() || !can_load_bpf() {
        eprintln!("SKIPPED: no right to load BPF programs");
        return;
    }
    let functions = Symbols::from_file(&program);
    for options in [&["--follow", "system"][..], &["--follow", "inherit", "--stack-size", "1024"]] {
        let file = directory.path("out.nprof");
        let output = record(&[&["-o", &file][..], options, &["--", &program]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let stream = Stream::from_file(&file);
        assert!(stream.samples.len() > 20 && stream.stitched == 0, "{}", stderr(&output));
        // Until copy hints exist for the thread, each sample copies all that is readable (up to 1
        // MiB), which fills the rings on a busy machine.
        assert!(stream.complete() >= 0.5, "{}", stderr(&output));
        for sample in stream.samples.iter().filter(|sample| sample.mark == Mark::None) {
            let stack = functions.on_stack(sample);
            if stack.contains(&"shallow") {
                assert_eq!(stack[stack.len() - 3..], ["wide", "main", "_start"], "{stack:?}");
            }
        }
    }
}

#[test]
fn five_thousand_frames_reach_main_unprivileged() {
    let directory = Directory::new("ordinary");
    let Some(program) = directory.compile("gcc", RECURSION, &PLAIN) else { return };
    let file = directory.path("out.nprof");
    let output = record_as_other_user(&directory, &file, &program);
    match output {
        Ok(output) if output.status.success() => reaches_main(&program, &Stream::from_file(&file)),
        Ok(output) => eprintln!("SKIPPED: {}", stderr(&output)),
        Err(error) => eprintln!("SKIPPED: setpriv: {error}"),
    }
}
