//! The tools on programs that are installed on most machines, as a first-time user would try them.

use nprof_tests::{Shell, have, repository, rows, skipped, words};

/// A command to profile and the expected content of its profile.
struct Trial {
    /// The programs that must be installed.
    needs: &'static [&'static str],
    command: String,
    /// A prefix that at least one function name must have.
    functions: Option<&'static str>,
    /// A part of the path of one of the images.
    image: &'static str,
    /// The least number of processes.
    processes: usize,
}

fn trials(shell: &Shell) -> Vec<Trial> {
    shell.write("big", words(4_000_000));
    shell.write(
        "query.sql",
        "with recursive n(i, x) as (select 1, 7 union all select i + 1,
        (x * 31 + i) % 65537 from n where i < 400000) select x % 100, count(*) from n group by 1;",
    );
    let python =
        "d = {}\nfor i in range(1500000):\n    k = i * i % 1009\n    d[k] = d.get(k, 0) + 1";
    shell.write("count.py", python);
    let demo = repository().join("demo");
    vec![
        Trial {
            needs: &["bzip2"],
            command: "bzip2 -kc big".to_owned(),
            functions: Some("BZ2_"),
            image: "libbz2.so",
            processes: 1,
        },
        Trial {
            needs: &["xz"],
            command: "xz -2 -kc big".to_owned(),
            functions: Some("lzma_"),
            image: "liblzma.so",
            processes: 1,
        },
        Trial {
            needs: &["python3"],
            command: "python3 count.py".to_owned(),
            functions: Some("_PyEval_EvalFrame"),
            image: "python3",
            processes: 1,
        },
        Trial {
            needs: &["g++"],
            command: format!("g++ -O2 -std=c++17 -c -o a.o {}/query.cpp", demo.display()),
            functions: None,
            image: "cc1plus",
            processes: 3,
        },
        Trial {
            needs: &["sqlite3"],
            command: "sqlite3 db '.read query.sql'".to_owned(),
            functions: Some("sqlite3"),
            image: "sqlite3",
            processes: 1,
        },
        Trial {
            needs: &["perl"],
            command: format!("perl {}/words.pl big", demo.display()),
            functions: Some("Perl_"),
            image: "perl",
            processes: 1,
        },
    ]
}

#[test]
fn profiles_installed_programs_with_names_and_complete_stacks() {
    let shell = Shell::new();
    for trial in trials(&shell) {
        if have(trial.needs) {
            check(&shell, &trial);
        }
    }
}

fn check(shell: &Shell, trial: &Trial) {
    let command = &trial.command;
    shell.run(&format!("nprof-record -q -o raw.nprof -- {command} > out")).quiet();
    shell.run("nprof-symbolize raw.nprof > x.nprof").quiet();
    let functions = rows(&shell.run("nprof-flat --format tsv x.nprof").quiet());
    let samples: f64 = functions.iter().map(|row| row.number("self_samples")).sum();
    // At 997 Hz a tenth of a second: each command takes several times longer.
    assert!(samples >= 100.0, "{command}: {samples} samples");

    let share: f64 = functions.iter().map(|row| row.number("self_percent")).sum();
    assert!((share - 100.0).abs() < 1e-6, "{command}: shares sum to {share}");
    for row in &functions {
        let (own, total) = (row.number("self_percent"), row.number("total_percent"));
        assert!(own <= total && total <= 100.0 + 1e-9, "{command}: {row:?}");
    }
    if let Some(prefix) = trial.functions {
        let named = functions.iter().any(|row| row.text("function").starts_with(prefix));
        assert!(named, "{command}: no {prefix}* in {functions:#?}");
    }
    assert!(
        functions.iter().any(|row| row.text("image").contains(trial.image)),
        "{command}: no {} in {functions:#?}",
        trial.image
    );
    // Compiler drivers fork: their children must be in the profile.
    let processes = rows(&shell.run("nprof-flat --by process --format tsv x.nprof").quiet());
    assert!(processes.len() >= trial.processes, "{command}: {processes:#?}");

    let stat = shell.run("nprof-format stat x.nprof").quiet();
    let number = |name: &str| -> f64 {
        let line = stat.lines().find(|line| line.split_whitespace().next() == Some(name));
        let field = line.and_then(|line| line.split_whitespace().nth(1));
        field.and_then(|field| field.parse().ok()).unwrap_or_else(|| panic!("{name}: {stat}"))
    };
    assert_eq!(number("samples"), samples, "{command}");
    assert_eq!(number("lost"), 0.0, "{command}: {stat}");
    assert!(number("complete_percent") >= 95.0, "{command}: {stat}");
}

#[test]
fn real_recording_obeys_stream_laws() {
    let shell = Shell::new();
    let script = repository().join("demo/words.pl");
    shell.write("big", words(1_000_000));
    shell
        .run(&format!("nprof-record -q -o raw.nprof -- perl {} big > out", script.display()))
        .quiet();
    for law in [
        // Round trip: the same text from both encodings.
        "nprof-format text raw.nprof > a; nprof-format binary a | nprof-format text | cmp - a",
        "nprof-symbolize raw.nprof > x; nprof-format text x > a
         nprof-format binary a | nprof-format text | cmp - a",
        // Strip: without annotations, a symbolized stream equals the recorded one.
        "nprof-format text --strip raw.nprof > a
         nprof-symbolize raw.nprof | nprof-format text --strip | cmp - a",
        // Cat: a concatenation reads as one stream after the other.
        "nprof-format text x > x.txt; nprof-flat --format tsv x x.txt > a
         cat x x.txt | nprof-flat --format tsv | cmp - a",
        // Reports are the same from both encodings.
        "nprof-flat --format tsv x > a; nprof-flat --format tsv x.txt | cmp - a",
    ] {
        let run = shell.run(&format!("set -o pipefail\n{law}"));
        assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (0, "", ""), "{law}");
    }
}

#[test]
fn every_prefix_of_real_recording_reads_as_truncated() {
    let shell = Shell::new();
    shell.run("nprof-record -q -o x.nprof -- perl -e '$x += $_ ** 0.5 for 1 .. 1e6'").quiet();
    let whole = shell.read("x.nprof");
    let mut samples = 0.0;
    for part in 1..=20 {
        let cut = whole.len() * part / 21;
        shell.write("cut.nprof", &whole[..cut]);
        let run = shell.run("nprof-flat --by event --format tsv cut.nprof 2>/dev/null");
        assert_eq!(run.status, 3, "{cut} of {} bytes: {run:?}", whole.len());
        let now: f64 = rows(&run.out).iter().map(|row| row.number("self_samples")).sum();
        assert!(now >= samples, "{cut} bytes: {now} after {samples}");
        samples = now;
    }
    assert!(samples > 0.0);
}

#[test]
fn folded_leaves_equal_flat_self_samples() {
    if !have(&["g++"]) {
        return skipped("no g++ to compile the demo program");
    }
    let shell = Shell::new();
    nprof_tests::compile_demo(shell.directory());
    shell.run("nprof-record -q -o raw.nprof -- ./demo 20000 > out").quiet();
    shell.run("nprof-symbolize raw.nprof > x.nprof").quiet();
    let folded = shell.run("nprof-paths --format folded x.nprof").quiet();
    let mut leaves = std::collections::BTreeMap::<&str, f64>::new();
    for line in folded.lines() {
        let (path, count) = line.rsplit_once(' ').expect("a path and a number");
        let leaf = path.rsplit(';').next().unwrap_or(path);
        *leaves.entry(leaf).or_default() += count.parse::<f64>().expect("a number");
    }
    let mut flat = std::collections::BTreeMap::<String, f64>::new();
    for row in rows(&shell.run("nprof-flat --format tsv x.nprof").quiet()) {
        let samples = row.number("self_samples");
        if samples > 0.0 {
            *flat.entry(row.text("function").replace(';', "\\x3b")).or_default() += samples;
        }
    }
    let leaves: std::collections::BTreeMap<String, f64> =
        leaves.into_iter().map(|(leaf, count)| (leaf.to_owned(), count)).collect();
    assert_eq!(leaves, flat);
}
