//! What rows are: what of two builds is taken for the same, and what only seems to be another.

mod support;

use std::fs;

use support::{Run, diff};
use tempfile::TempDir;

#[test]
fn builds_with_other_file_names_are_told_and_can_be_joined() {
    let directory = TempDir::new().unwrap();
    let functions = [("parse", 600), ("solve", 400)];
    Run::new(1, &functions).save(directory.path(), "base");
    let new = Run::new(2, &functions).text().replace("/opt/demo", "/opt/demo-2");
    fs::write(directory.path().join("new"), new).unwrap();
    let ended = diff(directory.path(), "base new");
    let said = ended.stdout.replace("\n  ", " ");
    assert!(
        said.contains(
            "warning: the sides have little in common: 0 % of the samples match by function\n"
        ),
        "{said}"
    );
    assert!(said.contains("warning: on base alone: demo, on new alone: demo-2:"), "{said}");
    assert!(said.contains("the line image<TAB>demo<TAB>demo-2\n"), "{said}");
    fs::write(directory.path().join("names"), "image\tdemo\tdemo-2\nnobody\tx\n").unwrap();
    let ended = diff(directory.path(), "--fail-on any --rename names base new");
    assert_eq!(ended.status, 0, "{}", ended.stdout);
    assert!(!ended.stdout.contains("little in common"));
    assert!(ended.stdout.contains("warning: names: line 2: nothing on base is called nobody\n"));
    // By image the image is the name.
    assert_eq!(diff(directory.path(), "--by image --fail-on any base new").status, 1);
    assert_eq!(
        diff(directory.path(), "--by image --fail-on any --rename names base new").status,
        0
    );
}

#[test]
fn what_was_renamed_is_proposed_and_never_joined() {
    let directory = TempDir::new().unwrap();
    let base = [("parse", 600), ("solve_fast", 200), ("old_write", 150), ("gone", 50)];
    let new = [("parse", 500), ("solve_quick", 205), ("new_write", 150), ("come", 150)];
    Run::new(1, &base).save(directory.path(), "base");
    Run::new(2, &new).save(directory.path(), "new");
    let json = diff(directory.path(), "--format json base new").stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pairs: Vec<(&str, &str)> = report["renamed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair["old"].as_str().unwrap(), pair["new"].as_str().unwrap()))
        .collect();
    // 5 % and 15 % are not about the same; of two with 15 % the one more alike is proposed.
    assert_eq!(pairs, [("solve_fast", "solve_quick"), ("old_write", "new_write")]);
    assert!(json.contains("\"verdict\":\"removed\"") && json.contains("\"verdict\":\"added\""));
    let names = "solve_fast\tsolve_quick\nold_write\tnew_write\n";
    fs::write(directory.path().join("names"), names).unwrap();
    let table = diff(directory.path(), "--rename names base new").stdout;
    assert!(!table.contains("solve_fast") && !table.contains("renamed?"), "{table}");
    fs::write(directory.path().join("wrong"), "a\tb\tc\n").unwrap();
    for (file, message) in
        [("wrong", "--rename wrong: line 1: expected OLD<TAB>NEW"), ("no", "--rename no: ")]
    {
        let ended = diff(directory.path(), &format!("--rename {file} base new"));
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""));
        assert!(ended.stderr.starts_with(&format!("nprof-diff: {message}")), "{}", ended.stderr);
    }
}

#[test]
fn paths_and_threads_are_rows() {
    let directory = TempDir::new().unwrap();
    Run::new(1, &[("parse", 600), ("solve", 400)]).save(directory.path(), "base");
    Run::new(2, &[("parse", 400), ("solve", 600)]).save(directory.path(), "new");
    let names = |line: &str| {
        let tsv = diff(directory.path(), line).stdout;
        tsv.lines()
            .skip(1)
            .map(|row| row.split('\t').nth(2).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let by_path = names("--sort name --format tsv --by path base new");
    assert_eq!(by_path, ["main", "main;parse", "main;solve"]);
    let worker = Run::new(3, &[("parse", 500)]).text();
    let worker = worker.replace("I\t1\t", "T\t1\t0\t7\t8\t0\tworker\nI\t1\t");
    let worker = worker.replace("S\t5\t1\t0", "S\t5\t1\t1").replace("records=5", "records=6");
    fs::write(directory.path().join("worker"), worker).unwrap();
    let ended = diff(directory.path(), "--by thread --partial-ok --format tsv base worker");
    assert!(
        ended.stdout.contains("\tworker\t") && ended.stdout.contains("\t[no name]\t"),
        "{ended:?}"
    );
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let directory = TempDir::new().unwrap();
    Run::new(1, &[("parse", 600)]).save(directory.path(), "base");
    Run::new(2, &[("parse", 600)]).save(directory.path(), "new");
    let before = fs::read(directory.path().join("new")).unwrap();
    for line in ["-o new base new", "-o ./new --base base --new base new"] {
        let ended = diff(directory.path(), line);
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""));
        assert!(ended.stderr.contains("new is also an input"), "{}", ended.stderr);
    }
    assert_eq!(fs::read(directory.path().join("new")).unwrap(), before);
}
