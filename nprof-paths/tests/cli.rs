//! The output, messages and exit status of nprof-paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use nprof_tests::{ODD_NAME, Report, odd_names, python, waits};

fn report() -> Report {
    Report::new("nprof-paths", env!("CARGO_BIN_EXE_nprof-paths"))
}

fn stdout(args: &[&str]) -> String {
    report().stdout(args, &odd_names())
}

#[test]
fn follows_the_conventions_of_reports() {
    report().check_conventions(&["table", "tsv", "csv", "json", "folded", "flamegraph"]);
}

#[test]
fn names_the_wrong_option() {
    for (args, message) in [
        (
            &["--view", "callers-of"][..],
            "invalid value 'callers-of' for '--view <VIEW>' [possible values: paths, tree",
        ),
        (&["--event", "cycles"], "no event \"cycles\" in the input; it has cpu-clock, faults"),
        (
            &["--focus", "a;("],
            "'a;(' for '--focus <PATH>': not a regular expression: unclosed group",
        ),
        (
            &["--until", "a;..."],
            "'a;...' for '--until <PATH>': must end in a function name, not in \"...\"",
        ),
        (
            &["--view", "graph", "--format", "folded"],
            "--format folded prints whole paths, not --view graph",
        ),
        (
            &["--view", "tree", "--format", "flamegraph"],
            "--format flamegraph prints whole paths, not --view tree",
        ),
    ] {
        let refusal = report().refusal(args, &odd_names());
        assert!(refusal.contains(message), "{args:?}: {refusal}");
    }
}

#[test]
fn folded_stacks_are_complete_if_they_are_long() {
    const CALLS: usize = 1700;
    let mut stream =
        "@nprof\t1.1\trun=0x1\n@event\tid=1\tname=cycles\nI\t1\telf\t-\t/bin/p\n".to_owned();
    for call in 1..=CALLS {
        stream += &format!(
            "F\t{call}\t1\t{call:#x}\tu\nU\t{call}\t{call:0>50}\t-\nY\t{call}\tnamed\t{call},0,0,0\n"
        );
    }
    let calls: Vec<String> = (1..=CALLS).map(|call| call.to_string()).collect();
    stream += &format!("N\t1\t0\t{}\n", calls.join("\t"));
    for node in 1..=CALLS {
        stream += &format!("S\t{node}\t1\t0\t0\t{node}\t9\t1\n");
    }
    stream += &format!("@end\tsamples={CALLS}\trecords={}\tlost=0\n", 3 + 2 * CALLS);
    let output = report().run(&["--format", "folded"], stream.as_bytes());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let length = 51 * CALLS * (CALLS + 1) / 2 + CALLS * "[unknown] 1\n".len();
    assert_eq!(output.stdout.len(), length);
}

#[test]
fn prints_paths_leaf_first() {
    let table = stdout(&["--event", "cpu-clock"]);
    let expected = format!(
        "66.67 % ± 45.90, 2 samples, 2000.00 µs\n    {ODD_NAME}  (prog)\n           2  prog+0x20\n    main\n"
    );
    assert!(table.contains(&expected), "{table}");
}

#[test]
fn prints_trees_from_the_roots_and_from_the_leaves() {
    let table = stdout(&["--view", "tree", "--event", "cpu-clock", "--min-percent", "50"]);
    let expected = format!(
        "total %  self %  function\n 100.00    0.00  main  (prog)\n  66.67   66.67  {ODD_NAME}\n"
    );
    assert!(table.contains(&expected), "{table}");
    assert!(table.contains("1 smaller call omitted"), "{table}");
    let table = stdout(&["--view", "callers", "--event", "cpu-clock"]);
    let expected = format!(
        "share %  function\n  66.67  ├ {ODD_NAME}  (prog)\n  66.67  │ main\n  33.33  └ g  (prog)\n"
    );
    assert!(table.contains(&expected), "{table}");
}

#[test]
fn empty_table_names_the_filters() {
    for view in ["paths", "tree", "callers", "graph"] {
        for (option, value) in [("--focus", "no such"), ("--match", "function=^no such$")] {
            let table = stdout(&["--view", view, option, value]);
            let line = format!("\nnothing is counted ({option} {value})\n");
            assert!(table.ends_with(&line) && !table.contains("100 %"), "{view}: {table}");
        }
    }
}

#[test]
fn prints_callers_above_and_callees_below() {
    let table = stdout(&["--view", "graph", "--event", "cpu-clock", "-n", "2"]);
    let expected = format!(
        "index   total %   via %  self %  paths  function
[1]      100.00            0.00      2  main  (prog)
          66.67   66.67   66.67    1/1      {ODD_NAME} [2]
          33.33   33.33   33.33    1/1      g

         100.00   66.67   66.67    1/2      main [1]
[2]       66.67           66.67      1  {ODD_NAME}  (prog)

1 function not shown, 33.33 % of self (-n 0 prints all)
"
    );
    assert!(table.ends_with(&expected), "{table}");
}

#[test]
fn events_are_divided_by_another_one_on_the_same_path() {
    let run = |args: &[&str]| {
        let per = ["--join", "cpu-clock,runnable,blocked=wall", "--per", "calls"];
        report().stdout(&[&per[..], args].concat(), &waits())
    };
    // 28 ms of handle and its callees in 10 calls, 5 ms of crc in 5.
    let table = run(&[]);
    let handle = "\n2.800 ± 2.964 ms/calls, 28.00 ms / 10 calls\n    handle  (server)\n    main\n";
    assert!(table.contains(handle), "{table}");
    assert!(table.contains("\n1.000 ± "), "{table}");
    let legend = "a path and what is below it is divided by the calls of its leaf (--per calls)";
    assert!(table.contains(legend), "{table}");
    assert!(table.find(handle) < table.find("\n1.000 ± "), "the larger total comes first: {table}");
    let tsv = run(&["--format", "tsv"]);
    assert!(tsv.starts_with("event\tsamples\tweight\tpercent\tmargin\tdepth\tleaf\timage\tpath\ttotal\tper\tratio\tratio_margin\n"));
    // 2 ms of handle itself.
    let handle = "main;handle\t28000000\t10\t2800000\t";
    assert!(tsv.contains("wall\t2\t2000000\t") && tsv.contains(handle), "{tsv}");
    let json: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    assert_eq!(json["per"], "calls");
    assert_eq!(json["paths"][1]["ratio"], 1_000_000.0);
    assert_eq!(json["paths"][1]["per"], 5);

    // No call of main was counted.
    let tree = run(&["--view", "tree"]);
    let lines = "total %  self %  calls  ms/calls     ±  function\n";
    assert!(tree.contains(lines), "{tree}");
    let line = |name: &str| tree.lines().find(|line| line.contains(name)).unwrap().to_owned();
    let cells = |name: &str| line(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells("handle")[..5], ["50.00", "3.57", "10", "2.800", "2.964"], "{tree}");
    assert_eq!(cells(" main ")[..5], ["50.00", "0.00", "0", "-", "-"], "{tree}");
    let tsv = run(&["--view", "tree", "--format", "tsv"]);
    assert!(tsv.lines().any(|line| line.contains("\tcrc\tserver\t5\t1000000\t")), "{tsv}");

    // Another divisor than calls is divided by its total: waiting per second on a CPU.
    let args = ["--per", "cpu-clock", "--event", "blocked", "--view", "tree", "--format", "json"];
    let json: serde_json::Value = serde_json::from_str(&report().stdout(&args, &waits())).unwrap();
    let main = json["nodes"].as_array().unwrap().iter().find(|node| node["function"] == "main");
    assert_eq!(main.unwrap()["ratio"], 3.5);
    for (args, message) in [
        (&["--per", "bytes"][..], "--per: no event \"bytes\" in the input; it has cpu-clock"),
        (&["--per", "calls", "--view", "graph"], "nprof-flat --per, which divides by function"),
        (&["--per", "calls", "--format", "folded"], "no room for the ratios of --per"),
    ] {
        let refusal = report().refusal(args, &waits());
        assert!(refusal.contains(message), "{refusal}");
    }
}

#[test]
fn folded_warns_about_other_events() {
    let output = report().run(&["--format", "folded"], &odd_names());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "a\\x3bb (c) [d] 1;main;=f\\x3b\\n\\x1b, \"<&> 2\na\\x3bb (c) [d] 1;main;g 1\n"
    );
    assert!(String::from_utf8(output.stderr).unwrap().contains("faults"));
    // With --event nothing is left out, so there is no message.
    let faults = stdout(&["--format", "folded", "--event", "faults"]);
    assert_eq!(faults, "a\\x3bb (c) [d] 1;main;g 1\n");
    let reversed = stdout(&["--format", "folded", "--event", "faults", "--view", "callers"]);
    assert_eq!(reversed, "g;main;a\\x3bb (c) [d]\\x201 1\n");
}

#[test]
fn flame_graph_is_xml() {
    let args = ["--format", "flamegraph", "--event", "cpu-clock"];
    let parse = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.stdin.buffer)";
    for (more, text) in [
        (&[][..], "2 samples"),
        (&["--view", "callers"], "callers are above their callees"),
        (&["--match", "function=<&"], "--match function=&lt;&amp;"),
        (&["--focus", "no such<"], "no samples are left by --focus no such&lt;"),
    ] {
        let svg = stdout(&[&args, more].concat());
        assert!(svg.contains("prog\\n&lt;/title&gt;"), "{svg}");
        assert!(svg.contains(text), "{more:?}: {svg}");
        python(parse, svg.as_bytes());
    }
    // A stream without samples is still a picture.
    let empty = b"@nprof\t1.1\trun=0x1\n@end\tsamples=0\trecords=0\tlost=0\n";
    let svg = report().stdout(&["--format", "flamegraph"], empty);
    assert!(svg.contains("no samples: run it for longer") && !svg.contains("ERROR"), "{svg}");
    python(parse, svg.as_bytes());
}

#[test]
fn python_reads_csv() {
    let field = |view: &str, row: usize, column: &str| {
        let csv = stdout(&["--format", "csv", "--view", view, "--event", "cpu-clock"]);
        let program = format!(
            "import csv,sys; print(list(csv.DictReader(sys.stdin))[{row}]['{column}'], end='')"
        );
        python(&program, csv.as_bytes())
    };
    for (view, row, column, value) in [
        ("paths", 0, "leaf", format!("'{ODD_NAME}")),
        ("paths", 0, "path", format!("main;{}", ODD_NAME.replace(';', "\\x3b"))),
        ("tree", 1, "function", format!("'{ODD_NAME}")),
        ("tree", 1, "parent", "1".to_owned()),
        ("callers", 1, "function", "main".to_owned()),
        ("graph", 1, "function", format!("'{ODD_NAME}")),
        ("graph", 1, "kind", "callee".to_owned()),
    ] {
        if let Some(found) = field(view, row, column) {
            assert_eq!(found, value, "{view} {column}");
        }
    }
}

#[test]
fn json_has_paths_nodes_and_functions() {
    let object = |args: &[&str]| -> serde_json::Value {
        let json = stdout(&[&["--format", "json"], args].concat());
        python("import json,sys; json.load(sys.stdin)", json.as_bytes());
        serde_json::from_str(&json).unwrap()
    };
    let paths = object(&["--through", "main"]);
    assert_eq!(paths["paths"][0]["path"], serde_json::json!(["main", ODD_NAME]));
    assert_eq!(paths["paths"][0]["lines"][0]["samples"], 2);
    assert_eq!(paths["filters"], serde_json::json!(["--through main"]));
    assert_eq!(paths["wholes"][0]["samples"], 3);
    let tree = object(&["--view", "tree", "--min-percent", "50"]);
    assert_eq!(tree["hidden_nodes"], 1);
    assert_eq!(tree["nodes"][0]["total_samples"], 3);
    let graph = object(&["--view", "graph"]);
    assert_eq!(graph["functions"][0]["function"], "main");
    assert_eq!(graph["functions"][0]["callees"][0]["function"], ODD_NAME);
    assert_eq!(graph["functions"][0]["cycle"], serde_json::Value::Null);
}

#[test]
fn heading_explains_100_percent() {
    // One of three samples is in g.
    let one = ["--event", "cpu-clock", "--focus", "^g$"];
    let table = stdout(&one);
    assert!(table.contains("counted: 1 of 3 samples, 33.33 % (--focus ^g$)"), "{table}");
    assert!(table.contains("\n33.33 % "), "{table}");
    let table = stdout(&[&one[..], &["--rebase"]].concat());
    assert!(
        table.contains("100 % is the samples of the event that are counted (--rebase)"),
        "{table}"
    );
    assert!(table.contains("\n100.00 % "), "{table}");
}

#[test]
fn path_filters_apply_in_order() {
    let folded =
        |args: &[&str]| stdout(&[&["--format", "folded", "--event", "faults"], args].concat());
    // Cut at main, no path has g; the other order selects first.
    assert_eq!(folded(&["--until", "main", "--through", "^g$"]), "");
    assert_eq!(folded(&["--through", "^g$", "--until", "main"]), "a\\x3bb (c) [d] 1;main 1\n");
    assert_eq!(folded(&["--focus", "main;g"]), "a\\x3bb (c) [d] 1;g 1\n");
}

#[test]
fn merges_files_and_standard_input() {
    let directory = tempfile::TempDir::new().unwrap();
    let one = directory.path().join("one");
    std::fs::write(&one, odd_names()).unwrap();
    let args = ["--format", "folded", "--event", "cpu-clock", one.to_str().unwrap(), "-"];
    assert!(stdout(&args).ends_with(";main;g 2\n"));
}

#[test]
fn joined_events_are_one() {
    let run = |args: &[&str]| {
        let join = ["--join", "cpu-clock,runnable,blocked=wall", "--event", "wall"];
        report().stdout(&[&join[..], args].concat(), &waits())
    };
    // Each sample of the parts represents a millisecond.
    assert_eq!(
        run(&["--format", "folded"]),
        "idle;loop;epoll_wait;ep_poll 28\n\
         worker;main;handle 2\n\
         worker;main;handle;crc 5\n\
         worker;main;handle;lock;futex_do_wait 21\n"
    );
    assert!(run(&["--format", "flamegraph"]).contains("futex_do_wait (21 samples, 37.50%)"));
    let tree = run(&["--view", "tree"]);
    assert!(tree.contains("samples: 56 of wall = cpu-clock + runnable + blocked"), "{tree}");
    let absent = report().refusal(&["--join", "cpu-clock,idle"], &waits());
    assert!(absent.contains("no event \"idle\" in the input"), "{absent}");
}
