//! `make install` puts tools, manual pages and completions where shells and man(1) search for them,
//! and the completions know every option and value.

use nprof_tests::{Help, Shell, TOOLS, have, repository, tools};

/// Installs the tools that were built for the tests, into `root` in the shell's directory.
fn install(shell: &Shell) {
    let run = shell.run(&format!(
        "make -s -C {} install-files DESTDIR=$PWD/root PREFIX=/usr BIN={} COMPLETIONS=$PWD/completions",
        repository().display(),
        tools().display()
    ));
    assert_eq!(run.status, 0, "{run:#?}");
}

#[test]
fn installs_tools_pages_and_completions() {
    if !have(&["make"]) {
        return;
    }
    let shell = Shell::new();
    install(&shell);
    for tool in TOOLS {
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
