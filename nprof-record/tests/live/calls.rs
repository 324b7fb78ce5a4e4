//! Calls: counts that equal those of the program itself, by function, thread and second.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use nprof_stream::tables::Tables;
use nprof_stream::{Reader, Record, Verdict};

use crate::support::{Directory, can_record, record, record_as_other_user_with, stderr};
use crate::symbols::Symbols;

/// The length of a slice in ns.
const SLICE_NS: u64 = 1_000_000_000;

/// Twenty functions, of which the first instruction is one that the kernel emulates. Each of eight
/// threads calls them in rounds, and prints the calls of each round with the time before and after.
const ROUNDS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/syscall.h>
#include "now.h"
#define F(n) __asm__(".text\n.type f" #n ", @function\nf" #n ": push %rbx\n pop %rbx\n ret\n.size f" #n ", .-f" #n "\n"); void f##n(void);
F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) F(18) F(19)
static void (*const all[])(void) = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19};
static void *work(void *at) {
    long number = (long)at;
    for (int round = 0; round < 5; round++) {
        for (int f = 0; f < 20; f++) {
            int calls = (f + 1) * (number + 1) + 7 * round;
            unsigned long long before = now();
            for (int i = 0; i < calls; i++) all[f]();
            printf("%ld f%d %d %llu %llu\n", syscall(SYS_gettid), f, calls, before, now());
        }
        usleep(300000);
    }
    return 0;
}
int main(void) {
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
}
"#;

/// Functions that are left in all possible ways.
const WAYS: &str = r#"
#include <csetjmp>
#include <csignal>
#include <stdexcept>
static volatile int sink;
static std::jmp_buf place;
extern "C" {
__attribute__((noinline)) int recursive(int n) { return n == 0 ? 0 : 1 + recursive(n - 1); }
__attribute__((noinline)) void jumps() { std::longjmp(place, 1); }
__attribute__((noinline)) void throws(int n) { if (n == 0) throw std::runtime_error("x"); throws(n - 1); }
__attribute__((noinline)) void handler(int) { sink++; }
__attribute__((noinline)) void target() { sink++; }
void tail(void);
}
__asm__(".text\n.type tail, @function\ntail: push %rbx\n pop %rbx\n jmp target\n.size tail, .-tail\n");
int main() {
    for (int i = 0; i < 30; i++) sink += recursive(10);
    for (volatile int i = 0; i < 50; i++) if (!setjmp(place)) jumps();
    for (int i = 0; i < 20; i++) try { throws(4); } catch (const std::exception &) { sink++; }
    std::signal(SIGUSR1, handler);
    for (int i = 0; i < 40; i++) std::raise(SIGUSR1);
    for (int i = 0; i < 60; i++) tail();
}
"#;

/// A function that is called all the time, and one that is called 400 times during that.
const HOT: &str = r#"
#include <time.h>
#define F(n) __asm__(".text\n.type " #n ", @function\n" #n ": push %rbx\n pop %rbx\n ret\n.size " #n ", .-" #n "\n"); void n(void);
F(hot) F(rare)
int main(void) {
    for (int i = 0; i < 400; i++) {
        struct timespec start, t;
        clock_gettime(CLOCK_MONOTONIC, &start);
        do {
            for (int k = 0; k < 1000; k++) hot();
            clock_gettime(CLOCK_MONOTONIC, &t);
        } while ((t.tv_sec - start.tv_sec) * 1000000000 + t.tv_nsec - start.tv_nsec < 3000000);
        rare();
    }
}
"#;

/// Threads one after the other for 2.5 s, each with 1000 calls; it prints their number.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
__asm__(".text\n.type f, @function\nf: push %rbx\n pop %rbx\n ret\n.size f, .-f\n");
void f(void);
static void *work(void *none) {
    for (int i = 0; i < 1000; i++) f();
    return none;
}
int main(void) {
    struct timespec start, t;
    int threads = 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, 0);
        threads++;
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while ((t.tv_sec - start.tv_sec) * 1000000000ll + t.tv_nsec - start.tv_nsec < 2500000000ll);
    printf("%d\n", threads);
}
"#;

/// Calls by function, thread and slice.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) by_slice: BTreeMap<(String, u32, u64), u64>,
    begin_ns: u64,
    /// The functions that were taken off.
    taken_off: Vec<String>,
}

impl Calls {
    pub(crate) fn from_file(path: &str, symbols: &Symbols) -> Self {
        let bytes = fs::read(path).expect("a file");
        let (mut tables, mut calls, mut event) = (Tables::new(), Self::default(), None);
        let mut reader = Reader::new(&bytes[..]);
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match record {
                Record::Head(head) => calls.begin_ns = head.time.expect("a time"),
                Record::Event(it) if it.measure.word() == b"calls" => {
                    assert_eq!(it.exact_ns, Some(SLICE_NS));
                    event = Some(it.id);
                }
                Record::Sample(sample) if Some(sample.event) == event => {
                    let (_, frame) = tables.node(sample.node).expect("a stack");
                    let offset = tables.frame(frame).expect("a frame").offset;
                    let (_, name) = symbols.0.get(&offset).expect("the start of a function");
                    // The recorder does not know a task that ran only where it has no ring.
                    let tid = tables.task(sample.task).map_or(0, |task| task.tid);
                    let slice = sample.time.saturating_sub(calls.begin_ns) / SLICE_NS;
                    let key = (name.clone(), tid, slice);
                    *calls.by_slice.entry(key).or_default() += sample.weight;
                }
                Record::Lost(lost) if Some(lost.event) == event => {
                    let name = lost.extras.get("function");
                    let name = name.map(|name| String::from_utf8_lossy(&name).into_owned());
                    calls.taken_off.extend(name);
                }
                _ => {}
            }
        }
        assert_eq!(reader.verdict(), Verdict::Complete);
        calls
    }

    /// Returns the calls of a function.
    pub(crate) fn of(&self, name: &str) -> u64 {
        let of_name = self.by_slice.iter().filter(|((function, ..), _)| function == name);
        of_name.map(|(_, calls)| calls).sum()
    }
}

/// Writes the list of these functions of a program without a build ID: their first instructions are
/// the places. Returns its path.
pub(crate) fn list(
    directory: &Directory,
    program: &str,
    symbols: &Symbols,
    wanted: &[&str],
) -> String {
    let mut text = String::new();
    for (offset, (_, name)) in &symbols.0 {
        if wanted.contains(&name.as_str()) {
            text += &format!("{name}\t{program}\t\t{offset:#x}\t{offset:#x}\n");
        }
    }
    let path = directory.path("list");
    fs::write(&path, text).expect("written");
    path
}

/// Compiles a program without a build ID. None if there is no compiler, or this user may not record.
pub(crate) fn compiled(
    directory: &Directory,
    compiler: &str,
    source: &str,
    options: &[&str],
) -> Option<(String, Symbols)> {
    if !can_record() {
        return None;
    }
    let fixed = ["-Wl,--build-id=none", "-fcf-protection=none", "-pthread"];
    let program = directory.compile(compiler, source, &[&fixed, options].concat())?;
    let symbols = Symbols::from_file(&program);
    Some((program, symbols))
}

/// Records a program with the calls of a list. Returns the standard output of the program and the
/// messages; None if this kernel or these rights do not allow it, which is printed.
pub(crate) fn record_calls(words: &[&str]) -> Option<(String, String)> {
    for _ in 0..20 {
        let output = record(words);
        let messages = stderr(&output);
        if messages.contains("calls cannot be counted") {
            eprintln!("SKIPPED: {messages}");
            return None;
        }
        assert!(output.status.success(), "{messages}");
        // The kernel of some VMs runs no tracepoint for switches from threads of their supervisor.
        if messages.contains("of --calls-event could not be read") {
            eprintln!("recorded again: {messages}");
            continue;
        }
        return Some((String::from_utf8_lossy(&output.stdout).into_owned(), messages));
    }
    panic!("twenty recordings lack events");
}

#[test]
fn calls_of_each_thread_and_second_are_those_of_the_program() {
    let directory = Directory::new("calls-rounds");
    let Some((program, symbols)) = compiled(&directory, "gcc", ROUNDS, &["-O1"]) else { return };
    let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let list = list(&directory, &program, &symbols, &names);
    // Its calls are those of another process.
    let mut other = Command::new(&program).stdout(Stdio::null()).spawn().expect("it runs");
    let stream = directory.path("stream");
    let recorded = record_calls(&["--calls", &list, "-o", &stream, "--", &program]);
    other.wait().expect("it ends");
    let Some((printed, messages)) = recorded else { return };
    let calls = Calls::from_file(&stream, &symbols);
    let (mut least, mut most) = (BTreeMap::new(), BTreeMap::new());
    let mut all = 0;
    for line in printed.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        let slice = |ns: u64| ns.saturating_sub(calls.begin_ns) / SLICE_NS;
        let (first, last) = (slice(number(3)), slice(number(4)));
        all += number(2);
        for slice in first..=last {
            let key = (fields[1].to_owned(), number(0) as u32, slice);
            *most.entry(key.clone()).or_insert(0) += number(2);
            // A round that lies in two slices may have its calls in either.
            *least.entry(key).or_insert(0) += if first == last { number(2) } else { 0 };
        }
    }
    assert_eq!(calls.by_slice.values().sum::<u64>(), all, "{messages}");
    for (key, found) in &calls.by_slice {
        let (least, most) = (least.get(key).copied(), most.get(key).copied());
        let range = least.unwrap_or(0)..=most.unwrap_or(0);
        assert!(range.contains(found), "{key:?}: {found} of {range:?}");
    }
    assert!(messages.contains(&format!("{all} calls of 20 functions")), "{messages}");
}

#[test]
fn calls_of_threads_that_end_within_a_second_are_counted() {
    let directory = Directory::new("calls-threads");
    let Some((program, symbols)) = compiled(&directory, "gcc", THREADS, &["-O1"]) else { return };
    let list = list(&directory, &program, &symbols, &["f"]);
    let stream = directory.path("stream");
    let words = ["--calls", &list, "--calls-limit", "1000000000", "-o", &stream, "--", &program];
    let Some((printed, messages)) = record_calls(&words) else { return };
    let threads: u64 = printed.trim().parse().expect("a number");
    assert_eq!(Calls::from_file(&stream, &symbols).of("f"), 1000 * threads, "{messages}");
}

#[test]
fn functions_that_do_not_return_are_counted() {
    let directory = Directory::new("calls-ways");
    // Every function begins with a push.
    let Some((program, symbols)) = compiled(&directory, "g++", WAYS, &["-O0"]) else { return };
    let expected = [
        ("recursive", 330),
        ("jumps", 50),
        ("throws", 100),
        ("handler", 40),
        ("target", 60),
        ("tail", 60),
    ];
    let list = list(&directory, &program, &symbols, &expected.map(|(name, _)| name));
    let stream = directory.path("stream");
    let Some(_) = record_calls(&["--calls", &list, "-o", &stream, "--", &program]) else { return };
    let calls = Calls::from_file(&stream, &symbols);
    let found = expected.map(|(name, _)| (name, calls.of(name)));
    assert_eq!(found, expected);
}

#[test]
fn function_beyond_the_limit_is_taken_off_and_others_are_not() {
    let directory = Directory::new("calls-limit");
    let Some((program, symbols)) = compiled(&directory, "gcc", HOT, &["-O1"]) else { return };
    let list = list(&directory, &program, &symbols, &["hot", "rare"]);
    let stream = directory.path("stream");
    let words = ["--calls", &list, "--calls-limit", "5000", "-o", &stream, "--", &program];
    let Some((_, messages)) = record_calls(&words) else { return };
    let calls = Calls::from_file(&stream, &symbols);
    assert_eq!(calls.taken_off, ["hot"]);
    assert_eq!(calls.of("rare"), 400, "no call was missed or counted twice");
    assert!(calls.of("hot") > 0);
    let is_named = messages.contains("hot: ") && messages.contains("--calls-limit");
    assert!(is_named, "{messages}");
}

/// Two functions that are called as often, 30 times in a millisecond: the kernel executes the first
/// instruction of `slow` in a single step. They print the number of calls of each.
const STEPPED: &str = r#"
#include <stdio.h>
#include "now.h"
#define F(n, code) __asm__(".text\n.type " #n ", @function\n" #n ": .cfi_startproc\n " code "\n ret\n .cfi_endproc\n.size " #n ", .-" #n "\n"); void n(void);
F(slow, "mov %rbx, %rbx") F(fast, "nop")
__attribute__((noinline)) static int calls(unsigned long long until) {
    for (int i = 0; i < 30; i++) slow(), fast();
    while (now() < until) {}
    return 30;
}
int main(void) {
    int all = 0;
    // Not from a common start: after a wait for a CPU, it would catch up at a higher rate.
    for (int ms = 1; ms <= 1500; ms++) all += calls(now() + 1000000ull);
    printf("%d\n", all);
}
"#;

/// Records the calls of `slow` and `fast`. Returns them with the output of the program and the messages;
/// None if that is not possible here.
fn record_stepped(name: &str, limit: &str) -> Option<(Calls, String, String)> {
    let directory = Directory::new(name);
    let (program, symbols) = compiled(&directory, "gcc", STEPPED, &["-O2"])?;
    let path = list(&directory, &program, &symbols, &["slow", "fast"]);
    let text = fs::read_to_string(&path).expect("a list");
    let line = |line: &str| {
        let slow = if line.starts_with("slow\t") { "yes" } else { "no" };
        format!("{line}\t?\t{slow}\n")
    };
    fs::write(&path, text.lines().map(line).collect::<String>()).expect("written");
    let stream = directory.path("stream");
    let limit = ["-e", "cpu-clock", "--calls-limit", limit];
    let words = ["--calls", &path, "-o", &stream, "--", &program];
    let (printed, messages) = record_calls(&[&limit[..], &words].concat())?;
    Some((Calls::from_file(&stream, &symbols), printed, messages))
}

#[test]
fn calls_and_stacks_of_functions_with_single_steps_are_right() {
    // On a busy machine, the costs may be measured wrong.
    for attempt in 1.. {
        let recorded = record_stepped("calls-stepped", "1000000000");
        let Some((calls, printed, messages)) = recorded else { return };
        let expected: u64 = printed.trim().parse().expect("a number");
        assert_eq!((calls.of("slow"), calls.of("fast")), (expected, expected), "{messages}");
        // A quarter of the time is that of steps, of instructions that are elsewhere then.
        assert!(messages.contains(", 0 incomplete"), "{messages}");
        let costs = messages.split_once("counting takes ").expect("the cost").1;
        let (usual, slow) = costs.split_once(" ns of CPU time for each, ").expect("two costs");
        let (slow, _) = slow.split_once(" ns for those of 1 function").expect("the second");
        let [usual, slow] = [usual, slow].map(|ns| ns.parse::<u64>().expect("a number"));
        if 0 < usual && usual < slow {
            break;
        }
        assert!(attempt < 3, "{messages}");
    }
}

#[test]
fn limit_is_lower_for_functions_with_single_steps() {
    // On a busy machine, the cost of a step may be measured wrong, and the rate be lower.
    for attempt in 1.. {
        let recorded = record_stepped("calls-stepped-limit", "40000");
        let Some((calls, _, messages)) = recorded else { return };
        if calls.taken_off == ["slow"] {
            assert!(messages.contains(" calls per second with a single step; "), "{messages}");
            break;
        }
        assert!(attempt < 3, "{:?}: {messages}", calls.taken_off);
    }
}

#[test]
fn functions_of_another_kernel_are_refused() {
    let directory = Directory::new("calls-kernel");
    let list = directory.path("list");
    std::fs::write(&list, "f\t[kernel]\t00\t0x10\t0x10\n").expect("a list");
    let output = Command::new(env!("CARGO_BIN_EXE_nprof-record"))
        .args(["-o", "/dev/null", "--calls", &list, "--", "true"])
        .output()
        .expect("it runs");
    let messages = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{messages}");
    // This kernel may have no such probes.
    let is_explained = messages.contains("another build") || messages.contains("CONFIG_");
    assert!(is_explained && messages.contains("--calls"), "{messages}");
}

#[test]
fn ordinary_user_is_refused_with_the_remedy() {
    let directory = Directory::new("calls-user");
    let Some((program, symbols)) = compiled(&directory, "gcc", HOT, &["-O1"]) else { return };
    let list = list(&directory, &program, &symbols, &["rare"]);
    let user = record_as_other_user_with(&directory, "stream", "true", &["--calls", &list]);
    let Ok(output) = user else { return eprintln!("SKIPPED: no setpriv") };
    let messages = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{messages}");
    assert!(messages.contains("run as root or with CAP_BPF and CAP_PERFMON"), "{messages}");
}
