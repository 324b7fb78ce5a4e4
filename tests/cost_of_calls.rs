//! The cost of a call by its caller, from exact counts: the example of csprof (Froyd, Mellor-Crummey
//! and Fowler 2005), of which gprof says that both callers pay the same.

use nprof_tests::{Shell, compile, rows};

/// `a` and `b` call `c` as often; a call by `a` takes twice as long. They alternate: the host of a virtual machine
/// may be twice as slow for a second.
const CSPROF: &str = r#"
static volatile unsigned sink;
extern "C" {
__attribute__((noinline)) void c(int cost) {
    for (int i = 0; i < cost * 1200000; i++) sink = sink * 3 + 1;
}
__attribute__((noinline)) void a() { for (int i = 0; i < 10; i++) c(2); sink++; }
__attribute__((noinline)) void b() { for (int i = 0; i < 10; i++) c(1); sink++; }
}
int main() { for (int i = 0; i < 40; i++) a(), b(); }
"#;

#[test]
fn call_costs_each_caller_its_own() {
    let shell = Shell::new();
    let source = shell.write("csprof.cc", CSPROF);
    // Each function begins with an instruction that the kernel emulates.
    let program = compile(&[&source], &["-O1", "-fno-omit-frame-pointer"], &shell.path("csprof"));
    let listed =
        shell.run(&format!("nprof-symbolize --entries '^[abc]$' {} > list", program.display()));
    assert_eq!(listed.stages, [0], "{listed:?}");
    let recorded = shell.run(&format!(
        "nprof-record -q -e cpu-clock --calls list -o - -- {} | nprof-symbolize > x.nprof",
        program.display()
    ));
    if recorded.err.contains("calls cannot be counted") {
        return eprintln!("SKIPPED: {}", recorded.err);
    }
    assert_eq!(recorded.stages, [0, 0], "{recorded:?}");

    let flat = rows(&shell.run("nprof-flat --match event=calls --format tsv x.nprof").quiet());
    let of = |name: &str| flat.iter().find(|row| row.text("function") == name).expect("a row");
    let calls = ["a", "b", "c"].map(|name| of(name).number("self"));
    assert_eq!(calls, [40.0, 40.0, 800.0]);
    assert_eq!(of("c").number("self_margin"), 0.0, "it was counted");
    assert!(of("a").number("total_margin") > 0.0, "an estimate from stacks");

    let events = shell.run("nprof-format text x.nprof | grep ^@event").quiet();
    let overhead = events.split("overhead_ns=").nth(1).expect("the time for counting");
    let overhead: f64 = overhead.trim().parse().expect("a number");
    assert!(overhead > 0.0, "{events}");
    for report in ["nprof-flat", "nprof-paths"] {
        let heading = shell.run(&format!("{report} --per calls x.nprof")).quiet();
        let stated = format!("without the {overhead} ns of CPU time that counting takes");
        assert!(heading.contains(&stated), "{heading}");
    }

    // Of 997 samples a second, the calls by a have some 600 and those by b half as many: the ratio has a
    // standard error of 7 %, and is outside of this range once in 10,000 runs.
    let per_call = |caller: &str| {
        let report = shell.run(&format!(
            "nprof-flat --per calls --format tsv --match event=cpu-clock --exclude function='^{caller}$' x.nprof"
        ));
        let rows = rows(&report.quiet());
        let c = rows.iter().find(|row| row.text("function") == "c").expect("a row");
        // The time that counting took is taken off: c calls nothing that is counted.
        let sampled = c.number("total") / c.number("total_per");
        let taken_off = sampled - c.number("total_ratio");
        assert!((taken_off - overhead).abs() < 1e-3, "{taken_off} ns in the place of {overhead}");
        c.number("total_ratio")
    };
    let (by_a, by_b) = (per_call("b"), per_call("a"));
    let ratio = by_a / by_b;
    assert!((1.5..2.7).contains(&ratio), "{by_a} ns by a, {by_b} ns by b");
}

/// A Rust program with a generic function, a method, a closure and a panic that is caught.
const RUST: &str = r#"
struct Tree { children: Vec<Tree> }
impl Tree {
    #[inline(never)]
    fn size(&self) -> usize { 1 + self.children.iter().map(|it| it.size()).sum::<usize>() }
}
#[inline(never)]
fn largest<T: Ord + Copy>(of: &[T]) -> Option<T> {
    std::hint::black_box(of).iter().copied().max()
}
#[inline(never)]
fn fails(number: usize) { if number > 0 { panic!("{number}") } }
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let leaf = || Tree { children: Vec::new() };
    let tree = Tree { children: (0..10).map(|_| Tree { children: vec![leaf(), leaf()] }).collect() };
    let mut sum = 0;
    for number in 0..30 {
        sum += tree.size();
        sum += largest(&[number, 3]).unwrap() + usize::from(largest(&[1u8, 2]).unwrap());
        sum += usize::from(std::panic::catch_unwind(|| fails(number)).is_err());
    }
    println!("{sum}");
}
"#;

#[test]
fn rust_functions_are_counted_by_their_demangled_names() {
    let shell = Shell::new();
    shell.write("counted.rs", RUST);
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let force = "-C force-frame-pointers=yes";
    shell
        .run(&format!("{rustc} --edition 2021 -O -g {force} -C link-arg=-Wl,--build-id counted.rs"))
        .quiet();
    shell.run("nprof-symbolize --entries '^counted::' counted > list");
    let recorded = shell.run(
        "nprof-record -q -e cpu-clock --calls list -o raw -- ./counted > out && nprof-symbolize raw > x",
    );
    if recorded.err.contains("calls cannot be counted") {
        return eprintln!("SKIPPED: {}", recorded.err);
    }
    assert_eq!(recorded.status, 0, "{recorded:?}");
    let flat = rows(&shell.run("nprof-flat --match event=calls --format tsv x").quiet());
    let calls = |name: &str| {
        let of_name = flat.iter().filter(|row| row.text("function").contains(name));
        of_name.map(|row| row.number("self")).sum::<f64>()
    };
    // Each size is that of 31 trees.
    let found = ["Tree::size", "largest", "fails"].map(calls);
    assert_eq!(found, [30.0 * 31.0, 60.0, 30.0], "{flat:?}");
}

/// `small` is inlined into `c`, which is called by `a` and `b`.
const INSTRUMENTED: &str = r#"
static volatile unsigned sink;
static inline __attribute__((always_inline)) void small() { sink++; }
extern "C" {
__attribute__((noinline)) void c() { small(); small(); }
__attribute__((noinline)) void a() { for (int i = 0; i < 300; i++) c(); sink++; }
__attribute__((noinline)) void b() { for (int i = 0; i < 100; i++) c(); sink++; }
}
int main() { a(); b(); }
"#;

#[test]
fn instrumented_functions_have_exact_calls_where_they_are_inlined() {
    let shell = Shell::new();
    let source = shell.write("instrumented.cc", INSTRUMENTED);
    let options = ["-O2", "-g", "-finstrument-functions"];
    let program = compile(&[&source], &options, &shell.path("instrumented"));
    let recorded = shell.run(&format!(
        "nprof-record -q -e calls:1 -o - -- {} | nprof-symbolize > x.nprof",
        program.display()
    ));
    assert_eq!(recorded.stages, [0, 0], "{recorded:?}");
    let flat = rows(&shell.run("nprof-flat --match event=calls --format tsv x.nprof").quiet());
    let of = |name: &str| flat.iter().find(|row| row.text("function") == name).expect("a row");
    let calls = ["main", "a", "b", "c", "small()"].map(|name| of(name).number("self"));
    assert_eq!(calls, [1.0, 1.0, 1.0, 400.0, 800.0]);
    assert_eq!(of("small()").number("self_margin"), 0.0, "it was counted");
    assert_eq!(of("a").number("total"), 1.0 + 300.0 + 600.0);
    let folded = shell.run("nprof-paths --event calls --format folded x.nprof").quiet();
    for path in ["main;a;c 300", "main;a;c;small() 600", "main;b;c 100", "main;b;c;small() 200"] {
        assert!(folded.lines().any(|line| line.ends_with(path)), "{path}: {folded}");
    }
}
