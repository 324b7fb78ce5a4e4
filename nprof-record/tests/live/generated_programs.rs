//! Programs of random functions without unwind tables, of which each name gives its caller's
//! (`generated/program.py`): callers are right, or the stack is marked as incomplete.

use std::fs;
use std::process::Command;

use crate::support::{Directory, Stream, can_record, record, stderr};
use crate::symbols::{Symbols, names};
use nprof_stream::Mark;

/// The functions of a program.
const FUNCTIONS: &str = "250";

/// Compilers and options of the usual run, each with the seed of its program.
const USUAL: [(&str, &str, u32); 4] =
    [("gcc", "-O2", 2), ("gcc", "-O3 -march=x86-64-v3", 3), ("gcc", "-O0", 4), ("clang", "-O2", 5)];

/// Options of the long run.
const OPTIONS: [&str; 9] = [
    "-O0",
    "-O1",
    "-O2",
    "-O3",
    "-Os",
    "-O3 -march=x86-64-v3",
    "-O2 -fno-omit-frame-pointer",
    "-O2 -fstack-clash-protection -fcf-protection -fstack-protector-strong",
    "-O2 -fPIE -pie",
];

/// The samples of a program by their stacks.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// A caller is not the one that the name gives.
    wrong: usize,
    /// The same in stacks that are not marked.
    wrong_unmarked: usize,
    marked: usize,
    /// The functions with a wrong caller, and that caller.
    examples: Vec<(String, String)>,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.wrong += other.wrong;
        self.wrong_unmarked += other.wrong_unmarked;
        self.marked += other.marked;
        self.examples.extend(other.examples);
    }

    /// At most one caller of a thousand may be wrong, and no stack with one may pass as complete.
    fn check(&self) {
        assert!(self.all > 500, "{self:?}");
        assert!(self.wrong * 1000 <= self.all && self.wrong_unmarked == 0, "{self:?}");
    }
}

/// True for the functions of the generated tree, `main` included.
fn is_generated(name: &str) -> bool {
    matches!(name, "f" | "main" | "forever") || name.starts_with("f_")
}

/// Returns the name of the caller of a generated function. None for `main`.
fn caller(name: &str) -> Option<&str> {
    match name {
        "main" => None,
        "forever" => Some("main"),
        "f" => Some("forever"),
        _ => name.rsplit_once('_').map(|(caller, _)| caller),
    }
}

/// Compares the stacks of a recording with the names of its functions.
fn compare(stream: &Stream, symbols: &Symbols) -> Counts {
    let mut counts = Counts::default();
    for sample in &stream.samples {
        let names = names(sample, symbols);
        let own: Vec<_> = names.iter().copied().skip_while(|name| !is_generated(name)).collect();
        // The loader, and samples of functions outside of the tree that lost their caller.
        let Some(&first) = own.first() else { continue };
        counts.all += 1;
        let is_marked = sample.mark != Mark::None;
        counts.marked += usize::from(is_marked);
        let mut expected = Some(first);
        let found = own.iter().copied().find(|&name| {
            let is_right = expected.is_none() || expected == Some(name);
            expected = expected.and_then(caller);
            !is_right
        });
        // A stack may end early, but then it is marked.
        let is_cut = !is_marked && !own.contains(&"main");
        if found.is_some() || is_cut {
            counts.wrong += 1;
            counts.wrong_unmarked += usize::from(!is_marked);
            counts.examples.push((first.to_owned(), found.unwrap_or("cut").to_owned()));
        }
    }
    counts
}

/// Compiles and records a program. None without the compiler, or if it lacks an option.
fn run(compiler: &str, options: &str, seed: u32, milliseconds: u32) -> Option<Counts> {
    if options.contains("x86-64-v3") && !std::is_x86_feature_detected!("avx2") {
        eprintln!("SKIPPED: the processor has no AVX2");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generated/program.py");
    let words = ["-B", script, &seed.to_string(), FUNCTIONS];
    let Ok(source) = Command::new("python3").args(words).output() else {
        eprintln!("SKIPPED: there is no python3");
        return None;
    };
    assert!(source.status.success(), "{}", stderr(&source));
    let source = String::from_utf8(source.stdout).expect("UTF-8");
    let tables = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-w", "-Wno-psabi"];
    let options: Vec<_> = options.split(' ').chain(tables).collect();
    let directory = Directory::new(&format!("generated-{compiler}-{seed}-{}", options[0]));
    let program = directory.compile(compiler, &source, &options)?;
    let file = directory.path("out");
    let words = ["-F", "4999", "-o", &file, "--", &program, &milliseconds.to_string()];
    let output = record(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    Some(compare(&Stream::from_file(&file), &Symbols::from_file(&program)))
}

#[test]
fn callers_are_right_without_unwind_tables() {
    if !can_record() {
        return;
    }
    let mut all = Counts::default();
    let mut ran = 0;
    for (compiler, options, seed) in USUAL {
        if let Some(counts) = run(compiler, options, seed, 400) {
            println!("{compiler} {options} {seed}: {counts:?}");
            all.add(counts);
            ran += 1;
        }
    }
    if ran > 0 {
        all.check();
    }
}

/// NPROF_SEEDS sets the number of programs of each compiler and options.
#[test]
#[ignore = "takes ten minutes"]
fn callers_are_right_by_all_compilers_and_options() {
    assert!(can_record());
    let seeds = std::env::var("NPROF_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4);
    let mut all = Counts::default();
    for compiler in ["gcc", "clang"] {
        for options in OPTIONS {
            let mut of_options = Counts::default();
            for seed in 100..100 + seeds {
                if let Some(counts) = run(compiler, options, seed, 1000) {
                    of_options.add(counts);
                }
            }
            println!("{compiler} {options}: {of_options:?}");
            all.add(of_options);
        }
    }
    all.check();
}
