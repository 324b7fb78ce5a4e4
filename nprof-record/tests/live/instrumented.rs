//! Calls of functions that the compiler instrumented: exact and sampled counts by function and caller.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};

use nprof_stream::tables::Tables;
use nprof_stream::{End, Event, Reader, Record, Verdict};

use crate::support::{Directory, recorder, stderr};
use crate::symbols::Symbols;

/// Calls by function and caller; the caller is empty if it is not a function of the program.
type Pairs = BTreeMap<(String, String), u64>;

/// The calls in a stream.
struct Calls {
    verdict: Verdict,
    event: Event,
    end: End,
    pairs: Pairs,
    /// The number of samples.
    samples: u64,
}

impl Calls {
    /// Reads the stream in a file. Functions are those of `program`.
    fn read(file: &str, program: &str) -> Self {
        let functions = Symbols::from_file(program);
        let bytes = fs::read(file).expect("a stream");
        let (mut tables, mut reader) = (Tables::new(), Reader::new(&bytes[..]));
        let (mut event, mut end) = (Event::default(), End::default());
        let (mut pairs, mut samples) = (Pairs::new(), 0);
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match &record {
                Record::Event(defined) => event = (**defined).clone(),
                Record::End(ended) => end = (**ended).clone(),
                Record::Sample(sample) => {
                    let path = functions.on_path(&tables, sample.node);
                    let name =
                        |at: usize| path.get(at).copied().flatten().unwrap_or_default().to_owned();
                    let pair = (name(0), name(1));
                    *pairs.entry(pair).or_default() += sample.weight;
                    samples += 1;
                }
                _ => {}
            }
        }
        Self { verdict: reader.verdict(), event, end, pairs, samples }
    }
}

/// Prints its own counts: function, caller and number in each line.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define OUT __attribute__((noinline))
#define BARE __attribute__((no_instrument_function))
enum { NONE, MAIN, BODY, RECURSE, LEAF, JUMP, HANDLER, THROWS, EARLY, FUNCTIONS };
static const char *const names[] = {"-", "main", "body", "recurse", "leaf", "jump", "handler", "throws", "early"};
static long (*calls)[FUNCTIONS];
static jmp_buf place;
#define CALLED(function, caller) __atomic_fetch_add(&calls[function][caller], 1, __ATOMIC_RELAXED)
#ifdef __cplusplus
extern "C" {
#endif
OUT long leaf(int caller, long value) { CALLED(LEAF, caller); return value * 3 + 1; }
OUT long recurse(int caller, long level) {
    CALLED(RECURSE, caller);
    long sum = leaf(RECURSE, level);
    if (level > 0) sum += recurse(RECURSE, level - 1);
    return sum + 1;
}
OUT void jump(int caller, int level) {
    CALLED(JUMP, caller);
    if (level == 0) longjmp(place, 1);
    jump(JUMP, level - 1);
    __asm__ volatile("");
}
OUT void throws(int caller, int level) {
    CALLED(THROWS, caller);
#ifdef __cplusplus
    if (level == 0) throw 5;
    throws(THROWS, level - 1);
    __asm__ volatile("");
#endif
}
OUT void handler(int number) {
    CALLED(HANDLER, NONE);
    volatile long kept = leaf(HANDLER, number);
}
OUT void *body(void *argument) {
    CALLED(BODY, NONE);
    long sum = 0;
    for (int index = 0; index < 3000; index++) sum += leaf(BODY, index);
    for (int index = 0; index < 20; index++) sum += recurse(BODY, index);
    return (void *)sum;
}
__attribute__((constructor)) OUT void early(void) {
    calls = (long (*)[FUNCTIONS])mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CALLED(EARLY, NONE);
    volatile long kept = leaf(EARLY, 1);
}
int main(void) {
    CALLED(MAIN, NONE);
    long sum = 0;
    pthread_t threads[3];
    for (int index = 0; index < 3; index++) pthread_create(&threads[index], 0, body, 0);
    for (int index = 0; index < 3; index++) pthread_join(threads[index], 0);
    for (int index = 0; index < 100; index++) sum += recurse(MAIN, 30);
    for (int index = 0; index < 10; index++) if (!setjmp(place)) jump(MAIN, 5);
    signal(SIGUSR1, handler);
    for (int index = 0; index < 10; index++) raise(SIGUSR1);
#ifdef __cplusplus
    for (int index = 0; index < 10; index++) try { throws(MAIN, 3); } catch (int) {}
#endif
    if (fork() == 0) {
        sum += recurse(MAIN, 9);
        _exit(0);
    }
    wait(0);
    for (int function = 0; function < FUNCTIONS; function++)
        for (int caller = 0; caller < FUNCTIONS; caller++)
            if (calls[function][caller])
                printf("%s %s %ld\n", names[function], names[caller], calls[function][caller]);
    return sum % 2 ? 3 : 4;
}
#ifdef __cplusplus
}
#endif
"#;

/// Returns the counts that a program has printed.
fn printed(output: &[u8]) -> Pairs {
    let text = String::from_utf8_lossy(output);
    let pair = |line: &str| {
        let mut words = line.split(' ');
        let [function, caller] = [words.next()?, words.next()?];
        let caller = if caller == "-" { "" } else { caller };
        Some(((function.to_owned(), caller.to_owned()), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Runs a command whose arcs for gprof(1) go to the directory.
fn run(command: &mut Command, directory: &Directory) -> Output {
    command.env("GMON_OUT_PREFIX", directory.path("gmon")).output().expect("it runs")
}

/// Records a program with this event.
fn recorded(directory: &Directory, program: &str, event: &str) -> (Output, Calls) {
    let file = directory.path("out");
    let output = run(&mut recorder(&["-e", event, "-o", &file, "--", program]), directory);
    (output, Calls::read(&file, program))
}

/// Compiles a program in all ways, as far as the compilers are installed, and calls `check`.
fn in_all_ways(name: &str, source: &str, mut check: impl FnMut(&Directory, &str, &str)) {
    let entry: &[_] = if cfg!(target_arch = "x86_64") { &["-pg", "-mfentry"] } else { &["-pg"] };
    let ways: [(&str, &[&str]); 6] = [
        ("gcc", &["-finstrument-functions"]),
        ("gcc", &["-pg"]),
        ("gcc", entry),
        ("g++", &["-finstrument-functions"]),
        ("g++", entry),
        ("clang", &["-finstrument-functions"]),
    ];
    for (compiler, way) in ways {
        let directory = Directory::new(name);
        let options = [&["-O1", "-g", "-pthread", "-w"], way].concat();
        if let Some(program) = directory.compile(compiler, source, &options) {
            check(&directory, &program, &format!("{compiler} {}", way.join(" ")));
        }
    }
}

#[test]
fn exact_counts_are_those_of_the_program() {
    in_all_ways("instrumented-exact", PROGRAM, |directory, program, way| {
        let bare = run(&mut Command::new(program), directory);
        let (output, calls) = recorded(directory, program, "calls:1");
        assert_eq!(output.status, bare.status, "{way}: {}", stderr(&output));
        assert_eq!(output.stdout, bare.stdout, "{way}");
        assert_eq!(calls.verdict, Verdict::Complete, "{way}");
        assert_eq!(calls.pairs, printed(&bare.stdout), "{way}");
        assert_eq!((calls.end.incomplete, calls.end.lost), (Some(0), 0), "{way}");
        assert_eq!(calls.event.measure.word(), b"calls");
        assert_eq!((calls.event.period, calls.event.exact_ns), (Some(1), Some(1)));
    });
}

/// Returns the probability of at most `number` events of which `mean` are expected (Poisson).
fn probability_of_at_most(number: u64, mean: f64) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for index in 1..=number {
        term *= mean / index as f64;
        sum += term;
    }
    sum
}

/// Samples are spaced more evenly than at random, so that fewer than one of two million pairs fail.
#[test]
fn sampled_counts_are_those_of_the_program() {
    const PERIOD: u64 = 20;
    const RARE: f64 = 2.5e-7;
    in_all_ways("instrumented-sampled", PROGRAM, |directory, program, way| {
        let (output, calls) = recorded(directory, program, &format!("calls:{PERIOD}"));
        let truth = printed(&output.stdout);
        let all: u64 = truth.values().sum();
        let sum: u64 = calls.pairs.values().sum();
        // Of each thread the sum differs by less than a period: main, three bodies, the child.
        assert!(sum.abs_diff(all) < 5 * PERIOD, "{way}: {sum} of {all}");
        assert_eq!(calls.samples * PERIOD, sum, "{way}");
        for (pair, &number) in &truth {
            let samples = calls.pairs.get(pair).copied().unwrap_or(0) / PERIOD;
            let mean = number as f64 / PERIOD as f64;
            let is_low = probability_of_at_most(samples, mean) < RARE;
            let is_high = samples > 0 && probability_of_at_most(samples - 1, mean) > 1.0 - RARE;
            assert!(!is_low && !is_high, "{way}: {samples} samples of {number} calls: {pair:?}");
        }
    });
}

#[test]
fn adapted_period_keeps_the_sum() {
    let source = "
        __attribute__((noinline)) void work(void) { __asm__ volatile(\"\"); }
        int main(void) { for (long i = 0; i < 30000000; i++) work(); return 0; }";
    let directory = Directory::new("instrumented-adapted");
    let options = ["-O1", "-finstrument-functions"];
    let Some(program) = directory.compile("gcc", source, &options) else { return };
    let (output, calls) = recorded(&directory, &program, "calls");
    assert!(output.status.success(), "{}", stderr(&output));
    let pair = ("work".to_owned(), "main".to_owned());
    let sum = calls.pairs.get(&pair).copied().unwrap_or(0);
    // The last period is the largest, and the sum differs by less than it. A recorder that waits long for a CPU
    // adapts it late, which takes more samples.
    assert!(sum.abs_diff(30_000_000) < 5_000_000, "{sum}");
    assert!((20..200_000).contains(&calls.samples), "{}", calls.samples);
    assert_eq!((calls.event.frequency, calls.event.exact_ns), (Some(1000), None));
}

/// Returns the calls in a profile of gprof(1): function and number.
fn gprof(program: &str, arcs: &str) -> Option<BTreeMap<String, u64>> {
    let output = Command::new("gprof").args(["-b", "-q", program, arcs]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The line of a function: index, time, self, children, called, name and index.
    let called = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, _, called, name, _] = words[..] else { return None };
        let called = called.split('+').map(str::parse::<u64>).sum::<Result<u64, _>>().ok()?;
        line.starts_with('[').then(|| (name.to_owned(), called))
    };
    Some(text.lines().filter_map(called).collect())
}

#[test]
fn arcs_of_gprof_stay() {
    let source = "
        #define OUT __attribute__((noinline))
        OUT int leaf(int n) { __asm__ volatile(\"\"); return n + 1; }
        OUT int middle(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += leaf(i); return sum; }
        int main(void) { int sum = 0; for (int i = 0; i < 50; i++) sum += middle(i) + leaf(i); return sum == 1; }";
    for way in [&["-pg"][..], &["-pg", "-mfentry"]] {
        if way.len() > 1 && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let directory = Directory::new("instrumented-gprof");
        let options = [&["-O1", "-no-pie"], way].concat();
        let Some(program) = directory.compile("gcc", source, &options) else { return };
        let called = |event: &str| {
            let (output, _) = recorded(&directory, &program, event);
            assert!(output.status.success(), "{}", stderr(&output));
            let entries = fs::read_dir(directory.path("")).expect("a directory").flatten();
            let is_arcs = |it: &fs::DirEntry| it.file_name().to_string_lossy().starts_with("gmon");
            let arcs = entries.filter(is_arcs).map(|it| it.path()).collect::<Vec<_>>();
            let [arcs] = &arcs[..] else { panic!("one file of arcs: {arcs:?}") };
            let profile = gprof(&program, arcs.to_str().expect("UTF-8"));
            fs::remove_file(arcs).expect("removed");
            profile
        };
        for event in ["heap", "calls", "calls:1"] {
            let Some(profile) = called(event) else {
                return eprintln!("SKIPPED: there is no gprof");
            };
            let numbers = ["main", "middle", "leaf"].map(|name| profile.get(name).copied());
            assert_eq!(numbers[1..], [Some(50), Some(1275)], "{event} {way:?}: {profile:?}");
        }
    }
}

#[test]
fn program_without_instrumentation_is_explained() {
    let directory = Directory::new("instrumented-none");
    let source = "int main(void) { return 0; }";
    let Some(program) = directory.compile("gcc", source, &["-O1"]) else { return };
    let (output, calls) = recorded(&directory, &program, "calls");
    assert!(output.status.success());
    let message = "no calls: no function was instrumented by the compiler";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));
    assert!(stderr(&output).contains("-finstrument-functions or -pg"), "{}", stderr(&output));
    assert!(calls.pairs.is_empty());
}

#[test]
fn both_kinds_of_calls_are_refused() {
    let directory = Directory::new("instrumented-both");
    let list = directory.path("list");
    fs::write(&list, "").expect("written");
    let file = directory.path("out");
    let arguments = ["-e", "calls", "--calls", &list, "-o", &file, "--", "true"];
    let output = run(&mut recorder(&arguments), &directory);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("choose one"), "{}", stderr(&output));
}
