//! nprof and perf, sampling the same work, find the same within their margins of error: `perf
//! report` and `perf script` are held against `nprof-flat` on programs that are on every Debian.
//!
//! Both sample the same run: a program that waits for memory can spend its time quite otherwise in
//! the next one, and machines are shared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use nprof_tests::{Shell, have, repository, rows, skipped, words};

/// The exit status of what abort(3) ended.
const ABORTED: i32 = 128 + 6;

/// Samples by function and by image, in all and of each.
#[derive(Debug, Default)]
struct Shares {
    samples: f64,
    of: BTreeMap<String, f64>,
}

/// A function's name as both can have it: perf shows the version of a symbol, and no parameters.
fn common(function: &str) -> String {
    let end = function.find(['@', '(']).filter(|&end| end > 0).unwrap_or(function.len());
    function[..end].to_owned()
}

impl Shares {
    fn add(&mut self, samples: f64, function: &str, image: &str) {
        self.samples += samples;
        let image = if image.starts_with("[kernel") { "[kernel]" } else { image };
        *self.of.entry(format!("image {image}")).or_default() += samples;
        // Functions of libc have several names each, of which both choose their own.
        let has_one_name = !image.starts_with("libc.so") && !image.contains("/libc.so");
        if has_one_name && !function.starts_with("0x") && !function.contains("+0x") {
            *self.of.entry(format!("function {}", common(function))).or_default() += samples;
        }
    }

    fn of(&self, name: &str) -> f64 {
        self.of.get(name).copied().unwrap_or(0.0) / self.samples
    }

    /// The margin of error of a share at 99.9 % confidence: a test is run more often than a
    /// report is read.
    fn margin(&self, share: f64) -> f64 {
        3.29 * (share * (1.0 - share) / self.samples).sqrt()
    }
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// What fell on functions and images themselves, with `perf report`.
    Own,
    /// What fell on functions and what they called, with the stacks of `perf script`. For
    /// programs whose stacks perf follows to their ends; of interpreters it often does not.
    Stacks,
}

/// What perf and the recorder are called before they have become the command.
const EXCLUDED: &str = "--exclude command='^(perf|nprof-record)'";

/// Has both sample the same run. `None` when perf crashed.
fn sample(shell: &Shell, command: &str, compared: Compared) -> Option<(Shares, Shares)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (stacks, report) = match compared {
        Compared::Own => ("", "perf report -i perf.data -q --stdio -F sample,sym,dso -t '\t'"),
        Compared::Stacks => {
            ("--call-graph dwarf,32768", "perf script -i perf.data --no-inline -F comm,ip,sym,dso")
        }
    };
    let recorded = shell.run(&format!(
        "nprof-record -q -o raw.nprof -- \
         perf record -N -q -F 997 -e cpu-clock {stacks} -o perf.data -- {command} >out 2>perf.err"
    ));
    let report = shell.run(&format!("{report} 2>perf.err"));
    if [recorded.status, report.status].contains(&ABORTED) {
        skipped("perf crashed");
        return None;
    }
    assert_eq!((recorded.status, report.status), (0, 0), "{recorded:?} {report:?}");
    Some(match compared {
        Compared::Own => (by_nprof(shell), by_perf(&report.out)),
        Compared::Stacks => in_both(stacks_by_nprof(shell), stacks_by_perf(&report.out)),
    })
}

/// Totals of functions, by the samples they are in.
fn stacks_by_nprof(shell: &Shell) -> Shares {
    let mut shares = Shares::default();
    for row in rows(&flat(shell)) {
        shares.samples += row.number("self_samples");
        let name = common(row.text("function"));
        *shares.of.entry(name).or_default() += row.number("total_samples");
    }
    shares
}

/// The same of a script: a line for each sample, followed by its stack, and an empty line.
fn stacks_by_perf(script: &str) -> Shares {
    let mut shares = Shares::default();
    for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        shares.samples += 1.0;
        // A frame is an address, a name, and the image in parentheses.
        let frames = sample.lines().skip(1).filter_map(|line| line.trim().split_once(' '));
        let names: BTreeSet<String> = frames
            .filter_map(|(_, rest)| rest.rsplit_once(" ("))
            .map(|(name, _)| common(name))
            .collect();
        for name in names {
            *shares.of.entry(name).or_default() += 1.0;
        }
    }
    shares
}

/// Both without the names only one of them has: some functions have two.
fn in_both(mut nprof: Shares, mut perf: Shares) -> (Shares, Shares) {
    nprof.of.retain(|name, _| perf.of.contains_key(name));
    perf.of.retain(|name, _| nprof.of.contains_key(name));
    (nprof, perf)
}

/// The flat profile of the command. perf names the function the symbol table has, not what was
/// inlined into it.
fn flat(shell: &Shell) -> String {
    shell
        .run(&format!(
            "nprof-symbolize --no-inlines raw.nprof | nprof-flat {EXCLUDED} --format tsv"
        ))
        .quiet()
}

fn by_nprof(shell: &Shell) -> Shares {
    let mut shares = Shares::default();
    for row in rows(&flat(shell)) {
        shares.add(row.number("self_samples"), row.text("function"), row.text("image"));
    }
    shares
}

fn by_perf(report: &str) -> Shares {
    let mut shares = Shares::default();
    for line in report.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [samples, symbol, image] = fields[..] else { panic!("{line:?}") };
        // `[.] name` or `[k] name`
        let name = symbol.get(4..).unwrap_or(symbol);
        shares.add(samples.parse().expect("a number of samples"), name, image);
    }
    shares
}

/// Where they disagree by more than their margins, a line each.
fn differences(nprof: &Shares, perf: &Shares) -> Vec<String> {
    let names: BTreeSet<&String> = nprof.of.keys().chain(perf.of.keys()).collect();
    let large = |name: &&String| nprof.of(name).max(perf.of(name)) >= 0.02;
    let names: Vec<&String> = names.into_iter().filter(large).collect();
    assert!(!names.is_empty(), "no names to compare: {nprof:?} {perf:?}");
    let mut lines = Vec::new();
    for name in names {
        let (a, b) = (nprof.of(name), perf.of(name));
        let bound = nprof.margin(a) + perf.margin(b);
        if (a - b).abs() > bound {
            lines.push(format!("{name}: nprof {a:.4}, perf {b:.4}, more than {bound:.4} apart"));
        }
    }
    lines
}

/// Checks that they agree. Some of many margins are missed by chance: only a difference that shows
/// in every attempt is one.
fn agree(shell: &Shell, command: &str, compared: Compared) {
    let mut lines = Vec::new();
    for _ in 0..3 {
        let Some((nprof, perf)) = sample(shell, command, compared) else { return };
        assert!(nprof.samples > 100.0 && perf.samples > 100.0, "{nprof:?} {perf:?}");
        lines = differences(&nprof, &perf);
        if lines.is_empty() {
            return;
        }
    }
    panic!("{command}:\n{}", lines.join("\n"));
}

#[test]
fn on_a_library_without_symbols() {
    if !have(&["perf", "bzip2"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("big", words(12_000_000));
    agree(&shell, "bzip2 -kc big", Compared::Own);
}

#[test]
fn on_an_interpreter() {
    if !have(&["perf", "perl"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("big", words(6_000_000));
    let script = repository().join("demo/words.pl");
    agree(&shell, &format!("perl {} big", script.display()), Compared::Own);
}

#[test]
fn on_a_program_of_ours() {
    if !have(&["perf", "g++"]) {
        return;
    }
    let shell = Shell::new();
    nprof_tests::compile_demo(shell.directory());
    agree(&shell, "./demo", Compared::Own);
    agree(&shell, "./demo", Compared::Stacks);
}

#[test]
fn on_programs_that_are_everywhere() {
    for (program, command) in [
        ("gzip", "gzip -9 -kc big"),
        ("xz", "xz -0 -kc big"),
        ("sort", "sort big big big"),
        ("awk", "awk '{ n[$1]++ } END { for (word in n) sum += n[word]; print sum }' big big big"),
        ("sha256sum", "sha256sum $(yes big | head -30)"),
        ("grep", "grep -c '\\([a-f]\\)[a-p]*\\1$' big"),
    ] {
        if !have(&["perf", program]) {
            continue;
        }
        let shell = Shell::new();
        shell.write("big", words(12_000_000));
        agree(&shell, command, Compared::Own);
    }
}
