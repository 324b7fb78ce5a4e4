//! The manual pages document every option and no other, are well formed, and their examples run.
//!
//! An example that runs is a literal display right after a comment `.\" runs`. Its commands are the
//! lines that begin with `$ ` or `> `; the other lines are output shown to the reader.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nprof_tests::{Help, Shell, TOOLS, compile_demo, have, heap, repository, waits};

fn page(name: &str) -> String {
    let path = repository().join("man").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    let directory = std::fs::read_dir(repository().join("man")).expect("there are pages");
    let mut pages: Vec<PathBuf> =
        directory.map(|entry| entry.expect("a page can be listed").path()).collect();
    pages.sort();
    pages
}

/// Returns the options that `--help` of a tool and of its subcommands lists.
fn options_of(shell: &Shell, tool: &str) -> BTreeSet<String> {
    let help = Help::parse(&shell.run(&format!("{tool} --help")).quiet());
    let mut options = BTreeSet::new();
    for option in help.options {
        options.extend(option.short.map(|name| format!("-{name}")));
        options.extend(option.long.map(|name| format!("--{name}")));
    }
    // nprof and nprof-format have subcommands, which have no pages of their own.
    for (command, _) in help.commands {
        options.extend(options_of(shell, &format!("{tool} {command}")));
    }
    options
}

/// Returns the options that a page documents: every `Fl` of a list item.
fn options_in(page: &str) -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    // An item can have several options, as in `.It Fl q , Fl -quiet`: `Fl` precedes each.
    for line in page.lines().filter(|line| line.starts_with(".It Fl ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "Fl") {
            options.insert(format!("-{}", pair[1].replace("\\-", "-")));
        }
    }
    options
}

/// Returns the scripts of the examples of a page that run.
fn examples(page: &str) -> Vec<String> {
    let mut scripts = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == ".\\\" runs") {
        let begin = lines.next().unwrap_or_default();
        assert!(begin.starts_with(".Bd -literal"), "{begin}");
        let script: Vec<String> = lines
            .by_ref()
            .take_while(|line| *line != ".Ed")
            .filter_map(|line| line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")))
            // mdoc escapes: \& is empty, \- a minus sign, \e a backslash.
            .map(|line| line.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\"))
            .collect();
        assert!(!script.is_empty(), "an example without a command");
        scripts.push(script.join("\n"));
    }
    scripts
}

#[test]
fn documents_every_option_and_no_other() {
    let shell = Shell::new();
    for tool in TOOLS {
        let (real, documented) =
            (options_of(&shell, tool), options_in(&page(&format!("{tool}.1"))));
        let missing: Vec<_> = real.difference(&documented).collect();
        let invented: Vec<_> = documented.difference(&real).collect();
        assert!(missing.is_empty(), "{tool}.1 does not document {missing:?}");
        assert!(invented.is_empty(), "{tool}.1 documents {invented:?}, which --help does not list");
    }
}

#[test]
fn passes_mandoc_lint() {
    if !have(&["mandoc"]) {
        return;
    }
    let shell = Shell::new();
    for page in pages() {
        let lint = shell.run(&format!("mandoc -Tlint -Wwarning {}", page.display()));
        assert_eq!((lint.status, lint.out.as_str(), lint.err.as_str()), (0, "", ""));
    }
}

#[test]
fn examples_succeed() {
    let shell = Shell::new();
    compile_demo(shell.directory());
    shell.run("mv demo prog && mkdir old new && cp prog *.so old && cp prog *.so new").quiet();
    // The files that the examples of all pages read.
    let streams = shell.run(
        "nprof-record -o raw.nprof -- ./prog 2>&1 &&
         nprof-symbolize raw.nprof > prog.nprof &&
         for set in base new; do for i in 1 2 3; do
             nprof-record -o - -- ./prog 10000 | nprof-symbolize > $set-$i.nprof
         done; done",
    );
    assert_eq!(streams.status, 0, "{streams:?}");
    // Waits can be recorded by root alone.
    std::fs::write(shell.directory().join("wall.nprof"), waits()).expect("a stream is written");
    std::fs::write(shell.directory().join("heap.nprof"), heap()).expect("a stream is written");
    for page_path in pages() {
        let name = page_path.file_name().expect("a page has a name").to_string_lossy();
        for script in examples(&page(&name)) {
            let run = shell.run(&format!("set -e -o pipefail\n{script}"));
            assert_eq!(run.status, 0, "{name}: {script}\n{run:?}");
        }
    }
}
