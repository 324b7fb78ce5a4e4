//! Odd code: stacks must be right wherever in a program a sample is taken, and however it was
//! compiled and linked.
//!
//! What is right must be known without an unwinder. So a C program is made whose functions are a
//! tree: each is called from one place only. Where a sample was taken then tells its whole
//! stack, in prologues and epilogues too, and whatever the compiler did to the frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::support::{Directory, Seen, Stream, complaint, may_record, record};
use nprof_format::{Mark, Verdict};
use object::{Object, ObjectSegment, ObjectSymbol};

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

/// The symbols of a program by the file offsets of their code.
struct Symbols(BTreeMap<u64, (u64, String)>);

impl Symbols {
    fn of(program: &str) -> Self {
        let bytes = fs::read(program).expect("read");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let offset = |address: u64| {
            file.segments().find_map(|segment| {
                let at = address.checked_sub(segment.address())?;
                let (start, size) = segment.file_range();
                (at < size).then_some(start + at)
            })
        };
        let code = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let known = code.filter_map(|symbol| {
            Some((offset(symbol.address())?, (symbol.size(), symbol.name().ok()?.to_owned())))
        });
        // `_start` says nothing of its size.
        Self(known.filter(|(_, (size, name))| *size > 0 || name == "_start").collect())
    }

    /// The name of the function at a file offset; parts that were split off have the whole's.
    fn at(&self, offset: u64) -> Option<&str> {
        let (start, (size, name)) = self.0.range(..=offset).next_back()?;
        let is_inside = offset - start < (*size).max(0x40);
        is_inside.then(|| name.split('.').next().unwrap_or(name))
    }
}

/// The user part of a stack, leaf first: the name of each function of the program, where there
/// is one, else the image's.
fn names<'a>(sample: &'a Seen, symbols: &'a Symbols) -> Vec<&'a str> {
    let user = sample.frames.iter().zip(&sample.offsets).filter(|((_, kernel), _)| !kernel);
    let name = |((image, _), offset): (&'a (String, bool), &u64)| match image.as_str() {
        "program" => symbols.at(*offset).unwrap_or("?"),
        other => other,
    };
    user.map(name).collect()
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

/// Compiles and records a program with words for it, in a directory of its own.
struct Program {
    directory: Directory,
    program: String,
}

impl Program {
    fn compile(name: &str, source: &str, options: &[&str]) -> Option<Self> {
        if !may_record() {
            return None;
        }
        let directory = Directory::new(name);
        let program = directory.compile("gcc", source, options)?;
        Some(Self { directory, program })
    }

    /// Makes a shared library beside it.
    fn library(&self, name: &str, source: &str) {
        let file = self.directory.path(&format!("{name}.c"));
        fs::write(&file, source).expect("written");
        let library = self.directory.path(name);
        let words = ["-O1", "-fPIC", "-shared", &file, "-o", &library];
        assert!(Command::new("gcc").args(words).status().expect("as before").success());
    }

    fn record(&self, how: &[&str], words: &[&str]) -> Stream {
        let file = self.directory.path("out");
        let output = record(&[&["-o", &file][..], how, &["--", &self.program], words].concat());
        assert!(output.status.success(), "{}", complaint(&output));
        let stream = Stream::of_file(&file);
        assert_eq!(stream.verdict, Verdict::Complete);
        stream
    }
}

#[test]
fn libraries_that_come_and_go_at_the_same_addresses_are_told_apart() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int count, char **names) {
            void *last = 0; int same = 0;
            for (int i = 0; i < 300; i++) {
                void *library = dlopen(names[1 + i % 2], RTLD_NOW);
                if (!library) return 1;
                void (*work)(void) = (void (*)(void))dlsym(library, "work");
                Dl_info info; dladdr((void *)work, &info);
                same += last == info.dli_fbase; last = info.dli_fbase;
                work(); dlclose(library);
            }
            return same < 250;
        }"#;
    let Some(program) = Program::compile("libraries", source, &["-O2", "-ldl"]) else { return };
    // Frames of different sizes: the other one's table would lead astray.
    for (name, size) in [("one.so", 3), ("two.so", 300)] {
        let source = format!(
            "volatile long s; __attribute__((noinline)) void inner(long n) {{ \
             volatile long local[{size}]; for (long i = 0; i < n; i++) {{ s += i; local[i % 3] = i; }} }} \
             void work(void) {{ for (int i = 0; i < 10; i++) inner(30000); s++; }}"
        );
        program.library(name, &source);
    }
    let (one, two) = (program.directory.path("one.so"), program.directory.path("two.so"));
    let stream = program.record(&[], &[&one, &two]);
    let mut seen = [0, 0];
    for sample in &stream.samples {
        let images: Vec<_> = sample.frames.iter().map(|(image, _)| image.as_str()).collect();
        for (at, own) in [&one, &two].into_iter().enumerate() {
            if images[0] == own.rsplit('/').next().expect("a name") {
                let rest = ["program", "libc.so.6", "libc.so.6", "program"];
                assert_eq!(images[2..], rest, "inner, work, and what called them");
                assert_eq!(images[0], images[1]);
                seen[at] += 1;
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
    assert!(stream.complete() > 0.97, "{}", stream.complete());
}

#[test]
fn threads_on_small_stacks_have_their_kernels_part_on_top() {
    let source = r#"
        #include <fcntl.h>
        #include <pthread.h>
        #include <unistd.h>
        volatile long c;
        __attribute__((noinline)) void *thread(void *p) {
            char bytes[4096]; int file = open("/dev/zero", O_RDONLY);
            for (int i = 0; i < 30000; i++) { c += read(file, bytes, sizeof bytes); }
            for (int i = 0; i < 20000000; i++) c += i;
            return p;
        }
        int main(void) {
            pthread_attr_t small; pthread_t threads[4];
            pthread_attr_init(&small); pthread_attr_setstacksize(&small, 16384);
            for (int i = 0; i < 4; i++) if (pthread_create(threads + i, &small, thread, 0)) return 1;
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            return 0;
        }"#;
    let options = ["-O2", "-pthread"];
    let Some(program) = Program::compile("small-stacks", source, &options) else { return };
    let stream = program.record(&[], &[]);
    assert_eq!(stream.tasks, 5);
    assert!(stream.complete() >= 0.97, "{}", stream.complete());
    let reading = |sample: &&Seen| {
        let kernel = sample.frames.iter().take_while(|(_, kernel)| *kernel).count();
        let user: Vec<_> = sample.frames[kernel..].iter().map(|(image, _)| &image[..]).collect();
        kernel > 2 && user == ["libc.so.6", "program", "libc.so.6", "libc.so.6"]
    };
    let in_kernel = stream.samples.iter().filter(|sample| sample.frames[0].1).count();
    if stream.event.scope == b"user" {
        return;
    }
    let right = stream.samples.iter().filter(reading).count();
    assert!(right > 5 && right * 10 > in_kernel * 4, "{right} of {in_kernel}");
}

#[test]
fn what_makes_threads_is_seen_to_make_them() {
    let source = r#"
        #include <pthread.h>
        void *thread(void *p) { return p; }
        __attribute__((noinline)) int make(void) {
            pthread_t made; if (pthread_create(&made, 0, thread, 0)) return 1;
            return pthread_join(made, 0);
        }
        int main(void) { for (int i = 0; i < 1500; i++) if (make()) return 1; return 0; }"#;
    let options = ["-O1", "-pthread"];
    let Some(program) = Program::compile("makes-threads", source, &options) else { return };
    let symbols = Symbols::of(&program.program);
    let stream = program.record(&["-F", "4999"], &[]);
    if stream.event.scope == b"user" {
        return;
    }
    let making = |sample: &&Seen| {
        let names = names(sample, &symbols);
        let root = ["make", "main", "libc.so.6", "libc.so.6", "_start"];
        sample.frames[0].1 && sample.mark == Mark::None && names.ends_with(&root)
    };
    let made = stream.samples.iter().filter(making).count();
    assert!(made > 20, "{made} of {}", stream.samples.len());
    let by_table = stream.samples.iter().filter(|sample| sample.mark == Mark::Table).count();
    assert!(by_table * 20 <= stream.samples.len(), "{by_table} of {}", stream.samples.len());
}

#[test]
fn children_have_the_stacks_they_were_made_with() {
    let source = r#"
        #include <spawn.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ; volatile long c;
        __attribute__((noinline)) void work(void) { for (int i = 0; i < 20000000; i++) c += i; }
        __attribute__((noinline)) void child(void) { work(); c++; }
        int main(int count, char **words) {
            if (count > 1) { work(); return 0; }
            if (fork() == 0) { if (fork() == 0) { child(); _exit(0); } wait(0); _exit(0); }
            wait(0);
            if (vfork() == 0) { work(); _exit(0); }
            wait(0);
            char *again[] = {words[0], "again", 0}; pid_t pid;
            if (posix_spawn(&pid, words[0], 0, 0, again, environ)) return 1;
            wait(0);
            return 0;
        }"#;
    let Some(program) = Program::compile("children", source, &["-O1"]) else { return };
    let symbols = Symbols::of(&program.program);
    let stream = program.record(&[], &[]);
    assert_eq!(stream.tasks, 5);
    assert_eq!(stream.executed, ["program", "program"]);
    let mut seen = BTreeMap::<_, usize>::new();
    for sample in stream.samples.iter().filter(|sample| !sample.frames[0].1) {
        let names = names(sample, &symbols);
        if names[0] == "work" {
            assert_eq!(sample.mark, Mark::None, "{names:?}");
            *seen.entry(names.join(" ")).or_default() += 1;
        }
    }
    let forked = "work child main libc.so.6 libc.so.6 _start";
    let spawned = "work main libc.so.6 libc.so.6 _start";
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), [forked, spawned]);
    assert!(seen[forked] > 5 && seen[spawned] > 10, "{seen:?}");
}

#[test]
fn the_loader_is_seen_before_main() {
    let names: Vec<_> = (0..12_000).map(|number| format!("g{number}")).collect();
    let functions: String = names.iter().map(|name| format!("void {name}(void) {{}}")).collect();
    let source = "extern void *table[]; int main(void) { return table[1] == 0; }";
    let library = format!("{functions} void *table[] = {{ {} }};", names.join(", "));
    let Some(program) = Program::compile("loader", source, &["-c"]) else { return };
    program.library("libmany.so", &library);
    let object = format!("{}.o", program.program);
    fs::rename(&program.program, &object).expect("renamed");
    let many = program.directory.path("libmany.so");
    let words = [&object, &many, "-Wl,-rpath,$ORIGIN", "-o", &program.program];
    assert!(Command::new("gcc").args(words).status().expect("as before").success());
    let stream = program.record(&["-F", "9973"], &[]);
    let loader = stream.samples.iter().filter(|sample| {
        let root = sample.frames.iter().rfind(|(_, kernel)| !kernel);
        root.is_some_and(|(image, _)| image.starts_with("ld-linux"))
    });
    let marks: Vec<_> = loader.map(|sample| sample.mark).collect();
    let complete = marks.iter().filter(|&&mark| mark == Mark::None).count();
    assert!(marks.len() > 5 && complete * 10 >= marks.len() * 9, "{marks:?}");
}

#[test]
fn rust_is_unwound_to_its_start() {
    let source = r#"
        use std::collections::HashMap;
        fn main() {
            let mut counts = HashMap::<String, usize>::new();
            for number in 0..100_000 { *counts.entry(format!("k{}", number % 1000)).or_default() += 1; }
            let mut numbers: Vec<u32> = (0..600_000u32).map(|n| n.wrapping_mul(2654435761)).collect();
            numbers.sort();
            std::process::exit(i32::from(counts.len() + numbers.len() == 7));
        }"#;
    if !may_record() {
        return;
    }
    let directory = Directory::new("rust");
    let (file, program) = (directory.path("program.rs"), directory.path("program"));
    fs::write(&file, source).expect("written");
    let words = ["--edition=2024", "-O", &file, "-o", &program];
    if !Command::new("rustc").args(words).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no rustc");
        return;
    }
    let file = directory.path("out");
    let output = record(&["-F", "4999", "-o", &file, "--", &program]);
    assert!(output.status.success(), "{}", complaint(&output));
    let stream = Stream::of_file(&file);
    assert!(stream.complete() >= 0.97, "{}", complaint(&output));
}

#[test]
fn what_has_no_unwind_tables_is_never_called_complete() {
    let source = "volatile long c; \
        __attribute__((noinline)) void work(void) { for (long i = 0; i < 80000000; i++) c += i; } \
        int main(void) { work(); return 0; }";
    let options = ["-O2", "-static", "-fno-asynchronous-unwind-tables", "-fomit-frame-pointer"];
    let Some(program) = Program::compile("no-tables", source, &options) else { return };
    let symbols = Symbols::of(&program.program);
    let stream = program.record(&[], &[]);
    let mut in_work = 0;
    for sample in stream.samples.iter().filter(|sample| !sample.frames[0].1) {
        let names = names(sample, &symbols);
        if names[0] == "work" {
            in_work += 1;
            let right = ["work", "main"];
            let known = names.len().min(2);
            assert_eq!(names[..known], right[..known]);
            assert!(sample.mark != Mark::None || names.last() == Some(&"_start"), "{names:?}");
        }
    }
    assert!(in_work > 20, "{in_work}");
}

#[test]
fn segments_far_apart_have_each_its_place() {
    let source = r#"
        volatile long c;
        __attribute__((noinline, section(".hot"))) void hot(void) { for (long i = 0; i < 300000000; i++) c += i; }
        __attribute__((noinline, section(".warm"))) void warm(void) { volatile long a[99]; a[1] = 1; hot(); c += a[1]; }
        int main(void) { warm(); return 0; }"#;
    // As post-link optimizers do: code in segments of their own, with other distances.
    let options = [
        "-O2",
        "-no-pie",
        "-Wl,--section-start=.hot=0x10000000,--section-start=.warm=0x20000000",
        "-Wl,-z,max-page-size=0x200000",
    ];
    let Some(program) = Program::compile("segments", source, &options) else { return };
    let symbols = Symbols::of(&program.program);
    let stream = program.record(&[], &[]);
    let hot = stream
        .samples
        .iter()
        .filter(|sample| !sample.frames[0].1)
        .map(|sample| (sample.mark, names(sample, &symbols)));
    let hot: Vec<_> = hot.filter(|(_, names)| names[0] == "hot").collect();
    let right = ["hot", "warm", "main", "libc.so.6", "libc.so.6", "_start"];
    assert!(hot.len() > 20, "{}", hot.len());
    assert!(hot.iter().all(|(mark, names)| *mark == Mark::None && *names == right), "{hot:?}");
}
