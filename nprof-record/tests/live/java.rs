//! Java without frame pointers: methods whose names give their callers', in the interpreter and in
//! code of both compilers. Callers are right, or the stack is marked as incomplete.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use nprof_stream::Mark;

use crate::support::{Directory, can_record, named_stacks, record, stderr};

/// The depth of the tree of methods, and the children of each.
const DEPTH: usize = 6;
const CHILDREN: usize = 3;

/// Parameters and arguments: frames and areas of arguments of different sizes.
const FORMS: [(&str, &str); 4] = [
    ("int n", "s & 255"),
    ("int n, long pb, double pc", "s & 255, s * 3L, s * 0.5"),
    ("int n, int[] pa", "s & 255, data"),
    (
        "int n, long pb, long pc, double pd, int pe, int pf, long pg, int ph, int pi, double pk",
        "s & 255, s, 2L, 0.5, 5, 6, 7L, 8, 9, 1.5",
    ),
];

/// The work of a method: loops, divisions, allocation, a virtual call, a jump table, another class.
const WORK: [&str; 6] = [
    "for (int i = 0; i < 60; i++) s = s * 31 + data[(s ^ i) & 1023];",
    "double d = s; for (int i = 0; i < 20; i++) d = Math.sqrt(d * d + i); s += (int) d;",
    "keep = new int[20 + (s & 15)]; s += ((int[]) keep).length;",
    "for (int i = 0; i < 9; i++) s += things[(s >>> 3 & 255) % 2].at(i);",
    "switch (s & 3) { case 0: s += 3; break; case 1: s *= 5; break; case 2: s ^= 85; break; default: s++; }",
    "s += Integer.toString(s & 4095).hashCode();",
];

/// Returns a program. `f_1` calls `f_1_2_`, which calls `f_1_2` with arguments of its types.
fn source() -> String {
    let mut source = String::from(
        "public class T {
            static int[] data = new int[1024];
            static Object keep;
            static int sink;
            interface Thing { int at(int n); }
            static class A implements Thing { public int at(int n) { return n * 31; } }
            static class B implements Thing { public int at(int n) { return n ^ 17; } }
            static Thing[] things = { new A(), new B() };
            static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
            public static void main(String[] words) {
                long end = Long.parseLong(words[0]);
                ProcessHandle.Info own = ProcessHandle.current().info();
                while (ProcessHandle.current().info().totalCpuDuration().get().toMillis() < end)
                    for (int i = 0; i < 5; i++) sink += f(sink & 255) + fib(14);
            }\n",
    );
    let mut names = vec![String::from("f")];
    let mut number = 0;
    while let Some(name) = names.pop() {
        let form = if name == "f" { 0 } else { number % FORMS.len() };
        let work = |number: usize| format!("{{ {} }}", WORK[number % WORK.len()]);
        let parameters = FORMS[form].0;
        write!(source, "static int {name}({parameters}) {{ int s = n; {}", work(number))
            .expect("room");
        for child in 0..CHILDREN {
            // Not all are as deep: 200 methods are compiled in time.
            if name.matches('_').count() < DEPTH && (number + child) % 4 < 2 {
                let child = format!("{name}_{child}");
                write!(source, "s += {child}_(s); {}", work(number + 1)).expect("room");
                names.push(child);
            }
        }
        writeln!(source, "{} return s; }}", work(number + 2)).expect("room");
        let arguments = FORMS[form].1;
        writeln!(source, "static int {name}_(int s) {{ return {name}({arguments}); }}")
            .expect("room");
        number += 1;
    }
    source + "}"
}

/// Returns the caller of a method. None if it may have others.
fn caller(name: &str) -> Option<String> {
    match name.strip_suffix('_') {
        // A method is called by one that passes its arguments.
        Some(method) => method.rsplit_once('_').map(|(caller, _)| caller.to_owned()),
        None if name.starts_with("f_") => Some(format!("{name}_")),
        None => None,
    }
}

/// Returns the name of a method in a label such as `int T.f_1(int)`, empty for other labels.
fn method(label: &str) -> &str {
    let name = label.split_once(" T.").and_then(|(_, name)| name.split_once('('));
    name.map_or("", |(name, _)| name)
}

/// Records the program with options of Java. Returns all samples with a method, those with a wrong
/// caller, those of them in stacks that are not marked, and the marked ones. None without Java.
fn run(directory: &Directory, options: &[&str]) -> Option<[usize; 4]> {
    let file = directory.path("out.nprof");
    let words = ["-F", "1999", "-o", &file, "--", "java", "-XX:-Inline"];
    let dump = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "-cp"];
    let class = directory.path("");
    let words = [&words[..], options, &dump, &[&class, "T", "1200"]].concat();
    let output = record(&words);
    if !output.status.success() {
        eprintln!("SKIPPED: {}", stderr(&output));
        return None;
    }
    let [mut all, mut wrong, mut wrong_unmarked, mut marked] = [0; 4];
    for stack in named_stacks(&fs::read(&file).expect("a file")) {
        let names: Vec<&str> = stack.names.iter().map(|label| method(label)).collect();
        if names.iter().all(|name| name.is_empty()) {
            continue;
        }
        let is_marked = stack.mark != Mark::None;
        let is_wrong = names.windows(2).any(|pair| {
            // Frames of the interpreter and of stubs have no name.
            let caller = caller(pair[0]);
            caller.is_some_and(|caller| caller != pair[1] && !pair[1].is_empty())
        });
        all += 1;
        wrong += usize::from(is_wrong);
        wrong_unmarked += usize::from(is_wrong && !is_marked);
        marked += usize::from(is_marked);
    }
    println!(
        "{options:?}: {all} with methods, {wrong} wrong, {wrong_unmarked} of them unmarked, {marked} marked"
    );
    Some([all, wrong, wrong_unmarked, marked])
}

#[test]
fn java_stacks_without_frame_pointers_are_complete_and_right() {
    if !can_record() {
        return;
    }
    let directory = Directory::new("java");
    let path = directory.path("T.java");
    fs::write(&path, source()).expect("write");
    let Ok(compiled) = Command::new("javac").arg(&path).output() else {
        eprintln!("SKIPPED: there is no javac");
        return;
    };
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    let compilers: [&[&str]; 3] = [&[], &["-XX:TieredStopAtLevel=1"], &["-XX:-TieredCompilation"]];
    let mut sums = [0; 4];
    for options in compilers {
        let Some(counts) = run(&directory, options) else { return };
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [all, wrong, wrong_unmarked, marked] = sums;
    assert!(all > 500, "{sums:?}");
    assert_eq!(wrong_unmarked, 0, "{sums:?}");
    // Where the code does not show the frame, a caller may be left out: 9 of 12,538 on a busy machine.
    assert!(wrong * 200 <= all, "{sums:?}");
    assert!(marked * 10 < all, "{sums:?}");
}
