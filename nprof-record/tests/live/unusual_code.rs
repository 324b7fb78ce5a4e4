//! Stacks must be right at every instruction, for all optimization levels and linkers.
//!
//! The expected stack must be known without an unwinder. The tests therefore generate a C program
//! with a tree of functions: each has exactly one call site. The address of a sample then
//! determines its whole stack, also in prologues and epilogues, and for every frame layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

use crate::support::{Directory, StackSample, Stream, can_record, record, stderr};
use crate::symbols::{Symbols, names};
use nprof_stream::{Mark, Verdict};

/// The number of functions in the tree.
const FUNCTIONS: usize = 64;

/// Returns the caller of a function. None for the first, which `main` calls.
fn caller(function: usize) -> Option<usize> {
    let above = function.checked_sub(1)?;
    // A chain with pseudorandom branches: bits of a multiplicative hash of the number.
    let mixed = (function as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    Some(if mixed & 1 == 0 { above } else { (mixed >> 1) as usize % function })
}

/// Returns the functions on the stack, leaf first.
fn stack_of(function: usize) -> Vec<usize> {
    std::iter::successors(Some(function), |&function| caller(function)).collect()
}

/// Frame contents of a function. Each passes through `keep`: an empty asm statement that the
/// compiler must assume to use the value.
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

/// Returns the statements after a function's calls, so that no call becomes a tail call.
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

/// Returns the source of a program that walks the tree `passes` times. Every third function has
/// arguments on the stack; every leaf with an odd number leaves by longjmp.
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
            let _ = if jumps(below) {
                write!(source, "if (_setjmp(back) == 0) f{below}(a + 1, b{more}); ")
            } else {
                write!(source, "r += f{below}(a + 1, b{more}); ")
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

/// Parses the number of a function of the tree. None for other functions.
fn number(name: &str) -> Option<usize> {
    name.strip_prefix('f')?.parse().ok()
}

/// Returns the found and the expected stack of a sample. None if no frame is in the tree.
fn found_and_expected(
    sample: &StackSample,
    symbols: &Symbols,
) -> Option<(Vec<String>, Vec<String>)> {
    let names = names(sample, symbols);
    // Frames of the C library below the tree's leaf are unknown and skipped; those above `main` are
    // known.
    let leaf = names.iter().position(|name| number(name).is_some())?;
    let stack = stack_of(number(names[leaf])?);
    let right = stack.iter().map(|function| format!("f{function}")).chain(["main".to_owned()]);
    let is_root = |name: &&&str| name.starts_with("__libc_start") || name.starts_with("libc.so");
    let found = names[leaf..].iter().filter(|name| !is_root(name)).map(|name| (*name).to_owned());
    Some((found.collect(), right.chain(["_start".to_owned()]).collect()))
}

/// Compiles and records the tree. None if there is no compiler or no right to record.
fn recorded(name: &str, options: &[&str], how: &[&str]) -> Option<(Stream, Symbols)> {
    if !can_record() {
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
    assert!(output.status.success(), "{}", stderr(&output));
    let stream = Stream::from_file(&file);
    assert_eq!(stream.verdict, Verdict::Complete);
    Some((stream, Symbols::from_file(&program)))
}

/// Asserts that the stacks of the tree are right in every frame.
fn assert_stacks_match(name: &str, options: &[&str]) {
    let Some((stream, symbols)) = recorded(name, options, &[]) else { return };
    let mut seen = BTreeSet::new();
    let (mut wrong, mut cut, mut checked) = (Vec::new(), Vec::new(), 0);
    for sample in &stream.samples {
        let Some((found, right)) = found_and_expected(sample, &symbols) else { continue };
        // In a page fault on the stack itself, the kernel cannot copy the stack.
        if sample.mark == Mark::NoStack && sample.frames[0].1 {
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
    // Compilers' unwind tables are not exact at every instruction of epilogues: allow 1 in 300.
    let first = |count: usize| count.min(4);
    assert!(wrong.len() * 300 <= checked, "{name}: {wrong:x?} of {checked}");
    assert!(cut.len() * 50 <= checked, "{name}: {} {:x?}", cut.len(), &cut[..first(cut.len())]);
}

#[test]
fn stacks_match_source_at_all_optimization_levels() {
    assert_stacks_match("tree-O0", &["-O0"]);
    assert_stacks_match("tree-O2", &["-O2"]);
    assert_stacks_match("tree-O3", &["-O3", "-fomit-frame-pointer", "-march=native"]);
    assert_stacks_match(
        "tree-Os",
        &["-Os", "-mno-accumulate-outgoing-args", "-fcf-protection=full"],
    );
}

#[test]
fn stacks_match_source_with_all_linkers() {
    assert_stacks_match("tree-pie", &["-O2", "-static-pie"]);
    assert_stacks_match("tree-static", &["-O2", "-static", "-Wl,--no-eh-frame-hdr"]);
    assert_stacks_match("tree-lld", &["-O2", "-fuse-ld=lld", "-Wl,-z,lazy"]);
    assert_stacks_match("tree-mold", &["-O2", "-fuse-ld=mold"]);
    assert_stacks_match("tree-large", &["-O2", "-Wl,-z,max-page-size=0x200000,-z,noseparate-code"]);
}

/// Returns the return addresses on each stack with a leaf in the tree, from the leaf's caller to
/// `main`'s frame, by leaf.
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
fn frame_pointers_agree_with_unwind_tables() {
    let options = ["-O1", "-static", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
    let Some((by_tables, symbols)) = recorded("frames-tables", &options, &[]) else { return };
    let how = ["--unwind", "fp"];
    let (by_pointers, same) = recorded("frames-pointers", &options, &how).expect("as before");
    assert_eq!(symbols.0, same.0, "both recordings are of the same program");
    let (tables, pointers) = (chains(&by_tables, &symbols), chains(&by_pointers, &symbols));
    // Each function has one call site: tables find one chain, exact to the byte.
    let ambiguous: Vec<_> = tables.iter().filter(|(_, chains)| chains.len() != 1).collect();
    assert!(ambiguous.is_empty(), "{ambiguous:x?}");
    let (mut same, mut short) = (0, 0);
    for (leaf, found) in &pointers {
        let Some(right) = tables.get(leaf).and_then(BTreeSet::first) else { continue };
        for chain in found {
            // In prologues and epilogues RBP belongs to the caller: its caller is skipped.
            assert!(chain == right || chain[..] == right[1..], "f{leaf}: {chain:x?} {right:x?}");
            same += usize::from(chain == right);
            short += usize::from(chain != right);
        }
    }
    assert!(same * 2 > FUNCTIONS && short < same, "{same} {short}");
}
