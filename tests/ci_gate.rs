//! The recipe for continuous integration in docs/ci: its status agrees with its reports, and its comment
//! replaces an earlier one.

use nprof_tests::{Shell, repository};

/// Runs the gate with programs that have too few samples for a decision.
#[test]
fn undecided_bound_is_skipped_and_does_not_fail() {
    let shell = Shell::new();
    shell.write("nprof.md", "of an earlier run");
    let gate = repository().join("docs/ci/gate");
    let gate = gate.display();
    let run = shell.run(&format!("RUNS=1 {gate} 'total>+50ms' true true"));
    assert_eq!(run.status, 0, "{run:?}");
    assert!(run.out.starts_with("**nprof-diff: not enough data to decide**"), "{run:?}");
    let junit = String::from_utf8_lossy(&shell.read("nprof.xml")).into_owned();
    for part in
        ["failures=\"0\" errors=\"0\"", "skipped=\"1\"", "<skipped message=\"not enough samples"]
    {
        assert!(junit.contains(part), "{part}: {junit}");
    }
    // A program that fails has no report, and not that of an earlier run.
    let run = shell.run(&format!("RUNS=1 {gate} 'total>+50ms' true false"));
    assert_eq!(run.status, 2, "{run:?}");
    assert!(!shell.path("nprof.md").exists() && !shell.path("nprof.xml").exists());
}

/// Returns the script of a step of the workflow for GitHub.
fn step(name: &str) -> String {
    let path = repository().join("docs/ci/github.yml");
    let workflow = std::fs::read_to_string(path).expect("there is a workflow");
    let (_, step) = workflow.split_once(&format!("- name: {name}\n")).expect("there is the step");
    let (_, script) = step.split_once("run: |\n").expect("it has a script");
    let lines = script.lines().take_while(|line| line.starts_with("          "));
    lines.map(|line| format!("{}\n", line.trim_start())).collect()
}

#[test]
fn workflow_replaces_its_own_comment() {
    let shell = Shell::new();
    shell.write("nprof.md", "**result**\n");
    // Prints the identifier of the comment that exists, and logs the other requests.
    shell.write(
        "gh",
        "#!/bin/sh\nif [ \"$2\" = --paginate ]; then cat ids; else echo \"$@\" >>log; fi\n",
    );
    shell.write("comment.sh", step("comment"));
    let comment = || {
        shell
            .run("chmod +x gh; GITHUB_REPOSITORY=o/r NUMBER=7 PATH=.:$PATH bash -e comment.sh")
            .quiet();
        let log = String::from_utf8_lossy(&shell.read("log")).into_owned();
        log.lines().last().unwrap_or_default().to_owned()
    };
    shell.write("ids", "");
    let posted = "api --silent --method POST repos/o/r/issues/7/comments --field body=@comment.md";
    assert_eq!(comment(), posted);
    shell.write("ids", "42\n43\n");
    let patched =
        "api --silent --method PATCH repos/o/r/issues/comments/42 --field body=@comment.md";
    assert_eq!(comment(), patched);
    assert_eq!(shell.read("comment.md"), b"<!-- nprof -->\n**result**\n");
}
