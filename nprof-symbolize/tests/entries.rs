//! The places at which calls are counted: `--entries`.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use std::path::Path;
use std::process::{Command, Output};

use fixture::{Binary, run_in, sources};
use object::{Object, ObjectSegment};

/// Functions with and without a place.
const FUNCTIONS: &str = r#"
__asm__(".text\n"
    ".globl plain\n.type plain, @function\nplain: push %rbx\n pop %rbx\n ret\n.size plain, .-plain\n"
    ".globl marked\n.type marked, @function\nmarked: endbr64\n push %r12\n pop %r12\n ret\n.size marked, .-marked\n"
    ".globl tested\n.type tested, @function\ntested: test %edi, %edi\n je 1f\n nop\n1: ret\n.size tested, .-tested\n"
    ".globl small\n.type small, @function\nsmall: lea 1(%rdi), %eax\n ret\n.size small, .-small\n"
    ".globl again\n.type again, @function\nagain: test %edi, %edi\n je 1f\n dec %edi\n jmp again\n1: ret\n.size again, .-again\n"
    ".globl table\n.type table, @object\ntable: .quad 0x0606060606060606\n.size table, 8\n"
    ".globl chosen\n.type chosen, @gnu_indirect_function\nchosen: lea plain(%rip), %rax\n ret\n.size chosen, .-chosen\n"
    ".globl joined\n.type joined, @function\njoined: mov %edi, %eax\ninside: inc %eax\n test %eax, %eax\n jns 1f\n1: ret\n.size joined, .-joined\n"
    ".globl enters\n.type enters, @function\nenters: push %rbp\n pop %rbp\n jmp inside\n.size enters, .-enters\n");
extern int puts(const char *);
int main(void) { return puts("x") < 0; }
"#;

fn entries(regex: &str, image: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_nprof-symbolize");
    Command::new(program).args(["--entries", regex]).arg(image).output().unwrap()
}

/// Returns the lines of a successful run without the header, as function and offset.
fn listed(output: &Output) -> Vec<(String, u64)> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("function\timage\tbuild_id\toffset\tframe\tends\tslow"));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, _, _, offset, _, _, _] = fields[..] else { panic!("{line}") };
        (name.to_owned(), u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap())
    };
    lines.map(row).collect()
}

/// Returns the file offset of a symbol.
fn offset(path: &Path, symbol: &str) -> u64 {
    let address = Binary::read(path).symbol(symbol);
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut segments = file.segments();
    let segment =
        segments.find(|it| (it.address()..it.address() + it.size()).contains(&address)).unwrap();
    address - segment.address() + segment.file_range().0
}

#[test]
fn places_are_the_first_emulated_or_else_stepped_instructions_of_functions() {
    let directory = sources();
    let path = directory.path().join("prog");
    std::fs::write(directory.path().join("f.c"), FUNCTIONS).unwrap();
    run_in(directory.path(), "gcc -O2 -Wl,--build-id -o @/prog @/f.c");
    let all = "^(plain|marked|tested|small|again|table|chosen|joined|enters|puts)$";
    let output = entries(all, &path);
    let slow = [("small", 0), ("joined", 0)];
    let emulated = [("plain", 0), ("marked", 4), ("tested", 2), ("enters", 0)];
    let places = [&emulated[..], &slow].concat();
    let mut expected: Vec<(String, u64)> =
        places.iter().map(|(name, at)| ((*name).to_owned(), offset(&path, name) + at)).collect();
    expected.sort_by_key(|(_, offset)| *offset);
    assert_eq!(listed(&output), expected);
    let text = String::from_utf8(output.stdout).unwrap();
    for (places, is_slow) in [(&emulated[..], "no"), (&slow[..], "yes")] {
        for (name, _) in places {
            let line = text.lines().find(|line| line.starts_with(&format!("{name}\t"))).unwrap();
            assert!(line.ends_with(&format!("\t{is_slow}")), "{line}");
        }
    }
    let messages = String::from_utf8(output.stderr).unwrap();
    let note = "2 functions have a probe that takes a single step";
    assert!(messages.contains(note), "{messages}");
    for (name, reason) in [
        ("again", "a jump inside it leads to its entry"),
        ("table", "data in a section of code"),
        ("chosen", "an indirect function"),
        ("puts", "its code is in another image"),
    ] {
        let line = messages.lines().find(|line| line.contains(&format!(": {name}: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{name}: {messages}");
    }
}

/// Functions of which a part lies elsewhere. `looped` continues at its entry from there, `plain` in its
/// middle; `ends` calls `other` from there, which jumps to it: a tail call.
const SPLIT: &str = r#"
__asm__(".text\n"
    ".globl looped\n.type looped, @function\nlooped: .cfi_startproc\n test %edi, %edi\n jne 1f\n ret\n.cfi_endproc\n.size looped, .-looped\n"
    ".section .text.unlikely,\"ax\"\n.type looped.cold, @function\nlooped.cold: .cfi_startproc\n1: dec %edi\n jmp looped\n.cfi_endproc\n.size looped.cold, .-looped.cold\n"
    ".text\n.globl joined\n.type joined, @function\njoined: .cfi_startproc\n test %edi, %edi\n2: nop\n jne 1f\n ret\n.cfi_endproc\n.size joined, .-joined\n"
    ".section .text.unlikely,\"ax\"\n.type joined.cold, @function\njoined.cold: .cfi_startproc\n1: dec %edi\n jmp 2b\n.cfi_endproc\n.size joined.cold, .-joined.cold\n"
    ".text\n.globl ends\n.type ends, @function\nends: .cfi_startproc\n push %rbx\n pop %rbx\n ret\n.cfi_endproc\n.size ends, .-ends\n"
    ".type other, @function\nother: .cfi_startproc\n push %rbx\n pop %rbx\n jmp ends\n.cfi_endproc\n.size other, .-other\n");
int main(void) { return 0; }
"#;

#[test]
fn jump_from_a_cold_part_is_no_call() {
    let directory = sources();
    let at = directory.path();
    std::fs::write(at.join("f.c"), SPLIT).unwrap();
    run_in(at, "gcc -O2 -rdynamic -Wl,--build-id -o @/prog @/f.c");
    run_in(at, "strip -o @/stripped @/prog");
    for name in ["prog", "stripped"] {
        let path = at.join(name);
        let output = entries("^(looped|joined|ends)$", &path);
        // The cold part of `joined` leads to its second instruction, which is none for a probe.
        let places = ["joined", "ends"].map(|it| (it.to_owned(), offset(&at.join("prog"), it)));
        assert_eq!(listed(&output), places, "{name}");
        let messages = String::from_utf8(output.stderr).unwrap();
        let line = messages.lines().find(|line| line.contains(": looped: "));
        let reason = "a jump inside it leads to its entry";
        assert!(line.is_some_and(|line| line.contains(reason)), "{name}: {messages}");
    }
}

/// `split` returns, jumps to another function, and returns from its cold part, to which it also jumps.
const ENDS: &str = r#"
__asm__(".text\n"
    ".globl split\n.type split, @function\nsplit: push %rbx\n pop %rbx\n test %edi, %edi\n jne 1f\n jg split.cold\n ret\n1: jmp .Lnext\n.Lnext: jmp other\n.size split, .-split\n"
    ".globl other\n.type other, @function\nother: push %rbx\n pop %rbx\n jmp split.cold\n.size other, .-other\n"
    ".section .text.unlikely,\"ax\"\n.type split.cold, @function\nsplit.cold: nop\n ret\n.size split.cold, .-split.cold\n");
int main(void) { return 0; }
"#;

#[test]
fn ends_are_returns_and_jumps_to_other_functions() {
    let directory = sources();
    let at = directory.path();
    std::fs::write(at.join("f.c"), ENDS).unwrap();
    run_in(at, "gcc -O2 -Wl,--build-id -o @/prog @/f.c");
    let path = at.join("prog");
    let output = entries("^(split|other)$", &path);
    let text = String::from_utf8(output.stdout).unwrap();
    let ends = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}\t"))).unwrap();
        line.split('\t').nth(5).unwrap().to_owned()
    };
    let (split, cold) = (offset(&path, "split"), offset(&path, "split.cold"));
    let bytes = std::fs::read(&path).unwrap();
    // push, pop, test, jne, jg with a distance of four bytes.
    let returns = split + 1 + 1 + 2 + 2 + 6;
    let mut expected = [cold + 1, returns, returns + 3];
    assert_eq!((bytes[cold as usize + 1], bytes[returns as usize]), (0xc3, 0xc3));
    expected.sort_unstable();
    assert_eq!(ends("split"), expected.map(|it| format!("{it:#x}")).join(","));
    assert_eq!(ends("other"), "", "the cold part of a function is no function");
}

#[test]
fn shadow_stack_leaves_no_probe_at_a_call() {
    let directory = sources();
    let at = directory.path();
    let code = r#"__asm__(".text\n.globl f\n.type f, @function\nf: endbr64\n call g\n ret\n.size f, .-f\n"
        ".type g, @function\ng: endbr64\n nop\n ret\n.size g, .-g\n");
        int main(void) { return 0; }"#;
    std::fs::write(at.join("f.c"), code).unwrap();
    run_in(at, "gcc -O2 -fcf-protection=none -Wl,--build-id -o @/none @/f.c");
    run_in(at, "gcc -O2 -Wl,--build-id,-z,shstk -o @/cet @/f.c");
    let places = |name: &str| listed(&entries("^[fg]$", &at.join(name)));
    let at_endbr = |name: &str, image: &str| (name.to_owned(), offset(&at.join(image), name) + 4);
    assert_eq!(places("none"), [at_endbr("f", "none"), at_endbr("g", "none")]);
    // The step is at endbr64.
    let f = ("f".to_owned(), offset(&at.join("cet"), "f"));
    assert_eq!(places("cet"), [f, at_endbr("g", "cet")]);
}

#[test]
fn names_are_demangled_and_come_from_debug_files() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/prog @/a.cc");
    let before = listed(&entries("geometry::area", &at.join("prog")));
    assert_eq!(before[0].0, "geometry::area(geometry::Point<int> const&)");
    assert_eq!(listed(&entries("_ZN8geometry4area", &at.join("prog"))), before, "a linkage name");
    run_in(at, "objcopy --only-keep-debug @/prog @/prog.debug");
    run_in(at, "strip @/prog");
    run_in(at, "objcopy --add-gnu-debuglink=@/prog.debug @/prog");
    assert_eq!(listed(&entries("geometry::area", &at.join("prog"))), before);
    run_in(at, "rustc -O -g -o @/rust @/a.rs");
    let rust = listed(&entries("^a::(main|total)", &at.join("rust")));
    assert!(rust.iter().any(|(name, _)| name == "a::main"), "{rust:?}");
}

#[test]
fn image_without_a_countable_function_is_an_error() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -o @/prog @/a.cc");
    let refused = |regex: &str, path: &Path, reason: &str| {
        let output = entries(regex, path);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{message}");
        assert!(message.contains(reason), "{message}");
    };
    refused("no_such_function", &at.join("prog"), "no function that matches no_such_function");
    refused("x", &at.join("a.cc"), "no ELF file");
    // The section identifies a Go program.
    run_in(at, "objcopy --add-section .go.buildinfo=@/a.rs @/prog @/go");
    refused(".", &at.join("go"), "a Go program");
    // This one identifies a module of the kernel.
    run_in(at, "objcopy --add-section .modinfo=@/a.rs @/prog @/module");
    refused(".", &at.join("module"), "name the running one [kernel]");
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    if !symbols.contains(" register_kprobe\n") {
        refused(".", Path::new("[kernel]"), "CONFIG_");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_nprof-symbolize"))
        .args(["--entries", "."])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no image"));
}

#[test]
fn program_compiled_by_go_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = "package main\n\n//go:noinline\nfunc counted(n int) int { return n + 1 }\n\n\
        func main() { println(counted(1)) }\n";
    std::fs::write(at.join("main.go"), source).unwrap();
    for flags in ["", "-s -w"] {
        let mut build = Command::new("go");
        build.args(["build", "-ldflags", flags, "-o", "counted", "main.go"]).current_dir(at);
        // Neither settings nor the network of this machine.
        build.env("GOCACHE", at.join("cache")).env("GOFLAGS", "").env("GOTOOLCHAIN", "local");
        build.env("GO111MODULE", "off").env("CGO_ENABLED", "0").env("GOENV", "off");
        let Ok(built) = build.output() else {
            return println!("SKIPPED program_compiled_by_go_is_refused_by_name: no go");
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let output = entries("main.counted", &at.join("counted"));
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{message}");
        assert!(message.contains("/counted: a Go program"), "{message}");
    }
}
