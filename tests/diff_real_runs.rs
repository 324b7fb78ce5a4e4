//! What nprof-diff makes of real recordings: of a program and itself, of one function that got
//! slower, of other rates and lengths.
//!
//! Comparisons are right with the probability they say, and not always: what may fail by chance is
//! tried again. The long forms are for `make calibrate`.

use nprof_tests::{Shell, compile, compile_demo, have, repository, rows, words};

/// A shell with ten.cpp as base/ten and, its fifth function a tenth slower, as new/ten.
fn shell() -> Shell {
    shell_with_slower("5")
}

fn shell_with_slower(number: &str) -> Shell {
    let shell = Shell::new();
    let source = repository().join("tests/ten.cpp");
    let slower = format!("-DSLOWER={number}");
    for (directory, flags) in [("base", &[][..]), ("new", &[&*slower][..])] {
        std::fs::create_dir(shell.path(directory)).expect("a directory can be made");
        compile(&[&source], flags, &shell.path(&format!("{directory}/ten")));
    }
    shell
}

/// Records `base` and `new` in turn, so many times, as base-N.nprof and new-N.nprof.
fn record(shell: &Shell, runs: usize, base: &str, new: &str) {
    let script = format!(
        "set -e -o pipefail
         rm -f base-*.nprof new-*.nprof
         for i in $(seq {runs}); do
             nprof-record -q -o - {base} 2>&1 >base-$i.raw </dev/null
             nprof-record -q -o - {new} 2>&1 >new-$i.raw </dev/null
             nprof-symbolize base-$i.raw >base-$i.nprof
             nprof-symbolize new-$i.raw >new-$i.nprof
         done"
    );
    let done = shell.run(&script);
    assert_eq!(done.status, 0, "{done:?}");
}

const COMPARE: &str = "nprof-diff --base base-*.nprof --new new-*.nprof";

/// Whether it comes out right, of so many attempts; what was wrong is printed.
fn attempts(attempts: usize, attempt: impl Fn() -> Result<(), String>) {
    let mut wrong = Vec::new();
    for _ in 0..attempts {
        match attempt() {
            Ok(()) => return,
            Err(why) => wrong.push(why),
        }
    }
    panic!("{}", wrong.join("\n"));
}

/// How much of the time a function takes more, in points, that takes so many of 10,000 steps on
/// the base and a tenth more on the new side.
fn truth(steps: f64) -> f64 {
    100.0 * (1.1 * steps / (10_000.0 + 0.1 * steps) - steps / 10_000.0)
}

/// What is called a change, and whether the interval of a function covers the truth.
fn changes(shell: &Shell, function: &str, truth: f64) -> (Vec<String>, bool) {
    let report = shell.run(&format!("{COMPARE} --format tsv"));
    assert_eq!(report.status, 0, "{report:?}");
    let rows = rows(&report.out);
    let is_change = |verdict: &str| !["same", "displaced"].contains(&verdict);
    let changed = rows.iter().filter(|row| is_change(row.text("verdict")));
    let changed = changed.map(|row| format!("{} {}", row.text("verdict"), row.text("name")));
    let row = rows.iter().find(|row| row.text("name").starts_with(function));
    let covers =
        row.is_some_and(|row| row.number("self_low") < truth && truth < row.number("self_high"));
    (changed.collect(), covers)
}

#[test]
fn one_slower_function_of_ten_is_found_and_nothing_else_is_blamed() {
    let shell = shell();
    attempts(6, || {
        let calls = 500_000;
        let run = |side: &str| format!("-F 7919 -- {side}/ten {calls}");
        record(&shell, 5, &run("base"), &run("new"));
        let failed = shell.run(&format!("{COMPARE} --fail-on 'self>+0.5%'"));
        let (changed, covers) = changes(&shell, "five(", truth(3000.0));
        let found = changed == ["grown five(unsigned long)"];
        match failed.status == 1 && found && covers {
            true => Ok(()),
            false => Err(format!("{changed:?}, covers {covers}, {}", failed.out)),
        }
    });
}

/// A function that takes 7 % of a program of phases, at 1999 Hz. By chance nine of ten times
/// nothing else is called a change, and nineteen of twenty intervals cover the truth.
#[test]
#[ignore = "takes minutes; make calibrate runs it"]
fn a_small_function_a_tenth_slower_is_found_with_five_runs_a_side() {
    let shell = shell_with_slower("9");
    let (mut found, mut covered, mut blamed) = (0, 0, 0);
    for _ in 0..5 {
        let run = |side: &str| format!("-F 1999 -- {side}/ten 1200000 1000");
        record(&shell, 5, &run("base"), &run("new"));
        let (changed, covers) = changes(&shell, "nine(", truth(700.0));
        let is_found = changed.contains(&"grown nine(unsigned long)".to_owned());
        found += usize::from(is_found);
        covered += usize::from(covers);
        blamed += usize::from(changed.len() > usize::from(is_found));
        println!("{changed:?}, interval covers the truth: {covers}");
    }
    println!("of 5: found {found}, interval covers the truth {covered}, others blamed {blamed}");
    assert!(found >= 4 && covered >= 3 && blamed <= 2);
}

#[test]
fn a_program_does_not_differ_from_itself() {
    let shell = shell();
    compare_with_itself(&shell, 3, 2, &["-F 4999 -- base/ten 150000"]);
    let null = shell.run("nprof-diff --null --format json --base base-*.nprof new-*.nprof");
    assert_eq!(null.status, 0, "{null:?}");
    assert!(null.out.contains("\"splits\":10,") && null.out.contains("\"self_floor\""));
}

/// Compares programs with themselves, three runs a side, and bears with no more alarms than these.
fn compare_with_itself(shell: &Shell, comparisons: usize, most: usize, commands: &[&str]) {
    let mut alarms = Vec::new();
    for comparison in 0..comparisons {
        let command = commands[comparison % commands.len()];
        record(shell, 3, command, command);
        let report = shell.run(&format!("{COMPARE} --fail-on any"));
        assert!([0, 1].contains(&report.status), "{report:?}");
        println!("{command}: {}", if report.status == 0 { "same" } else { "changed" });
        if report.status == 1 {
            alarms.push(report.out);
        }
    }
    println!("{} false alarms in {comparisons} comparisons", alarms.len());
    assert!(alarms.len() <= most, "{}", alarms.join("\n"));
}

/// Of 25 comparisons at a level of 5 %, 1.25 may differ; with the probability of 97 % no more than
/// three do.
#[test]
#[ignore = "takes minutes; make calibrate runs it"]
fn twenty_five_programs_do_not_differ_from_themselves() {
    let shell = shell();
    compile_demo(shell.directory());
    shell.write("big", words(4_000_000));
    let mut commands =
        vec!["-F 4999 -- base/ten 300000", "-- ./demo 10000", "-F 499 -- ./demo 20000"];
    if have(&["bzip2"]) {
        commands.push("-- bzip2 -kc big");
    }
    compare_with_itself(&shell, 25, 3, &commands);
}

fn other_rates_and_lengths(base: usize, new: usize) {
    let shell = shell();
    attempts(5, || {
        let run = |hertz: usize, calls: usize| format!("-F {hertz} -- base/ten {calls}");
        record(&shell, 3, &run(997, base), &run(499, new));
        let several = shell.run(&format!("{COMPARE} --fail-on any"));
        let single = shell.run("nprof-diff --fail-on any base-1.nprof new-1.nprof");
        match (several.status, single.status) {
            (0, 0) => Ok(()),
            statuses => Err(format!("{statuses:?}\n{}{}", several.out, single.out)),
        }
    });
}

#[test]
fn rate_and_length_are_no_difference() {
    other_rates_and_lengths(200_000, 600_000);
}

/// 2 s at 997 Hz and 6 s at 499 Hz.
#[test]
#[ignore = "takes a minute; make calibrate runs it"]
fn two_seconds_and_six_are_no_difference() {
    other_rates_and_lengths(1_200_000, 3_600_000);
}

#[test]
fn a_recording_that_was_cut_is_trouble_on_either_side() {
    let shell = shell();
    record(&shell, 2, "-- base/ten 50000", "-- base/ten 50000");
    let size = shell.read("new-1.nprof").len();
    for keep in [size - 1, size / 2, 100, 0] {
        let script = format!(
            "head -c {keep} new-1.nprof > cut
             for sides in '--base base-1.nprof cut --new new-2.nprof' '--base base-1.nprof --new cut' 'cut base-1.nprof'; do
                 nprof-diff --fail-on any $sides >out; echo $? $(wc -c <out)
             done"
        );
        let ended = shell.run(&script);
        assert_eq!(ended.out, "2 0\n2 0\n2 0\n", "{keep}: {ended:?}");
    }
}

/// A literal display of nprof(7), after a comment with its name.
fn recipe(name: &str) -> String {
    let path = repository().join("man/nprof.7");
    let page = std::fs::read_to_string(path).expect("there is a page");
    let (_, after) = page.split_once(&format!(".\\\" recipe {name}\n")).expect("the recipe");
    let lines = after.lines().skip(1).take_while(|line| *line != ".Ed");
    lines
        .map(|line| line.replace("\\e", "\\").replace("\\-", "-").replace("\\&", "") + "\n")
        .collect()
}

#[test]
fn the_recipe_of_the_manual_fails_on_a_regression() {
    if !have(&["make", "git"]) {
        return;
    }
    let shell = Shell::new();
    shell.write("compare.mk", recipe("compare.mk"));
    shell.write("ci-step", recipe("ci-step"));
    let program = "prog: ten.cpp\n\tg++ -O2 -g -o $@ $<\ninclude compare.mk\n";
    shell.write("Makefile", program);
    shell.write("ten.cpp", std::fs::read(repository().join("tests/ten.cpp")).expect("a source"));
    let done = shell.run(
        "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
         git init -q -b main . && git add . && git commit -qm base
         git update-ref refs/remotes/origin/main HEAD
         sed -i 's/5, 3000/5, 9000/' ten.cpp && git commit -qam slower",
    );
    assert_eq!(done.status, 0, "{done:?}");
    let slower = shell.run("bash ci-step");
    assert_eq!(slower.status, 1, "{slower:?}");
    assert!(slower.out.contains("five(unsigned long)"), "{slower:?}");
    // Against itself it passes: with a bound that five short runs can decide on.
    let same =
        shell.run("git update-ref refs/remotes/origin/main HEAD; BOUND='self>+25%' bash ci-step");
    assert_eq!(same.status, 0, "{same:?}");
    assert!(!same.out.contains("not enough runs to decide"), "{same:?}");
}
