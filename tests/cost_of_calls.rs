//! The cost of a call by its caller, from exact counts: the example of csprof (Froyd, Mellor-Crummey
//! and Fowler 2005), of which gprof says that both callers pay the same.

use nprof_tests::{Shell, compile, rows};

/// `a` and `b` call `c` as often; a call by `a` takes twice as long.
const CSPROF: &str = r#"
static volatile unsigned sink;
extern "C" {
__attribute__((noinline)) void c(int cost) {
    for (int i = 0; i < cost * 1200000; i++) sink = sink * 3 + 1;
}
__attribute__((noinline)) void a() { for (int i = 0; i < 400; i++) c(2); sink++; }
__attribute__((noinline)) void b() { for (int i = 0; i < 400; i++) c(1); sink++; }
}
int main() { a(); b(); }
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
    assert_eq!(calls, [1.0, 1.0, 800.0]);
    assert_eq!(of("c").number("self_margin"), 0.0, "it was counted");
    assert!(of("a").number("total_margin") > 0.0, "an estimate from stacks");

    // Of 997 samples a second, the calls by a have some 600 and those by b half as many: the ratio has a
    // standard error of 7 %, and is outside of this range once in 10,000 runs.
    let per_call = |caller: &str| {
        let report = shell.run(&format!(
            "nprof-flat --per calls --format tsv --match event=cpu-clock --exclude function='^{caller}$' x.nprof"
        ));
        let rows = rows(&report.quiet());
        let c = rows.iter().find(|row| row.text("function") == "c").expect("a row");
        c.number("total_ratio")
    };
    let (by_a, by_b) = (per_call("b"), per_call("a"));
    let ratio = by_a / by_b;
    assert!((1.5..2.7).contains(&ratio), "{by_a} ns by a, {by_b} ns by b");
}
