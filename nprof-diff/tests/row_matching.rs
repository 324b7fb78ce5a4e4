//! Row matching: names that survive a rebuild, renames, kinds of rows.

mod support;

use std::fs;

use support::{Run, diff};
use tempfile::TempDir;

#[test]
fn renamed_images_are_reported_and_can_be_joined() {
    let directory = TempDir::new().unwrap();
    let functions = [("parse", 600), ("solve", 400)];
    Run::new(1, &functions).save(directory.path(), "base");
    let new = Run::new(2, &functions).text().replace("/opt/demo", "/opt/demo-2");
    fs::write(directory.path().join("new"), new).unwrap();
    let ended = diff(directory.path(), "base new");
    let printed = ended.stdout.replace("\n  ", " ");
    assert!(
        printed.contains(
            "warning: the sides have little in common: 0 % of the samples match by function\n"
        ),
        "{printed}"
    );
    assert!(printed.contains("warning: only on base: demo; only on new: demo-2;"), "{printed}");
    assert!(printed.contains("the line image<TAB>demo<TAB>demo-2\n"), "{printed}");
    fs::write(directory.path().join("names"), "image\tdemo\tdemo-2\nabsent\tx\n").unwrap();
    let ended = diff(directory.path(), "--fail-on any --min-effect 10% --rename names base new");
    assert_eq!(ended.status, 0, "{}", ended.stdout);
    assert!(!ended.stdout.contains("little in common"));
    assert!(ended.stdout.contains("warning: names: line 2: base has no absent\n"));
    // With --by image, the name of a row is the name of an image.
    assert_eq!(diff(directory.path(), "--by image --fail-on any base new").status, 1);
    assert_eq!(
        diff(directory.path(), "--by image --fail-on any --min-effect 10% --rename names base new")
            .status,
        0
    );
}

#[test]
fn renames_are_proposed_but_not_applied() {
    let directory = TempDir::new().unwrap();
    let base = [("parse", 600), ("solve_fast", 200), ("old_write", 150), ("deleted", 50)];
    let new = [("parse", 500), ("solve_quick", 205), ("new_write", 150), ("created", 150)];
    Run::new(1, &base).save(directory.path(), "base");
    Run::new(2, &new).save(directory.path(), "new");
    let json = diff(directory.path(), "--format json base new").stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pairs: Vec<(&str, &str)> = report["rename_candidates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (pair["old"].as_str().unwrap(), pair["new"].as_str().unwrap()))
        .collect();
    // 5 % and 15 % are too different; of two rows with 15 %, the more similar name is proposed.
    assert_eq!(pairs, [("solve_fast", "solve_quick"), ("old_write", "new_write")]);
    assert!(json.contains("\"change\":\"removed\"") && json.contains("\"change\":\"added\""));
    let names = "solve_fast\tsolve_quick\nold_write\tnew_write\n";
    fs::write(directory.path().join("names"), names).unwrap();
    let table = diff(directory.path(), "--rename names base new").stdout;
    assert!(!table.contains("solve_fast") && !table.contains("possible renames"), "{table}");
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
fn paths_and_thread_names_are_rows() {
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
    // The task record counts as a record of the stream.
    let worker = worker.replace("S\t5\t1\t0", "S\t5\t1\t1").replace("records=5", "records=6");
    fs::write(directory.path().join("worker"), worker).unwrap();
    let ended = diff(directory.path(), "--by command --partial-ok --format tsv base worker");
    assert!(
        ended.stdout.contains("\tworker\t") && ended.stdout.contains("\t[unknown]\t"),
        "{ended:?}"
    );
}

#[test]
fn rejects_output_that_is_an_input() {
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
