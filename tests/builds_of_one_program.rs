//! One program, built in fifteen ways: the same functions with the same shares in each.
//!
//! Its function `hot` does three times the work of `warm`, in the same loop: 75 % and 25 % of the time
//! with every compiler. Both inline `mix`.

use nprof_tests::{Shell, have, rows};

const PROGRAM: &str = r#"
#include <stdio.h>
#define NOINLINE __attribute__((noinline))
static inline __attribute__((always_inline)) unsigned
mix(unsigned n, unsigned by)
{
    n ^= n >> 15;
    n *= by;
    n ^= n >> 12;
    __asm__ volatile("" : "+r"(n));
    return n;
}
NOINLINE unsigned
warm(unsigned n, unsigned rounds)
{
    while (rounds--)
        n = mix(n, 0x2c1b3c6d);
    return n;
}
NOINLINE unsigned
hot(unsigned n, unsigned rounds)
{
    while (rounds--)
        n = mix(n, 0x297a2d39);
    return n;
}
int
main(int argc, char **argv)
{
    unsigned sum = 0;
    /* Arguments that are constant would make copies of the functions for them. */
    for (unsigned i = 0; i < 50; i++)
        sum += warm(i, argc * 1000000u) + hot(i, argc * 3000000u);
    printf("%u\n", sum);
    return 0;
}
"#;

/// The names that a build has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// Functions, lines and inlined calls.
    Debug,
    /// Functions.
    Symbols,
    /// None: functions are shown by their starts.
    None,
}

/// The program that a build needs besides gcc, its commands, and the names in it.
const BUILDS: [(&str, &str, Names); 15] = [
    ("gcc", "gcc -O2 -g -o v v.c", Names::Debug),
    ("clang", "clang -O2 -g -o v v.c", Names::Debug),
    ("gcc", "gcc -O3 -g -flto -o v v.c", Names::Debug),
    ("ld.lld", "clang -O3 -g -flto -fuse-ld=lld -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -g -gsplit-dwarf -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -gdwarf-5 -gsplit-dwarf -gz -o v v.c", Names::Debug),
    ("clang", "clang -O2 -gdwarf-5 -gsplit-dwarf -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -g -gz -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -g -static -o v v.c", Names::Debug),
    ("musl-gcc", "musl-gcc -O2 -g -static -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -g -no-pie -o v v.c", Names::Debug),
    ("gcc", "gcc -O2 -g -fno-asynchronous-unwind-tables -o v v.c", Names::Debug),
    (
        "objcopy",
        "gcc -O2 -g -o v v.c && objcopy --only-keep-debug v v.debug && strip v &&
         objcopy --add-gnu-debuglink=v.debug v",
        Names::Debug,
    ),
    ("gcc", "gcc -O2 -o v v.c", Names::Symbols),
    ("gcc", "gcc -O2 -s -o v v.c", Names::None),
];

#[test]
fn every_build_has_the_same_functions_and_shares() {
    if !have(&["gcc"]) {
        return;
    }
    for (need, command, names) in BUILDS {
        let compiler = command.split(' ').next().unwrap_or_default();
        if !have(&[need, compiler]) {
            continue;
        }
        // With 2,400 samples, one in 10^6 correct recordings has a share that is 4.5 points off.
        let mut tries = 3;
        while let Err(problem) = check(command, names) {
            tries -= 1;
            assert!(tries > 0, "{command}: {problem}");
        }
    }
}

/// Builds, records and checks the program. Returns the difference from the expectation.
fn check(command: &str, names: Names) -> Result<(), String> {
    let shell = Shell::new();
    shell.write("v.c", PROGRAM);
    let built = shell.run(command);
    assert_eq!(built.status, 0, "{built:#?}");
    shell.run("nprof-record -q -F 4999 -o raw.nprof -- ./v > out").quiet();
    shell
        .run("nprof-symbolize raw.nprof > all; nprof-symbolize --no-inlines raw.nprof > x")
        .quiet();
    let complete = shell.run("nprof-format stat x | awk '$1 == \"complete_percent\" { print $2 }'");
    let complete: f64 = complete.quiet().trim().parse().map_err(|error| format!("{error}"))?;
    if complete < 99.0 {
        return Err(format!("{complete} % of the stacks are complete"));
    }
    let table = rows(&shell.run("nprof-flat --format tsv x").quiet());
    let own =
        table.iter().filter(|row| row.text("image").ends_with("/v") || row.text("image") == "v");
    let own: Vec<(&str, f64)> =
        own.map(|row| (row.text("function"), row.number("self_percent"))).collect();
    // Time in the kernel and in the C library is not part of the comparison.
    let all: f64 = own.iter().map(|(_, share)| share).sum();
    let mut shares: Vec<(&str, f64)> =
        own.iter().map(|(name, share)| (*name, share * 100.0 / all)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let [(hot, first), (warm, second), ..] = shares[..] else {
        return Err(format!("fewer than two functions: {shares:?}"));
    };
    let is_expected = |share: f64, expected: f64| (share - expected).abs() < 4.5;
    if all < 90.0 || !is_expected(first, 75.0) || !is_expected(second, 25.0) {
        return Err(format!("{all} % of self are in the program, {shares:?}"));
    }
    // A wrong name is no matter of chance, and is not tried again.
    match names {
        Names::Debug | Names::Symbols => assert_eq!((hot, warm), ("hot", "warm"), "{command}"),
        Names::None => assert!(hot.starts_with("v+0x") && warm.starts_with("v+0x"), "{shares:?}"),
    }
    // Line tables have inlined calls; symbol tables have none.
    let inlined = rows(&shell.run("nprof-flat --match function=^mix$ --format tsv all").quiet());
    let inlined: f64 = inlined.iter().map(|row| row.number("self_percent")).sum();
    let expected = if names == Names::Debug { 80.0..=100.0 } else { 0.0..=0.0 };
    if !expected.contains(&inlined) {
        return Err(format!("{inlined} % of self in the inlined function"));
    }
    let heading = shell.run("nprof-flat x").quiet();
    let is_reported = heading.contains("of self is in code without names: v");
    assert_eq!(is_reported, names == Names::None, "{command}: {heading}");
    Ok(())
}
