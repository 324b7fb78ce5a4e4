//! An event by routine: page faults that equal those of the program, by function, path, thread and second.

use std::collections::BTreeMap;
use std::fs;

use nprof_stream::tables::Tables;
use nprof_stream::{Reader, Record, Verdict};

use crate::calls::{self, compiled, record_calls};
use crate::support::{Directory, record, stderr};
use crate::symbols::Symbols;

/// The length of a slice in ns.
const SLICE_NS: u64 = 1_000_000_000;

/// Four threads touch new pages in functions that call each other. Each prints its pages of each round and
/// function with the time before and after, and its page faults.
const PAGES: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "now.h"
static __thread volatile char *next;
static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}
void inner(int pages) { for (int i = 0; i < pages; i++, next += 4096) *next = 1; }
void outer(int pages) {
    for (int i = 0; i < pages; i++, next += 4096) *next = 1;
    inner(2 * pages);
    for (int i = 0; i < pages; i++, next += 4096) *next = 1;
    inner(0);
}
void deep(int depth) { *next = 1; next += 4096; if (depth > 1) deep(depth - 1); }
static void warm(void) {
    volatile char stack[65536];
    memset((char *)stack, 1, sizeof stack);
}
static void *work(void *at) {
    long number = (long)at, before, after;
    unsigned long long begin[5], end[5];
    warm();
    next = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)next, 64 << 20, MADV_NOHUGEPAGE);
    outer(0);
    deep(1);
    begin[0] = now();
    usleep(1);
    before = faults();
    for (int round = 0; round < 5; round++) {
        begin[round] = now();
        outer(10 * (number + 1) + round);
        deep(40);
        end[round] = now();
        usleep(300000);
    }
    after = faults();
    for (int round = 0; round < 5; round++)
        printf("%ld %ld %llu %llu\n", syscall(SYS_gettid), 10 * (number + 1) + round, begin[round], end[round]);
    printf("%ld %ld\n", syscall(SYS_gettid), after - before);
    return 0;
}
int main(void) {
    pthread_t threads[4];
    inner(0);
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}
"#;

/// Functions that are left in all possible ways, and touch pages before and after.
const WAYS: &str = r#"
#include <csetjmp>
#include <csignal>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>
static volatile char *next;
static std::jmp_buf place;
static void touch(int pages) { for (int i = 0; i < pages; i++, next += 4096) *next = 1; }
extern "C" {
void jumps() { touch(3); std::longjmp(place, 1); }
void throws(int n) { touch(1); if (n == 0) throw std::runtime_error("x"); throws(n - 1); }
void handler(int) { touch(5); }
void target() { touch(7); }
void rest() { touch(2); }
void catches(int n) {
    if (n == 0) throw std::runtime_error("x");
    try { catches(n - 1); } catch (const std::exception &) { if (n == 1) throw; touch(4); }
}
void tail(void);
void all() {
    for (volatile int i = 0; i < 50; i++) { if (!setjmp(place)) jumps(); rest(); }
    for (int i = 0; i < 20; i++) try { throws(4); } catch (const std::exception &) { rest(); }
    for (int i = 0; i < 40; i++) std::raise(SIGUSR1);
    for (int i = 0; i < 60; i++) tail();
    for (int i = 0; i < 30; i++) { catches(3); touch(6); }
}
}
__asm__(".text\n.type tail, @function\ntail: push %rbx\n pop %rbx\n jmp target\n.size tail, .-tail\n");
int main() {
    std::signal(SIGUSR1, handler);
    std::size_t size = 256 << 20;
    next = (char *)mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)next, size, MADV_NOHUGEPAGE);
    try { throw std::runtime_error("x"); } catch (const std::exception &) {}
    std::raise(SIGUSR1);
    all();
    _exit(0);
}
"#;

/// Calls a function often for a second, then touches pages in its caller and in another function.
const OFTEN: &str = r#"
#include <sys/mman.h>
#include <time.h>
static volatile char *next;
static void touch(int pages) { for (int i = 0; i < pages; i++, next += 4096) *next = 1; }
void often(void) {}
void late(void) { touch(200); }
void loops(void) {
    for (time_t end = time(0) + 2; time(0) < end;) often();
    touch(300);
    late();
}
int main(void) {
    next = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)next, 64 << 20, MADV_NOHUGEPAGE);
    loops();
}
"#;

/// Sleeps in two functions, and prints the switches of the thread within the outer one and around it.
const SLEEPS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
static long switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}
void inner(void) { for (int i = 0; i < 20; i++) usleep(1000); }
long outer(void) {
    long before = switches();
    for (int i = 0; i < 7; i++) usleep(1000);
    inner();
    return switches() - before;
}
int main(void) {
    long before = switches(), within = outer();
    printf("%ld %ld\n", within, switches() - before);
}
"#;

/// The events of an event by path (the innermost function first), thread and slice.
struct Counts {
    by_slice: BTreeMap<(Vec<String>, u32, u64), u64>,
    begin_ns: u64,
}

impl Counts {
    fn from_file(path: &str, event_name: &[u8], symbols: &Symbols) -> Self {
        let bytes = fs::read(path).expect("a file");
        let (mut tables, mut event) = (Tables::new(), None);
        let mut counts = Self { by_slice: BTreeMap::new(), begin_ns: 0 };
        let mut reader = Reader::new(&bytes[..]);
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match record {
                Record::Head(head) => counts.begin_ns = head.time.expect("a time"),
                Record::Event(it) if it.name[..] == *event_name && it.exact_ns.is_some() => {
                    event = Some(it.id);
                }
                Record::Sample(sample) if Some(sample.event) == event => {
                    let steps = std::iter::successors(tables.node(sample.node), |(parent, _)| {
                        tables.node(*parent)
                    });
                    let offsets =
                        steps.map(|(_, frame)| tables.frame(frame).expect("a frame").offset);
                    let names =
                        offsets.filter_map(|offset| Some(symbols.0.get(&offset)?.1.clone()));
                    let tid = tables.task(sample.task).map_or(0, |task| task.tid);
                    let slice = sample.time.saturating_sub(counts.begin_ns) / SLICE_NS;
                    let key = (names.collect(), tid, slice);
                    *counts.by_slice.entry(key).or_default() += sample.weight;
                }
                _ => {}
            }
        }
        assert_eq!(reader.verdict(), Verdict::Complete);
        counts
    }

    /// Returns the events of a path, by thread.
    fn by_thread(&self, path: &[&str]) -> BTreeMap<u32, u64> {
        let mut threads = BTreeMap::new();
        for ((of, tid, _), events) in &self.by_slice {
            if of == path {
                *threads.entry(*tid).or_insert(0) += events;
            }
        }
        threads
    }

    /// Returns the events in a function itself.
    fn of(&self, name: &str) -> u64 {
        let own = self
            .by_slice
            .iter()
            .filter(|((path, ..), _)| path.first().is_some_and(|it| it == name));
        own.map(|(_, events)| events).sum()
    }
}

/// Writes the list of these functions of a program without a build ID. Returns its path.
fn list(directory: &Directory, program: &str, symbols: &Symbols, wanted: &[&str]) -> String {
    let code = fs::read(program).expect("a program");
    let mut text = String::new();
    for (offset, (size, name)) in
        symbols.0.iter().filter(|(_, (_, name))| wanted.contains(&&name[..]))
    {
        let code = &code[*offset as usize..][..*size as usize];
        // Without optimization: pop %rbp or leave, then ret. `tail` has only a jump, after two others.
        let is_return = |at: &usize| matches!(code[*at - 1..=*at], [0x5d | 0xc9, 0xc3]);
        let mut ends: Vec<_> = (1..code.len()).filter(is_return).collect();
        ends.extend((name == "tail").then_some(2));
        let ends: Vec<_> = ends.iter().map(|end| format!("{:#x}", offset + *end as u64)).collect();
        let ends = ends.join(",");
        text += &format!("{name}\t{program}\t\t{offset:#x}\t{offset:#x}\t{ends}\n");
    }
    let path = directory.path("list");
    fs::write(&path, text).expect("written");
    path
}

#[test]
fn page_faults_of_each_routine_are_those_of_the_program() {
    let directory = Directory::new("routines-pages");
    let Some((program, symbols)) = compiled(&directory, "gcc", PAGES, &["-O0"]) else { return };
    let list = list(&directory, &program, &symbols, &["inner", "outer", "deep"]);
    let stream = directory.path("stream");
    let event = ["--calls-event", "page-faults"];
    let words = [&["--calls", &list], &event[..], &["-o", &stream, "--", &program]].concat();
    let Some((printed, messages)) = record_calls(&words) else { return };
    let counts = Counts::from_file(&stream, b"page-faults.exact", &symbols);
    let (mut outer, mut faults) = (BTreeMap::new(), BTreeMap::new());
    let (mut least, mut most) = (BTreeMap::new(), BTreeMap::new());
    for line in printed.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().expect("a number")).collect();
        let tid = numbers[0] as u32;
        match numbers[1..] {
            [pages, begin, end] => {
                *outer.entry(tid).or_insert(0) += 2 * pages;
                let slice = |ns: u64| ns.saturating_sub(counts.begin_ns) / SLICE_NS;
                let (first, last) = (slice(begin), slice(end));
                for slice in first..=last {
                    *most.entry((tid, slice)).or_insert(0) += 2 * pages;
                    // A round that lies in two slices may have its faults in either.
                    *least.entry((tid, slice)).or_insert(0) +=
                        if first == last { 2 * pages } else { 0 };
                }
            }
            _ => {
                faults.insert(tid, numbers[1]);
            }
        }
    }
    assert_eq!(outer.len(), 4, "{printed}");
    // Twice as many pages, half of them by `outer` itself.
    assert_eq!(counts.by_thread(&["outer"]), outer, "{messages}");
    assert_eq!(counts.by_thread(&["inner", "outer"]), outer, "{messages}");
    let path = vec!["deep"; 40];
    for depth in 2..=40 {
        let each: Vec<u64> = counts.by_thread(&path[..depth]).into_values().collect();
        assert_eq!(each, [5; 4], "depth {depth}");
    }
    for (tid, faults) in faults {
        assert_eq!(2 * outer[&tid] + 5 * 40, faults, "the program's own count");
    }
    for ((path, tid, slice), found) in &counts.by_slice {
        if path == &["outer"] {
            let key = (*tid, *slice);
            let range =
                least.get(&key).copied().unwrap_or(0)..=most.get(&key).copied().unwrap_or(0);
            assert!(range.contains(found), "{key:?}: {found} of {range:?}");
        }
    }
}

#[test]
fn routines_that_do_not_return_leave_no_events_to_others() {
    let directory = Directory::new("routines-ways");
    let Some((program, symbols)) = compiled(&directory, "g++", WAYS, &["-O0"]) else { return };
    let wanted = ["jumps", "throws", "handler", "target", "rest", "tail", "catches", "all"];
    let list = list(&directory, &program, &symbols, &wanted);
    let stream = directory.path("stream");
    let words = ["--calls", &list, "--calls-event", "minor-faults", "-o", &stream, "--", &program];
    let Some((_, messages)) = record_calls(&words) else { return };
    let counts = Counts::from_file(&stream, b"minor-faults.exact", &symbols);
    assert_eq!((counts.of("target"), counts.of("rest")), (60 * 7, 70 * 2), "{messages}");
    assert_eq!((counts.of("jumps"), counts.of("tail")), (50 * 3, 0), "{messages}");
    // The libraries touch pages of theirs, more of them if the kernel has taken back their files.
    for (name, least) in [("throws", 100), ("handler", 205), ("catches", 30 * 4), ("all", 30 * 6)] {
        let found = counts.of(name);
        assert!((least..least + 40).contains(&found), "{name}: {found} of {least}");
    }
    let paths = counts.by_slice.keys().map(|(path, ..)| path.len());
    assert!(paths.max().is_some_and(|depth| depth <= 6), "{:?}", counts.by_slice);
}

#[test]
fn function_that_is_taken_off_has_no_events_of_its_callers() {
    let directory = Directory::new("routines-off");
    let Some((program, symbols)) = compiled(&directory, "gcc", OFTEN, &["-O0"]) else { return };
    let list = list(&directory, &program, &symbols, &["often", "loops", "late"]);
    let stream = directory.path("stream");
    let options = ["--calls", &list, "--calls-event", "minor-faults", "--calls-limit", "2000"];
    let words = [&options[..], &["-o", &stream, "--", &program]].concat();
    let Some((_, messages)) = record_calls(&words) else { return };
    assert!(messages.contains("often: ") && messages.contains("not counted further"), "{messages}");
    let counts = Counts::from_file(&stream, b"minor-faults.exact", &symbols);
    let of = |path: &[&str]| counts.by_thread(path).into_values().sum::<u64>();
    assert_eq!(of(&["late", "loops"]), 200, "{:?} {messages}", counts.by_slice);
    assert!((300..340).contains(&of(&["loops"])), "{:?} {messages}", counts.by_slice);
}

#[test]
fn function_of_unknown_ends_has_no_events_of_its_callers() {
    let directory = Directory::new("routines-unknown");
    let Some((program, symbols)) = compiled(&directory, "gcc", PAGES, &["-O0"]) else { return };
    let path = list(&directory, &program, &symbols, &["inner", "outer"]);
    let known = fs::read_to_string(&path).expect("written");
    let unknown = |line: &str| {
        let (fields, _) = line.rsplit_once('\t').expect("six fields");
        format!("{fields}\t?\n")
    };
    let is_inner = |line: &&str| line.starts_with("inner\t");
    let text: String = known
        .lines()
        .map(|line| if is_inner(&line) { unknown(line) } else { format!("{line}\n") })
        .collect();
    fs::write(&path, text).expect("written");
    let stream = directory.path("stream");
    let words = ["--calls", &path, "--calls-event", "page-faults", "-o", &stream, "--", &program];
    let Some((printed, messages)) = record_calls(&words) else { return };
    assert!(messages.contains("inner: where the function ends is not known"), "{messages}");
    let counts = Counts::from_file(&stream, b"page-faults.exact", &symbols);
    let rounds = printed.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let pages = rounds.filter(|it| it.len() == 4).map(|it| it[1].parse::<u64>().expect("pages"));
    assert_eq!((counts.of("outer"), counts.of("inner")), (4 * pages.sum::<u64>(), 0));
}

#[test]
fn switches_belong_to_the_routine_that_sleeps() {
    let directory = Directory::new("routines-sleeps");
    let Some((program, symbols)) = compiled(&directory, "gcc", SLEEPS, &["-O0"]) else { return };
    let list = list(&directory, &program, &symbols, &["inner", "outer"]);
    let stream = directory.path("stream");
    let words =
        ["--calls", &list, "--calls-event", "context-switches", "-o", &stream, "--", &program];
    let Some((printed, messages)) = record_calls(&words) else { return };
    let (within, around) = printed.trim().split_once(' ').expect("two numbers");
    let range = within.parse::<u64>().expect("a number")..=around.parse().expect("a number");
    let counts = Counts::from_file(&stream, b"context-switches.exact", &symbols);
    let (inner, outer) = (counts.of("inner"), counts.of("outer"));
    assert!(range.contains(&(inner + outer)), "{inner} + {outer} of {range:?}; {messages}");
    assert!(inner >= 20 && outer >= 7, "{inner}, {outer}");
}

#[test]
fn events_that_no_cpu_counts_are_refused_by_name() {
    let directory = Directory::new("routines-refused");
    let source = "int main(void) { return 0; }";
    let Some((program, symbols)) = compiled(&directory, "gcc", source, &["-O0"]) else { return };
    let refused = |list: &str, event: &str| {
        let output =
            record(&["-o", "/dev/null", "--calls", list, "--calls-event", event, "--", "true"]);
        assert_eq!(output.status.code(), Some(125));
        stderr(&output)
    };
    let message = refused(&calls::list(&directory, &program, &symbols, &["main"]), "page-faults");
    assert!(message.contains("list them again"), "a list without ends: {message}");
    let list = list(&directory, &program, &symbols, &["main"]);
    for event in ["blocked", "calls", "page-faults:10"] {
        assert!(refused(&list, event).contains(event.split(':').next().expect("a name")));
    }
}
