//! Reads the conformance vectors with the library, with nprof-format, and with a second reader that
//! was written from nprof-format(5) alone. All must find the verdict that names the vector's
//! directory, and the same text.
//!
//! The second reader also reads the copies of each vector that the library writes, in both
//! encodings. The test starts it once for all vectors, and nprof-format once for each directory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use nprof_stream::{Encoding, Reader, Writer};
use nprof_tests::{Shell, have, repository};

/// The directories of vectors: one for every verdict, and `refused`.
const VERDICTS: [&str; 4] = ["complete", "truncated", "damaged", "refused"];

/// A stream with its expected verdict and text.
struct Vector {
    name: String,
    verdict: &'static str,
    stream: Vec<u8>,
    /// The canonical text of the records. None if readers must refuse the stream.
    text: Option<Vec<u8>>,
}

/// The verdict and text of a reader.
#[derive(PartialEq)]
struct Found {
    verdict: String,
    text: Vec<u8>,
}

fn directory() -> PathBuf {
    repository().join("tests/conformance")
}

/// Returns the expected text of a vector: the file `.expected` of the same name, else the `.txt`.
fn text_of(path: &Path) -> Vec<u8> {
    fs::read(path.with_extension("expected"))
        .or_else(|_| fs::read(path.with_extension("txt")))
        .unwrap_or_else(|error| panic!("the text of {}: {error}", path.display()))
}

/// Returns the vectors in the directory of a verdict, sorted by name.
fn paths(verdict: &str) -> Vec<PathBuf> {
    let directory = directory().join("vectors").join(verdict);
    let entries = fs::read_dir(&directory).expect("there is a directory for every verdict");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a vector can be listed").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "txt" || kind == "nprof"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no vectors in {}", directory.display());
    paths
}

/// Returns all vectors: the files, and generated ones that are too large for the repository.
fn vectors() -> Vec<Vector> {
    let kept = VERDICTS.into_iter().flat_map(|verdict| {
        paths(verdict).into_iter().map(move |path| Vector {
            name: path.display().to_string(),
            verdict,
            stream: fs::read(&path).expect("a vector can be read"),
            text: (verdict != "refused").then(|| text_of(&path)),
        })
    });
    kept.chain(limits()).collect()
}

/// Generates vectors in text with one record of the largest allowed size, and with a larger one.
fn limits() -> impl Iterator<Item = Vector> {
    // The limits of a body, a string and a line. The word and the TAB of the first record take two bytes.
    let (body, string, line) = ((1 << 20) - 4, 1 << 16, 4 << 20);
    let a = |count| "a".repeat(count);
    let escaped = |count| "\\xff".repeat(count);
    let groups = |count| "\t1,1,1,1".repeat(count);
    let frames = |count| "\t1".repeat(count);
    let pairs = format!("\tx={}", a(string)).repeat(15);
    let left = body - (pairs.len() - 1) - "\ty=".len();
    let cases = [
        (format!("x\t{}", a(body - 2)), format!("x\t{}", a(body - 1))),
        (format!("?112\t{}", "00".repeat(body)), format!("?112\t{}", "00".repeat(body + 1))),
        (format!("@step\ttool={}", escaped(string)), format!("@step\ttool={}", a(string + 1))),
        (format!("D\t1\t{}", escaped(string)), format!("D\t1\t{}", a(string + 1))),
        (format!("D\t1\ta\tx={}", escaped(string)), format!("D\t1\ta\tx={}", a(string + 1))),
        // Lines after one that is no record are read.
        (format!("Y\t1\tnamed{}", groups(4096)), format!("Y\t1\tnamed{}", groups(4097))),
        (format!("N\t1\t0{}", frames(1 << 16)), format!("N\t1\t0{}", frames((1 << 16) + 1))),
        (format!("D\t1\ta{}", &pairs[..left.min(string)]), format!("D\t1\ta{pairs}{pairs}")),
        (format!("# {}", a(line - 2)), format!("x-{}", a(2 * line))),
    ];
    cases.into_iter().enumerate().flat_map(|(number, (good, bad))| {
        let records = u64::from(good.starts_with('N'));
        let good_text = if good.starts_with('#') { String::new() } else { good.clone() + "\n" };
        let stream = |records: u64, line: &str| {
            format!("@nprof\t1.1\trun=0x1\n{line}@end\tsamples=0\trecords={records}\tlost=0\n")
                .into_bytes()
        };
        [("complete", good + "\n", good_text, records), ("damaged", bad + "\n", String::new(), 0)]
            .map(|(verdict, line, text, records)| Vector {
                name: format!("limit {number}, {verdict}"),
                verdict,
                stream: stream(records, &line),
                text: Some(stream(records, &text)),
            })
    })
}

/// Removes the checksums of a text, which are not records.
fn stripped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let record = line.strip_suffix(b"\n").unwrap_or(line);
        let kept = if record.starts_with(b"#crc\t") {
            continue;
        } else if record.starts_with(b"@nprof\t") {
            record.strip_suffix(b"\tcheck=crc32c").unwrap_or(record)
        } else if record.starts_with(b"@end\t") {
            let at = record.windows(7).rposition(|bytes| bytes == b"\tcrc=0x");
            &record[..at.unwrap_or(record.len())]
        } else {
            record
        };
        out.extend_from_slice(kept);
        out.extend_from_slice(&line[record.len()..]);
    }
    out
}

/// Reads a stream with the library; returns it in a encoding.
fn read(stream: &[u8], encoding: Encoding) -> Found {
    let mut reader = Reader::new(stream);
    let mut writer = Writer::new(Vec::new(), encoding);
    let refused = loop {
        match reader.next() {
            Ok(Some(record)) => writer.write(&record).expect("a record can be written to memory"),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    let verdict = if refused { "refused".to_owned() } else { reader.verdict().to_string() };
    Found { verdict, text: writer.finish().expect("memory can be written to") }
}

/// Failures by vector.
#[derive(Default)]
struct Failures(BTreeMap<String, Vec<String>>);

impl Failures {
    /// Checks the result of a reader. `verdict` is None if it may differ from the vector's: a copy of a
    /// damaged stream is not damaged.
    fn check(&mut self, vector: &Vector, reader: &str, found: &Found, verdict: Option<&str>) {
        let mut failures = String::new();
        if verdict.is_some_and(|verdict| !found.verdict.starts_with(verdict)) {
            let _ = write!(failures, "{reader}: {}", found.verdict);
        }
        if vector.text.as_ref().is_some_and(|text| stripped(text) != stripped(&found.text)) {
            let text = String::from_utf8_lossy(&found.text);
            let shown: String = text.chars().take(2000).collect();
            let _ = write!(failures, "{reader}: unexpected text:\n{shown}");
        }
        if !failures.is_empty() {
            self.0.entry(vector.name.clone()).or_default().push(failures);
        }
    }

    /// # Panics
    ///
    /// If there are any.
    #[track_caller]
    fn report(self) {
        for (name, failures) in &self.0 {
            for failure in failures {
                eprintln!("{name}: {failure}");
            }
        }
        assert!(self.0.is_empty(), "{} vectors failed", self.0.len());
    }
}

#[test]
fn library_reads_every_vector() {
    let mut failures = Failures::default();
    for vector in &vectors() {
        let text = read(&vector.stream, Encoding::Text);
        failures.check(vector, "text", &text, Some(vector.verdict));
        if vector.text.is_none() {
            continue;
        }
        // A copy of a complete stream is complete, with new checksums.
        let verdict = (vector.verdict == "complete").then_some("complete");
        let again = read(&text.text, Encoding::Text);
        failures.check(vector, "text of the text", &again, verdict);
        let binary = read(&vector.stream, Encoding::Binary);
        let again = read(&binary.text, Encoding::Text);
        failures.check(vector, "text of the binary", &again, verdict);
    }
    failures.report();
}

#[test]
fn tool_agrees_with_library_on_every_vector() {
    let shell = Shell::new();
    let run = |command: &str, paths: &[PathBuf]| {
        let mut tool = shell.command("nprof-format");
        tool.arg(command).args(paths).output().expect("the tool can be started")
    };
    for (verdict, status) in [("complete", 0), ("truncated", 3), ("damaged", 3)] {
        let paths = paths(verdict);
        let check = run("check", &paths);
        let said = String::from_utf8_lossy(&check.stdout);
        for path in &paths {
            let line = format!("{}: {verdict}: ", path.display());
            assert!(said.contains(&line), "{line}");
        }
        let text = run("text", &paths);
        assert_eq!(text.status.code(), Some(status), "{text:#?}");
        let expected: Vec<u8> = paths.iter().flat_map(|path| stripped(&text_of(path))).collect();
        assert!(stripped(&text.stdout) == expected, "the texts of {verdict}");
    }
    for path in paths("refused") {
        assert_eq!(
            run("check", std::slice::from_ref(&path)).status.code(),
            Some(2),
            "{}",
            path.display()
        );
    }
}

#[test]
fn second_reader_agrees_on_every_vector_and_its_copies() {
    if !have(&["python3"]) {
        return;
    }
    let shell = Shell::new();
    let vectors = vectors();
    // The vectors, and their copies by the library in both encodings.
    let mut requests: Vec<(&Vector, &str, Option<&str>)> = Vec::new();
    let mut files = Vec::new();
    for vector in &vectors {
        let mut ask = |who, verdict, stream: &[u8]| {
            requests.push((vector, who, verdict));
            files.push(shell.write(&format!("{}.stream", requests.len()), stream));
        };
        ask("reader.py", Some(vector.verdict), &vector.stream);
        if vector.text.is_some() {
            let verdict = (vector.verdict == "complete").then_some("complete");
            ask("reader.py on the text", verdict, &read(&vector.stream, Encoding::Text).text);
            ask("reader.py on the binary", verdict, &read(&vector.stream, Encoding::Binary).text);
        }
    }
    let found = second_reader(&shell, &files);
    assert_eq!(found.len(), requests.len(), "the second reader stopped");
    let mut failures = Failures::default();
    for ((vector, who, verdict), found) in requests.into_iter().zip(&found) {
        failures.check(vector, who, found, verdict);
    }
    failures.report();
}

/// Reads files with the second reader; returns its results in the same order.
fn second_reader(shell: &Shell, files: &[PathBuf]) -> Vec<Found> {
    let mut python = shell.command("python3");
    // -I and -S: no environment, no site packages. -B: no compiled files in the repository.
    python.arg("-ISB").arg(directory().join("reader.py")).args(files);
    let output = python.output().expect("python3 can be started");
    let mut found = Vec::new();
    let mut text = Vec::new();
    // No record begins with `# `, as the comment with the verdict after each text does.
    for line in output.stdout.split_inclusive(|&byte| byte == b'\n') {
        match line.strip_prefix(b"# ") {
            None => text.extend_from_slice(line),
            Some(verdict) => found.push(Found {
                verdict: String::from_utf8_lossy(verdict).trim_end().to_owned(),
                text: std::mem::take(&mut text),
            }),
        }
    }
    found
}
