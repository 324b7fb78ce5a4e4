//! The commands of README.md run as they are written there.

use nprof_tests::{Shell, Terminal, compile, have, repository};

/// A program with functions, allocations and descriptors for the reports; its argument is the number of
/// rounds.
const PROGRAM: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <vector>
__attribute__((noinline)) unsigned parse_numbers(const std::vector<unsigned>& numbers) {
    unsigned x = numbers.back() | 1;
    for (int i = 0; i < 400000; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    if (FILE* file = std::fopen("/dev/null", "w")) { std::fprintf(file, "%u", x); std::fclose(file); }
    return x;
}
int main(int count, char** words) {
    unsigned x = 1;
    for (int i = 0; i < (count > 1 ? std::atoi(words[1]) : 100); i++) {
        x = parse_numbers(std::vector<unsigned>(2000 + i, x));
    }
    return x == 0;
}
"#;

/// The streams that the commands compare.
const STREAMS: &str = "set -e -o pipefail; mkdir old new; cp prog old; cp prog new; mkdir -p src
    printf '[package]\\nname = \"prog\"\\nedition = \"2024\"\\n' > Cargo.toml
    printf 'fn main() { println!(\"{}\", std::env::args().count()); }\\n' > src/main.rs
    for stream in old new old-1 new-1 old-2 new-2 old-3 new-3; do
        nprof-record -q -o - -- ./prog | nprof-symbolize > $stream.nprof
    done";

/// Settings of the cargo that runs this test are not for that of a command.
const ENVIRONMENT: &str = "set -o pipefail; unset RUSTFLAGS CARGO_TARGET_DIR LD_LIBRARY_PATH \
                           ${!CARGO_BUILD_*} ${!CARGO_ENCODED_*} ${!CARGO_PROFILE_*}";

/// Returns the commands of nprof: the indented lines that begin with one.
fn commands(page: &str) -> Vec<String> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let is_own = |line: &&str| line.starts_with("nprof") || line.starts_with("cargo nprof");
    lines.filter(is_own).map(str::to_owned).collect()
}

#[test]
#[ignore = "records for half a minute; step 5 of a release"]
fn commands_run_as_written() {
    if !have(&["g++", "cargo", "script", "stty"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("prog.cpp", PROGRAM);
    compile(&[&shell.path("prog.cpp")], &[], &shell.path("prog"));
    let streams = shell.run(STREAMS);
    assert_eq!(streams.status, 0, "{streams:?}");
    let can_record = shell.run("nprof doctor").out;
    let can = |thing: &str| {
        can_record.lines().any(|line| line.starts_with(thing) && line.contains(" yes"))
    };
    let page = std::fs::read_to_string(repository().join("README.md")).expect("the page");
    let commands = commands(&page);
    // A page of which no line is recognized would pass, too.
    assert!(commands.len() >= 17, "{commands:?}");
    for command in commands {
        let needs = [("nprof top", "the whole system"), ("nprof-record --calls", "exact calls")];
        // Both need rights that an ordinary user of a container may lack.
        let lacking = needs.iter().find(|(begin, thing)| command.starts_with(begin) && !can(thing));
        if let Some((_, thing)) = lacking {
            println!("SKIPPED {command}: this machine cannot record {thing}");
            continue;
        }
        if command.starts_with("nprof top") {
            // It runs until a key is pressed, and only on a terminal.
            let mut terminal = Terminal::new(&shell, 100, 20, &command);
            terminal.wait(|screen| screen.starts_with("functions"));
            terminal.press("q");
            assert_eq!(terminal.finish().0, Some(0), "{command}");
            continue;
        }
        // The only word that a reader replaces.
        let with_process = command.replace(" PID ", " $! ");
        let begin = if with_process == command { "" } else { "./prog 100000 & " };
        let end = if begin.is_empty() { "" } else { "\nstatus=$?; kill $!; exit $status" };
        let run = shell.run(&format!("{ENVIRONMENT}; {begin}{with_process}{end}"));
        // A comparison may find a change by chance (1), or too few samples (4).
        let is_comparison = ["nprof-diff", "nprof diff", "nprof bench"]
            .iter()
            .any(|begin| command.starts_with(begin));
        let accepted: &[i32] = if is_comparison { &[0, 1, 4] } else { &[0] };
        assert!(accepted.contains(&run.status), "{command}\n{run:?}");
    }
    for (file, part) in [
        ("prog.svg", "<svg"),
        ("prog.html", "<html"),
        ("diff.html", "<html"),
        ("list", "parse_numbers"),
    ] {
        let text = String::from_utf8_lossy(&shell.read(file)).into_owned();
        assert!(text.contains(part), "{file}");
    }
}
