//! `make install` puts tools, manual pages and completions where shells and man(1) search for them,
//! and the completions know every option and value.

use nprof_tests::{Help, Shell, TOOLS, have, repository, tools};

/// Returns the variables of make for the tools that were built for the tests, and writes their
/// completions. Everything is in the shell's directory.
fn variables(shell: &Shell) -> String {
    let variables = format!(
        "-C {} BIN={} COMPLETIONS=$PWD/completions PROFILE=dev BUILT=$PWD/built \
         DESTDIR=$PWD/root PREFIX=/usr",
        repository().display(),
        tools().display()
    );
    let run = shell.run(&format!("make -s {variables} completions"));
    assert_eq!(run.status, 0, "{run:#?}");
    variables
}

/// Installs the tools that were built for the tests, into `root`. Returns the output.
fn install(shell: &Shell) -> String {
    let run = shell.run(&format!("make -s {} install-files", variables(shell)));
    assert_eq!(run.status, 0, "{run:#?}");
    run.out
}

#[test]
fn installs_without_cargo_unless_a_source_is_newer() {
    if !have(&["make"]) {
        return;
    }
    let shell = Shell::new();
    let variables = variables(&shell);
    // As sudo(8) runs it: neither the variables nor the PATH of the user.
    let install = format!("env -i PATH=/usr/bin:/bin make {variables} CARGO=absent-cargo install");
    shell.write("built", "");
    let run = shell.run(&install);
    assert_eq!((run.status, run.err.as_str()), (0, ""), "{run:#?}");
    shell.run("root/usr/bin/nprof-flat --version").quiet();
    // Now each source is newer than the build.
    shell.run("touch -d 2020-01-01 built").quiet();
    let run = shell.run(&install);
    assert_eq!(run.status, 2, "{run:#?}");
    let advice = "absent-cargo: not found; first run make as the user who has the Rust toolchain";
    assert!(run.out.contains(advice), "{run:#?}");
}

#[test]
fn demo_installs_no_packages_of_the_tests() {
    if !have(&["make"]) {
        return;
    }
    let shell = Shell::new();
    let demo = format!("make -n -C {} BUILT=$PWD/built demo", repository().display());
    let commands = shell.run(&demo).out;
    assert!(commands.contains("g++:g++") && commands.contains("demo/show"), "{commands}");
    // Packages that only tests and benches use.
    for package in ["zsh", "fish", "dwz", "mold", "musl", "linux-perf", "rustup"] {
        assert!(!commands.contains(package), "{package}: {commands}");
    }
}

#[test]
fn installs_tools_pages_and_completions() {
    if !have(&["make"]) {
        return;
    }
    let shell = Shell::new();
    let output = install(&shell);
    assert!(output.contains("root/usr:\n    bin "), "{output}");
    for tool in TOOLS {
        assert!(output.contains(tool), "{output}");
        shell.run(&format!("root/usr/bin/{tool} --version")).quiet();
        for file in [
            format!("man/man1/{tool}.1"),
            format!("bash-completion/completions/{tool}"),
            format!("zsh/site-functions/_{tool}"),
            format!("fish/vendor_completions.d/{tool}.fish"),
        ] {
            let path = shell.path("root/usr/share").join(file);
            let size = path.metadata().map(|file| file.len()).unwrap_or_default();
            // An empty or truncated completion file would also exist.
            assert!(size > 100, "{}: {size} bytes", path.display());
        }
    }
    let rest = shell.run("ls root/usr/share/man/man5 root/usr/share/man/man7").quiet();
    assert!(rest.contains("nprof-format.5") && rest.contains("nprof.7"), "{rest}");
}

#[test]
fn bash_completes_every_option_and_value() {
    if !have(&["make"]) {
        return;
    }
    let shell = Shell::new();
    install(&shell);
    // Does as bash does when a user presses TAB after these words.
    let complete = |words: &str| {
        // The completion functions call compopt, which fails outside of an interactive shell.
        let script = format!(
            "compopt() {{ :; }}
            COMP_WORDS=({words})
            COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            source root/usr/share/bash-completion/completions/$COMP_WORDS
            function=$(complete -p $COMP_WORDS | sed 's/.*-F \\([^ ]*\\).*/\\1/')
            $function $COMP_WORDS \"${{COMP_WORDS[COMP_CWORD]}}\" \
                \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
            printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let found = shell.run(&script).quiet();
        found.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    for tool in TOOLS {
        let help = Help::parse(&shell.run(&format!("{tool} --help")).quiet());
        let (long, short) = (complete(&format!("{tool} --")), complete(&format!("{tool} -")));
        for option in help.options {
            if let Some(name) = option.long {
                assert!(long.contains(&format!("--{name}")), "{tool}: no --{name} in {long:?}");
            }
            if let Some(name) = option.short {
                assert!(short.contains(&format!("-{name}")), "{tool}: no -{name} in {short:?}");
            }
        }
    }
    let values = complete("nprof-record --unwind d");
    assert_eq!(values, ["dwarf"]);
    assert!(complete("nprof-format ch").contains(&"check".to_owned()));
    assert!(complete("nprof-format check --").contains(&"--format".to_owned()));
}

#[test]
fn zsh_and_fish_parse_completions() {
    let shell = Shell::new();
    if !have(&["make", "zsh", "fish"]) {
        return;
    }
    install(&shell);
    shell.run("for file in root/usr/share/zsh/site-functions/_*; do zsh -n $file; done").quiet();
    shell
        .run("for file in root/usr/share/fish/vendor_completions.d/*; do fish -n $file; done")
        .quiet();
}

#[test]
fn published_crates_have_licences_and_documentation() {
    let crates = std::fs::read_dir(repository()).expect("the repository");
    let mut found = 0;
    for folder in crates.map(|entry| entry.expect("an entry").path()) {
        // Folders such as docs have none.
        let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        if manifest.contains("publish = false") {
            continue;
        }
        found += 1;
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name");
        let documentation = format!("documentation = \"https://docs.rs/{name}\"\n");
        assert!(manifest.contains(&documentation), "{name}: {manifest}");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let text = std::fs::read(folder.join(licence)).expect(licence);
            assert!(text == std::fs::read(repository().join(licence)).expect(licence), "{name}");
        }
    }
    assert!(found >= 20, "{found}");
}
