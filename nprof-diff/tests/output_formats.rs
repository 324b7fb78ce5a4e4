//! Output formats: folded stacks, flame graphs, JSON; and the report on the noise of one side.

mod support;

use std::collections::BTreeSet;
use std::fs;

use support::{Run, diff};
use tempfile::TempDir;

/// Two runs per side: parse is slower on the new one.
fn directory() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    for i in 0..2 {
        let functions = |parse| [("parse", parse + 10 * i), ("a;b 7", 300), ("#c", 300 - 10 * i)];
        Run::new(1 + i, &functions(400)).save(directory.path(), &format!("base{i}"));
        Run::new(11 + i, &functions(900)).save(directory.path(), &format!("new{i}"));
    }
    directory
}

const BOTH: &str = "--base base0 base1 --new new0 new1";

#[test]
fn folded_stacks_have_two_columns_with_equal_sums() {
    let directory = directory();
    let folded = diff(directory.path(), &format!("--format folded {BOTH}"));
    // 2000 samples and 3000.
    let expected = "main;#c 885 590\nmain;a\\x3bb\\x207 900 600\nmain;parse 1215 1810\n";
    assert_eq!((folded.status, &folded.stdout[..]), (0, expected));
    let svg = diff(directory.path(), &format!("--format flamegraph {BOTH}")).stdout;
    assert!(svg.starts_with("<?xml") && svg.contains("parse (1,810 samples"), "{svg}");
    // Red: grown; blue: shrunk.
    assert!(svg.contains("fill=\"rgb(255,") && svg.contains(",255)\""), "{svg}");
    assert_eq!(svg, diff(directory.path(), &format!("--format flamegraph {BOTH}")).stdout);
    let empty = TempDir::new().unwrap();
    Run::new(1, &[]).save(empty.path(), "a");
    Run::new(2, &[]).save(empty.path(), "b");
    for format in ["folded", "flamegraph"] {
        assert_eq!(diff(empty.path(), &format!("--format {format} a b")).status, 4);
        let ended = diff(directory.path(), &format!("--by file --format {format} {BOTH}"));
        assert_eq!((ended.status, &ended.stdout[..]), (2, ""));
    }
}

#[test]
fn page_of_many_functions_is_below_2_mb() {
    let directory = TempDir::new().unwrap();
    let names: Vec<String> = (0..16_000).map(|number| format!("{:060}::f_{number}", 0)).collect();
    for (id, name) in [(1, "a"), (2, "b")] {
        let samples = (0..).map(|number| 1 + number * id % 1000);
        let functions: Vec<(&str, u64)> = names.iter().map(|name| &name[..]).zip(samples).collect();
        Run::new(id, &functions).save(directory.path(), name);
    }
    let page = diff(directory.path(), "--format html a b").stdout;
    assert!((1_000_000..2_000_000).contains(&page.len()), "{}", page.len());
    // The caller of all functions has a row and a path, too.
    for note in [
        "11001 further functions are not on this page",
        "1001 call paths with smaller shares are not on this page",
        "long names are cut in the middle",
    ] {
        assert!(page.contains(note), "{note}");
    }
}

#[test]
fn page_names_fifty_functions_beyond_all_bounds_together() {
    let directory = directory();
    let bounds: String =
        (1..=100).map(|number| format!("--fail-on self>+0.{number:03}% ")).collect();
    let ended = diff(directory.path(), &format!("{bounds} --format html {BOTH}"));
    assert_eq!(ended.status, 1);
    // One function is beyond each of them.
    assert_eq!(ended.stdout.matches("[\"beyond\",").count(), 51);
    assert!(ended.stdout.contains("[\"beyond\",\"50 more\"]"), "{}", ended.stdout);
}

#[test]
fn folded_stacks_of_unequal_samples_have_weights() {
    let directory = TempDir::new().unwrap();
    // Samples of parse weigh three times as much as those of idle. Both sides have equal shares.
    for (id, name, scale) in [(1, "a", 1), (2, "b", 2)] {
        let mut run = Run::new(id, &[("parse", 100 * scale), ("idle", 100 * scale)]);
        run.weights = vec![3_000_000, 1_000_000];
        run.save(directory.path(), name);
    }
    let folded = diff(directory.path(), "--format folded a b");
    let expected = "main;idle 200000000 200000000\nmain;parse 600000000 600000000\n";
    assert_eq!((folded.status, &folded.stdout[..]), (0, expected));
    let svg = diff(directory.path(), "--format flamegraph a b").stdout;
    assert!(svg.contains("parse (600,000,000 ns, 75.00%"), "{svg}");
    // Runs at two rates have samples of two weights, too; each side alone is at one rate.
    let mut slow = Run::new(3, &[("parse", 100), ("idle", 50)]);
    slow.hertz = 500;
    slow.save(directory.path(), "slow");
    Run::new(4, &[("parse", 100), ("idle", 300)]).save(directory.path(), "fast");
    let folded = diff(directory.path(), "--format folded --base slow --new fast").stdout;
    assert_eq!(folded, "main;idle 133 300\nmain;parse 267 100\n");
    let folded = diff(directory.path(), "--format folded --base slow fast --new a").stdout;
    // Of 0.7 s, 0.4 s are idle; of 0.4 s on the new side, 0.1 s.
    assert_eq!(folded, "main;idle 400000000 175000000\nmain;parse 300000000 525000000\n");
}

/// A name with the markup of Markdown, HTML and XML, and a terminal's escape.
const HOSTILE: &str = "f|`<img src=x>`@user #1 ]]>&amp;\"\\x1b[31m\u{fffe}";

/// Saves two runs per side, in which the function with the hostile name is slower on the new side.
fn hostile_runs() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    for i in 0..3 {
        let functions = |slow| [(HOSTILE, slow + 10 * (i % 2)), ("idle", 500)];
        Run::new(1 + i, &functions(400)).save(directory.path(), &format!("base{i}"));
        Run::new(11 + i, &functions(900)).save(directory.path(), &format!("new{i}"));
    }
    directory
}

const THREE_RUNS: &str = "--base base0 base1 base2 --new new0 new1 new2";

#[test]
fn markdown_has_names_as_code() {
    let directory = hostile_runs();
    let ended =
        diff(directory.path(), &format!("--format markdown --fail-on self>+5% {THREE_RUNS}"));
    assert_eq!(ended.status, 1, "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "**nprof-diff: failed, changed beyond `self>+5%`**");
    let row = lines.iter().find(|line| line.starts_with("| grown | ")).expect("a row");
    // Between two backquotes each, which the name does not have in a row.
    assert!(
        row.contains("| `` f\\|`<img src=x>`@user #1 ]]>&amp;") && row.contains(" `` |"),
        "{row}"
    );
    // Every row of the table has as many cells as its heading.
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    assert_eq!(cells(row), cells("| | function | | base | new | change | interval | q |"), "{row}");
    assert!(!ended.stdout.contains('\u{1b}'), "{ended:?}");
}

#[test]
fn markdown_has_the_share_without_names() {
    let directory = TempDir::new().unwrap();
    for (id, name) in [(1, "base"), (2, "new")] {
        let text = Run::new(id, &[("parse", 500), ("solve", 1500)]).text();
        let text = text.replace("Y\t3\tnamed\t3,0,0,0\n", "Y\t3\tno-symbol\t3,0,0,0\n");
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let comment = diff(directory.path(), "--format markdown base new").stdout;
    let line = "\n- names: base: 75.0 % of self is in code without names: demo\n";
    assert!(comment.contains(line), "{comment}");
}

#[test]
fn junit_has_a_case_for_each_bound() {
    let directory = hostile_runs();
    let junit =
        |words: &str| diff(directory.path(), &format!("--format junit {words} {THREE_RUNS}"));
    let ended = junit("--fail-on self>+5%,self>+60%");
    assert_eq!(ended.status, 1, "{ended:?}");
    for expected in [
        "<testsuites tests=\"2\" failures=\"1\" errors=\"0\">",
        "<testcase classname=\"nprof-diff.cpu-clock\" name=\"self&gt;+5%\">",
        "<failure message=\"beyond self&gt;+5%: f|`&lt;img src=x&gt;`@user #1 ]]&gt;&amp;amp;&quot;",
        "<testcase classname=\"nprof-diff.cpu-clock\" name=\"self&gt;+60%\"/>",
    ] {
        assert!(ended.stdout.contains(expected), "{expected}\n{}", ended.stdout);
    }
    // XML has neither controls nor U+FFFE.
    assert!(!ended.stdout.contains(['\u{1b}', '\u{fffe}']), "{ended:?}");
    // The interval contains the bound.
    let ended = junit("--fail-on self>+20%");
    assert_eq!(ended.status, 4, "{ended:?}");
    assert!(ended.stdout.contains("<skipped message=\"not enough runs to decide: "), "{ended:?}");
    assert!(ended.stdout.contains("failures=\"0\" errors=\"0\" skipped=\"1\""), "{ended:?}");
    let ended = junit("");
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(
        ended.stdout.contains("tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\""),
        "{ended:?}"
    );
}

#[test]
fn failure_names_the_largest_growth_first() {
    let directory = TempDir::new().unwrap();
    for i in 0..3 {
        let functions = |a, m, z| [("a", a + i), ("m", m + i), ("z", z - i), ("keep", 5000)];
        Run::new(1 + i, &functions(3000, 1000, 1000)).save(directory.path(), &format!("base{i}"));
        Run::new(11 + i, &functions(500, 1500, 3000)).save(directory.path(), &format!("new{i}"));
    }
    let compare = |words: &str| diff(directory.path(), &format!("{words} {THREE_RUNS}")).stdout;
    let headline = |bound: &str| {
        let report = compare(&format!("--format junit --fail-on {bound}"));
        let failure = report.lines().find(|line| line.contains("<failure")).unwrap();
        failure.trim_start().to_owned()
    };
    let any = headline("any");
    assert!(
        any.starts_with("<failure message=\"beyond any: z  (demo) and 2 more\">z  (demo)"),
        "{any}"
    );
    let size = headline("self>+1%");
    assert!(
        size.starts_with("<failure message=\"beyond self&gt;+1%: z  (demo): at least +"),
        "{size}"
    );
    let table = compare("--fail-on any");
    let beyond: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("beyond any: ")).collect();
    assert_eq!(beyond, ["z  (demo)", "m  (demo)", "a  (demo)"], "{table}");
}

#[test]
fn table_explains_the_marks_of_its_rows() {
    let directory = TempDir::new().unwrap();
    for (id, name, truncated) in [(1, "none", 0), (2, "some", 600), (3, "same", 600)] {
        let run = Run { truncated, ..Run::new(id, &[("parse", 500), ("solve", 500)]) };
        run.save(directory.path(), name);
    }
    let line = "\n[incomplete:stack-truncated]: the stack is deeper than its copy, as";
    for by in ["function", "path"] {
        let table = diff(directory.path(), &format!("--by {by} none some")).stdout;
        assert!(table.contains("added") && table.contains(line), "{table}");
        let table = diff(directory.path(), &format!("--by {by} same some")).stdout;
        assert!(!table.contains(line), "{table}");
    }
}

#[test]
fn noise_compares_runs_of_one_side() {
    let directory = directory();
    let table = diff(directory.path(), "--noise --base base0 base1 new0 new1");
    assert_eq!((table.status, &table.stderr[..]), (0, ""));
    let summary = "3 comparisons of 2 runs with 2 others, 1 false alarm; noise floor: at most 5 %\n  of the differences exceed it\n";
    assert!(table.stdout.contains(summary), "{}", table.stdout);
    // 405 of 1000 and 905 of 1500: 19.8 points apart when the halves are base and new.
    let json = diff(directory.path(), "--noise --format json --base base0 base1 new0 new1").stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let parse = &report["rows"].as_array().unwrap()[0];
    assert_eq!((&parse["name"], &parse["self_floor"]), (&"parse".into(), &19.833333.into()));
    assert_eq!((&report["splits"], &report["halves"]), (&3.into(), &serde_json::json!([2, 2])));
    let tsv =
        diff(directory.path(), "--noise --format tsv -n 1 --base base0 base1 new0 new1").stdout;
    let columns: Vec<&str> = tsv.lines().next().unwrap().split('\t').collect();
    assert_eq!(columns, parse.as_object().unwrap().keys().collect::<Vec<_>>());
    assert_eq!(tsv.lines().count(), 2);
    // A single run cannot be compared.
    let ended = diff(directory.path(), "--noise --base base0");
    assert_eq!((ended.status, &ended.stdout[..]), (4, ""));
    assert!(
        ended.stderr.contains("--noise needs at least two base runs with samples"),
        "{}",
        ended.stderr
    );
    for line in [
        "--noise --base base0 --new new0",
        "--noise base0 new0",
        "--base base0 base1",
        "--noise",
        "--noise --format junit --base base0 base1",
    ] {
        assert_eq!(diff(directory.path(), line).status, 2, "{line}");
    }
}

/// Returns the words that the manual page marks as members.
fn members_in_manual() -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../man/nprof-diff.1");
    let page = fs::read_to_string(page).expect("there is a page");
    let names =
        page.lines().filter_map(|line| line.strip_prefix(".It Va ").or(line.strip_prefix(".Va ")));
    names.flat_map(|names| names.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn manual_explains_every_column_and_member() {
    let directory = directory();
    let explained = members_in_manual();
    for line in
        [format!("--format json {BOTH}"), "--noise --format json --base base0 base1".to_owned()]
    {
        let report: serde_json::Value =
            serde_json::from_str(&diff(directory.path(), &line).stdout).unwrap();
        let object = report.as_object().unwrap();
        let row = report["rows"][0].as_object().unwrap();
        let of_self = row.keys().filter(|name| !name.starts_with("total_"));
        for name in object.keys().chain(of_self) {
            // The manual explains the columns of --noise in CPU time by their suffix.
            let name = if line.contains("--noise") { name.trim_end_matches("_ns") } else { name };
            assert!(explained.contains(name), "nprof-diff(1) does not explain {name}");
        }
    }
}

#[test]
fn slower_function_displaces_others() {
    let directory = TempDir::new().unwrap();
    let functions =
        |slow| [("slow", slow), ("b", 2000), ("c", 2000), ("d", 1500), ("e", 1500), ("f", 1000)];
    for i in 0..4 {
        let noise = 10 * (i % 3);
        Run::new(1 + i, &functions(2000 + noise)).save(directory.path(), &format!("base{i}"));
        Run::new(11 + i, &functions(6000 - noise)).save(directory.path(), &format!("new{i}"));
    }
    let line = "--base base0 base1 base2 base3 --new new0 new1 new2 new3";
    let ended = diff(directory.path(), &format!("--fail-on any {line}"));
    assert_eq!(ended.status, 1);
    assert!(
        ended.stdout.contains("grown (1)\n  slow  (demo)\n") && !ended.stdout.contains("shrunk"),
        "{}",
        ended.stdout
    );
    assert!(
        ended
            .stdout
            .contains("\n5 of them have other shares only because others take more or less"),
        "{}",
        ended.stdout
    );
    let tsv = diff(directory.path(), &format!("--format tsv {line}")).stdout;
    let displaced = tsv.lines().filter(|line| line.starts_with("displaced\tnone\t")).count();
    assert_eq!(displaced, 5, "{tsv}");
}
