//! Odd code: stacks must be right wherever in a program a sample is taken, and however it was
//! compiled and linked.
//!
//! What is right must be known without an unwinder. So a C program is made whose functions are a
//! tree: each is called from one place only. Where a sample was taken then tells its whole
//! stack, in prologues and epilogues too, and whatever the compiler did to the frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

use crate::support::{Directory, Seen, Stream, complaint, may_record, record};
use crate::symbols::{Symbols, names};
use nprof_format::{Mark, Verdict};

/// How many functions the tree has.
const FUNCTIONS: usize = 64;

/// Which function calls a function; `main` calls the first.
fn caller(function: usize) -> Option<usize> {
    let above = function.checked_sub(1)?;
    // A chain, with branches where the number, mixed, says so.
    let mixed = (function as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Some(if mixed & 1 == 0 { above } else { (mixed >> 1) as usize % function })
}

/// The functions on the stack, leaf first.
fn stack_of(function: usize) -> Vec<usize> {
    std::iter::successors(Some(function), |&function| caller(function)).collect()
}

/// What a function has in its frame. All of it goes through `keep`, which is nothing to the
/// machine and anything to the compiler.
const FRAMES: [&str; 12] = [
    "",
    "char *p = __builtin_alloca((a & 63) + 16); p[0] = a; keep(p);",
    "char v[(b & 31) + 1]; v[0] = a; keep(v);",
    "char big[6000]; big[a & 4095] = 1; keep(big);",
    "_Alignas(64) long aligned[8]; aligned[a & 7] = b; keep(aligned);",
    "long q = a * b, s = a ^ b, t = a - b, u = a | b, w = a & b, x = a * 3;",
    "if (b == 77) return a;",
    "char from[80], to[80]; keep(from); memcpy(to, from, 40 + (a & 31)); keep(to);",
    "struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now); r += now.tv_nsec & 1;",
    "if (a % 16 == 3) r += syscall(SYS_getppid) & 1;",
    "char s[64]; memset(s, 'x', 63); s[63] = 0; keep(s); r += strlen(s) & 1;",
    "_Alignas(128) char a1[256]; char *a2 = __builtin_alloca((b & 15) + 1); keep(a1); keep(a2);",
];

/// What a function does after its calls, so that none is the last thing it does.
fn ending(function: usize) -> &'static str {
    match function % FRAMES.len() {
        1 => "keep(p);",
        2 => "keep(v);",
        3 => "keep(big);",
        4 => "keep(aligned);",
        5 => "r += q + s + t + u + w + x;",
        11 => "keep(a1); keep(a2);",
        _ => "",
    }
}

/// The program; it goes through its tree so many times. Every third function has arguments on
/// the stack, every leaf with an odd number does not return but jumps back.
fn tree(passes: usize) -> String {
    let mut source = String::from(
        "#define _GNU_SOURCE\n#include <setjmp.h>\n#include <string.h>\n#include <time.h>\n\
         #include <sys/syscall.h>\n#include <unistd.h>\n\
         #define keep(p) __asm__ volatile(\"\" :: \"r\"(p) : \"memory\")\n\
         static jmp_buf back;\n",
    );
    let called: Vec<Vec<usize>> = (0..FUNCTIONS)
        .map(|above| (0..FUNCTIONS).filter(|&below| caller(below) == Some(above)).collect())
        .collect();
    let jumps = |function: usize| called[function].is_empty() && function % 2 == 1;
    for function in (0..FUNCTIONS).rev() {
        let more = if function % 3 == 0 { ", long c, long d, long e, long f, long g" } else { "" };
        let kind = if jumps(function) { "noipa, noreturn" } else { "noipa" };
        let _ = write!(
            source,
            "__attribute__(({kind})) static long f{function}(long a, long b{more}) {{ long r = b; {} ",
            FRAMES[function % FRAMES.len()]
        );
        for &below in &called[function] {
            let more = if below % 3 == 0 { ", 1, r, 3, a, b" } else { "" };
            let _ = match jumps(below) {
                true => write!(source, "if (_setjmp(back) == 0) f{below}(a + 1, b{more}); "),
                false => write!(source, "r += f{below}(a + 1, b{more}); "),
            };
        }
        let end = if jumps(function) { "_longjmp(back, 1);" } else { "return r ^ a;" };
        let _ = writeln!(source, "{} {end} }}", ending(function));
    }
    let _ = writeln!(
        source,
        "int main(void) {{ long r = 0; for (long i = 0; i < {passes}; i++) r += f0(i, i, 1, 2, 3, 4, 5); \
         return r == 1; }}"
    );
    source
}

/// The number of a function of the tree.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix('f')?.parse().ok()
}

/// What is known of a sample of the tree to be right, and what it is.
fn both_stacks(sample: &Seen, symbols: &Symbols) -> Option<(Vec<String>, Vec<String>)> {
    let names = names(sample, symbols);
    // What the tree calls of the C library is not known; the root's side of it is.
    let leaf = names.iter().position(|name| number(name).is_some())?;
    let stack = stack_of(number(names[leaf])?);
    let right = stack.iter().map(|function| format!("f{function}")).chain(["main".to_owned()]);
    let is_root = |name: &&&str| name.starts_with("__libc_start") || name.starts_with("libc.so");
    let found = names[leaf..].iter().filter(|name| !is_root(name)).map(|name| (*name).to_owned());
    Some((found.collect(), right.chain(["_start".to_owned()]).collect()))
}

/// Records a program of the tree, compiled this way; `None` where that cannot be done.
fn recorded(name: &str, options: &[&str], how: &[&str]) -> Option<(Stream, Symbols)> {
    if !may_record() {
        return None;
    }
    let directory = Directory::new(name);
    let linker = options.iter().find_map(|option| option.strip_prefix("-fuse-ld="));
    if linker.is_some_and(|linker| Command::new(format!("ld.{linker}")).arg("-v").output().is_err())
    {
        eprintln!("SKIPPED: there is no ld.{}", linker.unwrap_or_default());
        return None;
    }
    let program = directory.compile("gcc", &tree(300_000), options)?;
    let file = directory.path("out");
    let output = record(&[&["-F", "4999", "-o", &file][..], how, &["--", &program]].concat());
    assert!(output.status.success(), "{}", complaint(&output));
    let stream = Stream::of_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    Some((stream, Symbols::of(&program)))
}

/// Asserts that the stacks of the tree are right, to the last frame.
fn all_are_right(name: &str, options: &[&str]) {
    let Some((stream, symbols)) = recorded(name, options, &[]) else { return };
    let mut seen = BTreeSet::new();
    let (mut wrong, mut cut, mut checked) = (Vec::new(), Vec::new(), 0);
    for sample in &stream.samples {
        let Some((found, right)) = both_stacks(sample, &symbols) else { continue };
        // While a page of the stack is made it cannot be read.
        if sample.mark == Mark::Unread && sample.frames[0].1 {
            continue;
        }
        checked += 1;
        seen.insert(right[0].clone());
        match sample.mark {
            Mark::None if found == right => {}
            Mark::None => wrong.push((&sample.offsets, names(sample, &symbols), right)),
            mark => cut.push((mark, &sample.offsets, names(sample, &symbols))),
        }
    }
    assert!(checked * 10 > stream.samples.len() * 8, "{checked} of {}", stream.samples.len());
    assert!(checked > 300 && seen.len() * 4 > FUNCTIONS * 3, "{checked}, {} seen", seen.len());
    // What compilers say of their epilogues is not exact to the instruction.
    let first = |count: usize| count.min(4);
    assert!(wrong.len() * 300 <= checked, "{name}: {wrong:x?} of {checked}");
    assert!(cut.len() * 50 <= checked, "{name}: {} {:x?}", cut.len(), &cut[..first(cut.len())]);
}

#[test]
fn every_stack_is_right_however_it_was_optimized() {
    all_are_right("tree-O0", &["-O0"]);
    all_are_right("tree-O2", &["-O2"]);
    all_are_right("tree-O3", &["-O3", "-fomit-frame-pointer", "-march=native"]);
    all_are_right("tree-Os", &["-Os", "-mno-accumulate-outgoing-args", "-fcf-protection=full"]);
}

#[test]
fn every_stack_is_right_however_it_was_linked() {
    all_are_right("tree-pie", &["-O2", "-static-pie"]);
    all_are_right("tree-static", &["-O2", "-static", "-Wl,--no-eh-frame-hdr"]);
    all_are_right("tree-lld", &["-O2", "-fuse-ld=lld", "-Wl,-z,lazy"]);
    all_are_right("tree-mold", &["-O2", "-fuse-ld=mold"]);
    all_are_right("tree-large", &["-O2", "-Wl,-z,max-page-size=0x200000,-z,noseparate-code"]);
}

/// The functions of the tree on a stack as return addresses, from the leaf's caller to `main`'s
/// frame: for every stack with a leaf in the tree, by its leaf.
fn chains(stream: &Stream, symbols: &Symbols) -> BTreeMap<usize, BTreeSet<Vec<u64>>> {
    let mut chains: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for sample in &stream.samples {
        let names = names(sample, symbols);
        let kernel = sample.frames.len() - names.len();
        let Some(leaf) = names.first().and_then(|name| number(name)) else { continue };
        let Some(main) = names.iter().position(|name| *name == "main") else { continue };
        let chain = sample.offsets[kernel + 1..=kernel + main].to_vec();
        chains.entry(leaf).or_default().insert(chain);
    }
    chains
}

#[test]
fn frame_pointers_and_tables_tell_the_same() {
    let options = ["-O1", "-static", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
    let Some((by_tables, symbols)) = recorded("frames-tables", &options, &[]) else { return };
    let how = ["--unwind", "fp"];
    let (by_pointers, same) = recorded("frames-pointers", &options, &how).expect("as before");
    assert_eq!(symbols.0, same.0, "it is the same program");
    let (tables, pointers) = (chains(&by_tables, &symbols), chains(&by_pointers, &symbols));
    // Each function is called from one place only: tables find one chain, exact to the byte.
    let ambiguous: Vec<_> = tables.iter().filter(|(_, chains)| chains.len() != 1).collect();
    assert!(ambiguous.is_empty(), "{ambiguous:x?}");
    let (mut same, mut short) = (0, 0);
    for (leaf, found) in &pointers {
        let Some(right) = tables.get(leaf).and_then(BTreeSet::first) else { continue };
        for chain in found {
            // Before its frame is made and after, frame pointers miss a function's caller.
            assert!(chain == right || chain[..] == right[1..], "f{leaf}: {chain:x?} {right:x?}");
            same += usize::from(chain == right);
            short += usize::from(chain != right);
        }
    }
    assert!(same * 2 > FUNCTIONS && short < same, "{same} {short}");
}
