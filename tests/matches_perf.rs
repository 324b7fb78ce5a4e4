//! nprof and perf agree within their margins of error: compares `perf report` and `perf script` with
//! `nprof-flat` on programs that every Debian has.
//!
//! Both sample the same run. In another run a program that waits for memory can spend its time
//! differently, and other work on the machine differs, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use nprof_tests::{Shell, have, repository, rows, skipped, words};

/// The exit status of a process that called abort(3).
const ABORTED: i32 = 128 + 6;

/// Numbers of samples: of the profile, and of each function and image.
#[derive(Debug, Default)]
struct Shares {
    samples: f64,
    of: BTreeMap<String, f64>,
}

/// Returns the part of a function name that both print: perf appends the version of a symbol, nprof
/// the parameters.
fn common(function: &str) -> String {
    let end = function.find(['@', '(']).filter(|&end| end > 0).unwrap_or(function.len());
    function[..end].to_owned()
}

impl Shares {
    fn add(&mut self, samples: f64, function: &str, image: &str) {
        self.samples += samples;
        let image = if image.starts_with("[kernel") { "[kernel]" } else { image };
        *self.of.entry(format!("image {image}")).or_default() += samples;
        // Functions of libc have several symbols each, of which nprof and perf choose different ones.
        let has_one_name = !image.starts_with("libc.so") && !image.contains("/libc.so");
        if has_one_name && !function.starts_with("0x") && !function.contains("+0x") {
            *self.of.entry(format!("function {}", common(function))).or_default() += samples;
        }
    }

    fn of(&self, name: &str) -> f64 {
        self.of.get(name).copied().unwrap_or(0.0) / self.samples
    }

    /// Returns the margin of error of a share at 99.9 % confidence: at 95 %, one of 20 shares would
    /// fail by chance.
    fn margin(&self, share: f64) -> f64 {
        3.29 * (share * (1.0 - share) / self.samples).sqrt()
    }
}

/// The numbers to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Self samples of functions and images, with `perf report`.
    Own,
    /// Total samples of functions, from the stacks of `perf script`. Only for programs that perf
    /// unwinds completely, which excludes many interpreters.
    Stacks,
}

/// Excludes the samples that nprof-record and perf take of themselves before they execute the
/// command.
const EXCLUDED: &str = "--exclude command='^(perf|nprof-record)'";

/// Samples one run with both. None if perf crashed.
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
    // perf can abort on a recording: that is no difference between the profiles.
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

/// Returns the total samples of functions according to nprof.
fn stacks_by_nprof(shell: &Shell) -> Shares {
    let mut shares = Shares::default();
    for row in rows(&flat(shell)) {
        shares.samples += row.number("self_samples");
        let name = common(row.text("function"));
        *shares.of.entry(name).or_default() += row.number("total_samples");
    }
    shares
}

/// Parses the output of `perf script`: for each sample a line, its stack, and an empty line.
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

/// Removes the names that only one of them has: for functions with two symbols, each may print
/// another one.
fn in_both(mut nprof: Shares, mut perf: Shares) -> (Shares, Shares) {
    nprof.of.retain(|name, _| perf.of.contains_key(name));
    perf.of.retain(|name, _| nprof.of.contains_key(name));
    (nprof, perf)
}

/// Returns the flat profile of the command, without inlined calls: perf report names the function of
/// the symbol table.
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

/// Returns a line for each share on which they disagree by more than their margins.
fn differences(nprof: &Shares, perf: &Shares) -> Vec<String> {
    let names: BTreeSet<&String> = nprof.of.keys().chain(perf.of.keys()).collect();
    let large = |name: &&String| nprof.of(name).max(perf.of(name)) >= 0.02;
    let names: Vec<&String> = names.into_iter().filter(large).collect();
    assert!(!names.is_empty(), "no names to compare: {nprof:?} {perf:?}");
    let mut lines = Vec::new();
    for name in names {
        let (a, b) = (nprof.of(name), perf.of(name));
        // Both shares are estimates: the margins add up.
        let bound = nprof.margin(a) + perf.margin(b);
        if (a - b).abs() > bound {
            lines.push(format!("{name}: nprof {a:.4}, perf {b:.4}, more than {bound:.4} apart"));
        }
    }
    lines
}

/// Checks that both agree in one of three attempts: with many shares, some exceed their margin by
/// chance.
///
/// # Panics
///
/// If they disagree in all attempts.
fn assert_agreement(shell: &Shell, command: &str, compared: Compared) {
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
fn agrees_on_library_without_symbols() {
    if !have(&["perf", "bzip2"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("big", words(12_000_000));
    assert_agreement(&shell, "bzip2 -kc big", Compared::Own);
}

#[test]
fn agrees_on_interpreter() {
    if !have(&["perf", "perl"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("big", words(6_000_000));
    let script = repository().join("demo/words.pl");
    assert_agreement(&shell, &format!("perl {} big", script.display()), Compared::Own);
}

#[test]
fn agrees_on_stacks_of_demo_program() {
    if !have(&["perf", "g++"]) {
        return;
    }
    let shell = Shell::new();
    nprof_tests::compile_demo(shell.directory());
    assert_agreement(&shell, "./demo", Compared::Own);
    assert_agreement(&shell, "./demo", Compared::Stacks);
}

#[test]
fn agrees_on_common_programs() {
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
        assert_agreement(&shell, command, Compared::Own);
    }
}
