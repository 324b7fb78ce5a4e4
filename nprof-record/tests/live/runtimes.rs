//! Node.js and Python: generated code is named and its stacks are complete, by perf maps and by
//! jitdumps. Functions whose names give their callers' show that callers are right.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use crate::support::{Directory, NamedStack, can_record, named_stacks, recorder, stderr};
use nprof_stream::{Mark, Reader, Record};

/// The depth of the tree of functions of the JavaScript program.
const DEPTH: usize = 7;

/// The work of a function: loops, divisions, allocation, a closure, a built-in function, a jump table.
const WORK: [&str; 6] = [
    "for (let i = 0; i < 60; i++) s = (Math.imul(s, 31) + data[(s ^ i) & 1023]) | 0;",
    "let d = s & 65535; for (let i = 0; i < 20; i++) d = Math.sqrt(d * d + i); s += d | 0;",
    "kept = new Array(20 + (s & 15)).fill(s); s += kept.length;",
    "s += [3, 1, 2].map(n => n * s).reduce((sum, n) => (sum ^ n) | 0, 0);",
    "switch (s & 3) { case 0: s += 3; break; case 1: s = Math.imul(s, 5); break; case 2: s ^= 85; break; default: s++; }",
    "s += String(s & 4095).length;",
];

/// Returns a JavaScript program in which `f_1_0` is called by `f_1` alone. It runs until it has used the CPU time
/// in its argument, in ms.
fn javascript() -> String {
    let mut source = String::from("let data = new Int32Array(1024), kept, sink = 0;\n");
    let mut names = vec![String::from("f")];
    let mut number = 0;
    while let Some(name) = names.pop() {
        let work = |number: usize| format!("{{ {} }}", WORK[number % WORK.len()]);
        write!(source, "function {name}(n) {{ let s = n; {}", work(number)).expect("room");
        for child in 0..2 {
            // Not all are as deep: 100 functions are compiled in time.
            if name.matches('_').count() < DEPTH && (number + child) % 3 != 2 {
                let child = format!("{name}_{child}");
                write!(source, " s += {child}(s & 255); {}", work(number + 1)).expect("room");
                names.push(child);
            }
        }
        writeln!(source, " return s | 0; }}").expect("room");
        number += 1;
    }
    source
        + "const end = Number(process.argv[2]) * 1000;
           const used = () => process.cpuUsage().user + process.cpuUsage().system;
           function main() {
               while (used() < end) for (let i = 0; i < 50; i++) sink = (sink + f(sink & 255)) | 0;
           }
           main();\n"
}

/// Returns the function of the tree with this label, such as `JS:*f_1_0 /t.js:3:8`. None for other
/// labels.
fn function(label: &str) -> Option<&str> {
    let (name, _) = label.strip_prefix("JS:")?.split_once(' ')?;
    let name = name.trim_start_matches(['*', '^', '+', '~']);
    (name == "f" || name.starts_with("f_")).then_some(name)
}

/// The number of samples with the process in JavaScript, and of those that lack something.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    unnamed_leaf: usize,
    wrong_caller: usize,
    incomplete: usize,
}

fn counts(stacks: &[NamedStack]) -> Counts {
    let mut counts = Counts::default();
    let is_in_tree = |stack: &&NamedStack| stack.names.iter().any(|name| function(name).is_some());
    for stack in stacks.iter().filter(is_in_tree) {
        counts.all += 1;
        counts.unnamed_leaf += usize::from(stack.names[0].starts_with("[anon]"));
        counts.incomplete += usize::from(stack.mark != Mark::None);
        counts.wrong_caller += usize::from(stack.names.windows(2).any(|pair| {
            let (called, caller) = (function(&pair[0]), function(&pair[1]));
            let expected = called.and_then(|name| name.rsplit_once('_')).map(|(caller, _)| caller);
            // Frames of the interpreter and of built-in functions have other names.
            expected.is_some() && caller.is_some() && caller != expected
        }));
    }
    counts
}

/// Records a program in the directory. Returns its stacks, and the messages of the recorder.
fn recorded(directory: &Directory, words: &[&str]) -> (Vec<NamedStack>, String) {
    let file = directory.path("out");
    let words = [&["-F", "1999", "-o", &file, "--"], words].concat();
    // Node.js writes its jitdump into the current directory.
    let output = recorder(&words).current_dir(directory.path("")).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    let bytes = fs::read(&file).expect("a file");
    let mut reader = Reader::new(&bytes[..]);
    while let Some(record) = reader.next().expect("a stream") {
        if let Record::Task(task) = record {
            for name in [format!("perf-{}.map", task.pid), format!("jit-{}.dump", task.pid)] {
                let _ = fs::remove_file(format!("/tmp/{name}"));
            }
        }
    }
    (named_stacks(&bytes), stderr(&output))
}

#[test]
fn node_stacks_are_complete_and_named() {
    if !can_record() {
        return;
    }
    if Command::new("node").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: there is no node");
    }
    let directory = Directory::new("node");
    let program = directory.path("t.js");
    fs::write(&program, javascript()).expect("written");
    let all_options: [&[&str]; 4] = [
        &["--perf-basic-prof"],
        &["--perf-basic-prof", "--interpreted-frames-native-stack"],
        &["--perf-prof"],
        &["--perf-prof", "--interpreted-frames-native-stack"],
    ];
    for options in all_options {
        let words = [&["node", "--no-turbo-inlining"][..], options, &[&program, "1200"]].concat();
        let (stacks, message) = recorded(&directory, &words);
        let counts = counts(&stacks);
        println!("{options:?}: {counts:?}");
        assert!(counts.all > 300, "{options:?}: {counts:?}: {message}");
        assert!(counts.unnamed_leaf * 20 < counts.all, "{options:?}: {counts:?}");
        // 0.6 % at most at a load of 17. Code that is newer than the last drain may be moved before it
        // is read.
        assert!(counts.incomplete * 20 < counts.all, "{options:?}: {counts:?}");
        assert!(counts.wrong_caller * 100 < counts.all, "{options:?}: {counts:?}");
    }
}

/// Three functions that call each other, until the program has used 1200 ms of CPU time.
const PYTHON: &str = "
import time

def inner(n):
    return sum([i * n for i in range(200)])

def middle(n):
    return inner(n) + 1

def outer(n):
    return middle(n) + middle(n + 1)

while time.process_time() < 1.2:
    for n in range(100):
        outer(n)
";

#[test]
fn python_stacks_are_complete_and_named() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("python");
    let program = directory.path("t.py");
    fs::write(&program, PYTHON).expect("written");
    // `-X perf` since 3.12, `-X perf_jit` since 3.13.
    for (option, minor) in [("perf", 12), ("perf_jit", 13)] {
        let check = format!("import sys; sys.exit(sys.version_info < (3, {minor}))");
        let is_new_enough = |python: &&&str| {
            Command::new(python).args(["-c", &check]).output().is_ok_and(|it| it.status.success())
        };
        let pythons = ["python3", "python3.14", "python3.13", "python3.12"];
        let Some(python) = pythons.iter().find(is_new_enough) else {
            eprintln!("SKIPPED: there is no Python 3.{minor}");
            continue;
        };
        let (stacks, message) = recorded(&directory, &[python, "-X", option, &program]);
        let through = |name: &str, stack: &NamedStack| {
            let prefix = format!("py::{name}:");
            stack.names.iter().position(|name| name.starts_with(&prefix))
        };
        let in_inner: Vec<_> =
            stacks.iter().filter(|stack| through("inner", stack).is_some()).collect();
        let right = |stack: &&&NamedStack| {
            let at = ["inner", "middle", "outer", "<module>"].map(|name| through(name, stack));
            stack.mark == Mark::None && at.is_sorted() && at.iter().all(Option::is_some)
        };
        let (count, right) = (in_inner.len(), in_inner.iter().filter(right).count());
        println!("-X {option}: {right} of {count} right, {} in all", stacks.len());
        assert!(count > 300 && count * 2 > stacks.len(), "-X {option}: {count}: {message}");
        assert!(right * 20 > count * 19, "-X {option}: {right} of {count}: {message}");
    }
}
