//! `cargo nprof` in a small project without dependencies: each kind of target, its lines, and no cargo.

use nprof_tests::{Shell, rows};

/// Takes some tenths of a second in each function. `{}` is its name.
const FUNCTION: &str = "#[inline(never)]\npub fn {}() {\n    let mut x = 1u64;\n    \
    for i in 0..150_000_000u64 {\n        x = std::hint::black_box(x.wrapping_mul(31) ^ i);\n    }\n}\n";

fn function(name: &str) -> String {
    FUNCTION.replace("{}", name)
}

/// Returns a project with two binaries, an example, a test and a benchmark. Its profile has no symbols.
fn project() -> Shell {
    let shell = Shell::new();
    shell
        .run(
            "mkdir -p project/src/bin project/examples project/tests project/benches project/inner",
        )
        .quiet();
    shell.write(
        "project/Cargo.toml",
        "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2021\"\ndefault-run = \"project\"\n\
         [features]\nfast = []\n[profile.release]\nstrip = true\n[[bench]]\nname = \"speed\"\nharness = false\n",
    );
    let test = "\n#[test]\nfn unit_works() {\n    work_of_unit();\n    \
        assert!(std::path::Path::new(\"Cargo.toml\").exists());\n}\n";
    shell.write("project/src/lib.rs", function("work_of_unit") + test);
    let main = "\nfn main() {\n    work_of_bin();\n    \
        std::process::exit(std::env::args().len() as i32 + 5 * cfg!(feature = \"fast\") as i32);\n}\n";
    shell.write("project/src/main.rs", function("work_of_bin") + main);
    shell.write("project/src/bin/other.rs", "fn main() {}\n");
    let main = "\nfn main() { work_of_example(); }\n";
    shell.write("project/examples/sample.rs", function("work_of_example") + main);
    let test = "\n#[test]\nfn it_works() {\n    work_of_test();\n    \
        assert!(std::path::Path::new(\"Cargo.toml\").exists());\n}\n\
        #[test]\nfn fails() { panic!() }\n";
    shell.write("project/tests/whole.rs", function("work_of_test") + test);
    let main = "\nfn main() {\n    assert_eq!(std::env::args().nth(1).unwrap(), \"--bench\");\n    \
        work_of_bench();\n}\n";
    shell.write("project/benches/speed.rs", function("work_of_bench") + main);
    shell
}

/// The command in the project. Its own target directory and settings, not those of these tests.
const CARGO: &str = "unset RUSTFLAGS CARGO_TARGET_DIR LD_LIBRARY_PATH ${!CARGO_BUILD_*} ${!CARGO_ENCODED_*} ${!CARGO_PROFILE_*}; \
                     cd project/inner && cargo nprof";

/// Asserts that a recording has the time of `function`, by lines of `file`, and nothing of cargo.
#[track_caller]
fn assert_profiled(shell: &Shell, recording: &str, function: &str, file: &str) {
    let flat = |by: &str| {
        rows(&shell.run(&format!("nprof-flat --by {by} --format tsv {recording}")).quiet())
    };
    let functions = flat("function");
    let row = functions.iter().find(|row| row.text("function").ends_with(function));
    let row = row.unwrap_or_else(|| panic!("no {function} in {recording}"));
    // Not self: that of the inlined arithmetic is in functions of the standard library.
    assert!(row.number("total_percent") > 50.0, "{row:?}");
    // With `line-tables-only`, inlined methods have no type.
    let of_core = ["black_box", "lt", "next", "spec_next", "wrapping_mul"];
    let short = functions.iter().find(|row| of_core.contains(&row.text("function")));
    assert!(short.is_none(), "{short:?}");
    let lines = flat("line");
    assert!(
        lines.iter().any(|row| row.text("line").contains(file)),
        "no line of {file}: {lines:?}"
    );
    for row in flat("image") {
        let image = row.text("image").rsplit('/').next().unwrap_or_default();
        assert!(!["cargo", "rustc", "cargo-nprof", "nprof"].contains(&image), "{image}");
    }
}

#[test]
fn each_target_is_profiled_without_cargo() {
    let shell = project();
    for (words, status, function, file) in [
        ("-- a b", 3, "work_of_bin", "main.rs"),
        ("--bin project --features fast -F 499", 6, "work_of_bin", "main.rs"),
        ("--example sample", 0, "work_of_example", "sample.rs"),
        ("--test whole -- it_works", 0, "work_of_test", "whole.rs"),
        ("--lib", 0, "work_of_unit", "lib.rs"),
        ("--bench speed", 0, "work_of_bench", "speed.rs"),
    ] {
        let run = shell.run(&format!("{CARGO} -o ../x.nprof {words}"));
        assert_eq!(run.status, status, "{words}: {run:?}");
        assert!(run.err.contains("samples: "), "{words}: {run:?}");
        assert_profiled(&shell, "project/x.nprof", function, file);
    }
    // A recording without a given name is in the directory of the user, also of a test, which runs in
    // that of its package.
    let run = shell.run(&format!("{CARGO} --test whole -- it_works"));
    assert_eq!(run.status, 0, "{run:?}");
    let kept = shell.run("ls project/inner").quiet();
    assert!(kept.starts_with("nprof-whole-2") && kept.lines().count() == 1, "{kept}");
}

#[test]
fn program_finds_its_shared_libraries() {
    let shell = Shell::new();
    shell.run("mkdir -p project/src project/inner project/shared/src").quiet();
    // A library that is only a shared one makes the standard library a shared one, too.
    shell.write(
        "project/Cargo.toml",
        "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         [dependencies]\nshared = { path = \"shared\" }\n",
    );
    shell.write(
        "project/shared/Cargo.toml",
        "[package]\nname = \"shared\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
         [lib]\ncrate-type = [\"dylib\"]\n",
    );
    shell.write("project/shared/src/lib.rs", function("work_of_library"));
    shell.write("project/src/main.rs", "fn main() {\n    shared::work_of_library();\n}\n");
    let run = shell.run(&format!("{CARGO} -o ../x.nprof"));
    assert_eq!(run.status, 0, "{run:?}");
    assert_profiled(&shell, "project/x.nprof", "work_of_library", "lib.rs");
}

#[test]
fn failure_to_build_or_choose_is_no_recording() {
    let shell = project();
    shell.write("project/Cargo.toml", "[package]\nname = \"project\"\nversion = \"0.1.0\"\n");
    for (words, message) in [
        ("", "cargo-nprof: cargo built several: bin other, project; choose one with --bin\n"),
        ("--bin none", "cargo-nprof: cargo could not build the program: exit status: 101\n"),
        ("--manifest-path none/Cargo.toml", "cargo-nprof: cargo did not succeed: "),
        ("--bin other --test whole", "cargo-nprof: "),
        // Before cargo builds anything.
        ("--bin none -o -", "cargo-nprof: -o -: standard output belongs to the command"),
    ] {
        let run = shell.run(&format!("{CARGO} {words}"));
        assert_eq!((run.status, run.out.as_str()), (125, ""), "{words}: {run:?}");
        let last = run.err.split_inclusive('\n').next_back().unwrap_or_default();
        assert!(last.starts_with(message), "{words}: {run:?}");
    }
    let run = shell.run(&format!("{CARGO} --bin other -o out.nprof -- x"));
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(shell.run("ls project/inner").quiet(), "out.nprof\n");
}
