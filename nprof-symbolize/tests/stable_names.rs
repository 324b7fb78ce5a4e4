//! Names that do not depend on installed debug files, and names of code that no symbol covers.

#![allow(clippy::unwrap_used)] // a fixture that cannot be created is a failed test

mod fixture;

use std::path::Path;

use fixture::{Binary, Named, Places, addr2line, names, run_in};
use nprof_stream::Status;

/// Returns the status and the name of the function that has the code at each address.
fn outermost(path: &Path, addresses: &[u64]) -> Vec<(Status, String)> {
    let binary = Binary::read(path);
    let found = names(&[], Places::of(&binary, addresses)).into_iter();
    found.map(|(status, calls)| (status, calls.last().unwrap().name.clone())).collect()
}

/// Returns the file offset of a symbol, as names have it.
fn offset(binary: &Binary, symbol: &str) -> String {
    format!("{:#x}", binary.offset(binary.symbol(symbol)))
}

#[test]
fn function_without_a_symbol_is_named_by_its_start_and_the_function_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let source = "
template <class T> __attribute__((noinline)) T first(T n) { return n * 3; }
template int first<int>(int);
__attribute__((noinline)) static int hidden(int n) { return first(n) ^ n; }
__attribute__((noinline)) static int other(int n) { return hidden(n) - n; }
int last(int n) { return other(n) + 1; }";
    std::fs::write(at.join("l.cc"), source).unwrap();
    let flags = "-O2 -shared -fPIC -fno-toplevel-reorder -fno-ipa-cp -fno-ipa-sra";
    run_in(at, &format!("g++ {flags} -o @/l.so @/l.cc"));
    let whole = Binary::read(&at.join("l.so"));
    let hidden = ["_ZL6hiddeni", "_ZL5otheri"];
    let places: Vec<u64> =
        hidden.iter().flat_map(|name| [1, 3].map(|i| whole.symbol(name) + i)).collect();
    run_in(at, "strip -o @/stripped.so @/l.so");
    let named = outermost(&at.join("stripped.so"), &places);
    // `first` is a weak function of its own section, which the linker places after `.text`.
    let before = if whole.symbol("_Z5firstIiET_S0_") < places[0] { " (after first)" } else { "" };
    for (found, symbol) in named.chunks(2).zip(hidden) {
        let name = format!("stripped.so+{}{before}", offset(&whole, symbol));
        assert_eq!(found, vec![(Status::NoSymbol, name); 2]);
    }
}

#[test]
fn export_without_a_size_does_not_name_the_code_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // As of nasm: no sizes, no unwind table; then a function with both, and code after it.
    let source =
        "__asm__(\".text\\n.globl kernel\\n.type kernel,@function\\nkernel: .fill 5000,1,0x90\\n\"
        \"helper: .fill 9000,1,0x90\\nret\\n\");
static int next(int n) { return n * 5; }
int (*exported)(int) = next;
__asm__(\".text\\n.globl late\\n.type late,@function\\nlate: .fill 64,1,0x90\\n\");
__attribute__((visibility(\"hidden\"))) int end(int n) { return n; }";
    std::fs::write(at.join("l.c"), source).unwrap();
    run_in(at, "gcc -O1 -shared -fPIC -fno-toplevel-reorder -o @/l.so @/l.c");
    let whole = Binary::read(&at.join("l.so"));
    let (kernel, helper) = (whole.symbol("kernel"), whole.symbol("helper"));
    let late = whole.symbol("late");
    let places =
        [kernel, kernel + 4095, kernel + 4096, helper + 8000, late + 63, whole.symbol("end")];
    run_in(at, "strip -o @/s.so @/l.so");
    let named: Vec<String> =
        outermost(&at.join("s.so"), &places).into_iter().map(|(_, name)| name).collect();
    let rest = format!("s.so+{:#x} (after kernel)", whole.offset(kernel + 4096));
    let end = format!("s.so+{} (after late)", offset(&whole, "end"));
    assert_eq!(named, ["kernel", "kernel", &rest, &rest, "late", &end]);
    // A full table has a name for each of them.
    let all = outermost(&at.join("l.so"), &places).into_iter().map(|(_, name)| name);
    assert_eq!(all.collect::<Vec<_>>(), ["kernel", "kernel", "kernel", "helper", "late", "end"]);
}

#[test]
fn exported_functions_have_the_same_names_with_and_without_debug_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // The aliases of the C library, and constructors, of which two are exported.
    let source = "
extern \"C\" {
static inline int twice(int n) { return n * n + 7; }
int __libc_put(int n) asm(\"__GI___libc_put\");
int __libc_put(int n) { return twice(n) / 3; }
__attribute__((weak, alias(\"__GI___libc_put\"))) int put(int);
__attribute__((weak, alias(\"__GI___libc_put\"))) int __put(int);
int get_impl(int n) { return n / 7; }
__attribute__((alias(\"get_impl\"))) int __get_main(int);
}
struct Base { virtual ~Base(); int n; };
struct Shape : virtual Base { Shape(int n); ~Shape(); };
Base::~Base() { n = 0; }
Shape::Shape(int of) { n = twice(of); }
Shape::~Shape() { n = 1; }
namespace a { int area(const Shape &s) { return twice(s.n) + 1; } }";
    std::fs::write(at.join("l.cc"), source).unwrap();
    std::fs::write(at.join("exports"), "{ global: put; __put; __get_main; _Z*; local: *; };")
        .unwrap();
    run_in(
        at,
        "g++ -O2 -g -shared -fPIC -Wl,--version-script=@/exports -Wl,--build-id -o @/l.so @/l.cc",
    );
    let whole = Binary::read(&at.join("l.so"));
    run_in(at, "strip -g -o @/symbols.so @/l.so");
    run_in(at, "strip -o @/exports.so @/l.so");
    let names_of = ["__GI___libc_put", "get_impl", "_ZN1a4areaERK5Shape"].into_iter().chain([
        "_ZN5ShapeC1Ei",
        "_ZN5ShapeC2Ei",
        "_ZN5ShapeD1Ev",
        "_ZN5ShapeD0Ev",
        "_ZN4BaseD2Ev",
    ]);
    let addresses: Vec<u64> = names_of.map(|name| whole.symbol(name)).collect();
    let expected = [
        "put",
        "__get_main",
        "a::area(Shape const&)",
        "Shape::Shape(int)",
        "Shape::Shape(int)",
        "Shape::~Shape()",
        "Shape::~Shape()",
        "Base::~Base()",
    ];
    let expected = expected.map(|name| (Status::Named, name.to_owned()));
    for file in ["l.so", "symbols.so", "exports.so"] {
        assert_eq!(outermost(&at.join(file), &addresses), expected, "{file}");
    }
}

#[test]
fn part_of_a_function_inlined_into_it_is_no_recursion() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // GCC splits off the end of `work`, and inlines it again, as in write(2) of the C library.
    let source = "static volatile int sink;
extern int single; int single = 1;
__attribute__((noinline, noclone)) int slow(int n) { sink += n; return n; }
int
work(int n)
{
    if (single)
        return sink + n;
    int old = slow(3);
    sink += n;
    slow(old);
    return sink;
}
int caller(int n) { return work(n) * 3; }
int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int argc, char **argv) { return work(argc) + caller(argc) + fib(argc + 3); }
";
    std::fs::write(at.join("p.c"), source).unwrap();
    run_in(at, "gcc -O2 -g -o @/p @/p.c");
    let binary = Binary::read(&at.join("p"));
    let addresses = binary.addresses(1);
    let repeats = |calls: &[Named], name: &str| {
        calls.windows(2).any(|pair| pair.iter().all(|call| call.name == name))
    };
    // The debug information has the part as a call of `work` by `work`.
    let raw = addr2line(&binary.path, &addresses);
    assert!(raw.iter().any(|calls| repeats(calls, "work")), "{raw:?}");
    let found = names(&[], Places::of(&binary, &addresses));
    for (calls, raw) in found.iter().map(|(_, calls)| calls).zip(&raw) {
        assert!(!repeats(calls, "work"), "{calls:?}");
        if repeats(raw, "work") {
            // The line is that inside of the part.
            assert_eq!((calls[0].line, &calls[0].name[..]), (raw[0].line, "work"), "{calls:?}");
        }
    }
    let recursive = found.iter().filter(|(_, calls)| repeats(calls, "fib")).count();
    let expected = raw.iter().filter(|calls| repeats(calls, "fib")).count();
    assert!(recursive > 0 && recursive == expected, "{recursive} of {expected}");
}
