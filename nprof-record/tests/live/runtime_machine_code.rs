//! The machine code of functions generated at run time, which `--code` records.

use std::collections::BTreeMap;
use std::fs;

use nprof_stream::{Reader, Record};

use crate::runtime_code::{DUMP_WRITER, JITDUMP, MAKER, PERF_MAP};
use crate::support::{Directory, can_record, record, stderr};

/// The code that the programs run.
const LOOP: [u8; 11] = [0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3];

/// Returns the code in a recording of a program with these options of the recorder, by the names of
/// functions. None without rights or tools. `directory` is a name that no other test has.
fn recorded_code(
    directory: &str,
    source: &str,
    late: &str,
    options: &[&str],
) -> Option<BTreeMap<String, Vec<u8>>> {
    let directory = Directory::new(directory);
    let source = format!("{MAKER}{source}");
    let program = directory.compile("gcc", &source, &["-O1", "-w", late])?;
    if !can_record() {
        return None;
    }
    let file = directory.path("out.nprof");
    let words = ["-o", &file, "--", &program, &directory.path("")];
    let output = record(&[options, &words].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = fs::read(&file).expect("a stream");
    let (mut names, mut codes) = (BTreeMap::new(), BTreeMap::new());
    let mut reader = Reader::new(&bytes[..]);
    while let Some(record) = reader.next().expect("a stream") {
        match record {
            Record::Function(function) => {
                let name = String::from_utf8_lossy(function.name).into_owned();
                names.insert(function.id, name);
            }
            Record::Code(code) => {
                let row = code.rows.iter().next().expect("a row for the function");
                codes.insert(names[&row.line.function].clone(), code.bytes.to_vec());
            }
            _ => {}
        }
    }
    Some(codes)
}

#[test]
fn code_of_sampled_functions_is_that_of_the_jitdump() {
    let source = format!("{DUMP_WRITER}{JITDUMP}");
    // A late one is written when the program ends, with its memory.
    for late in ["-DLATE=0", "-DLATE=1"] {
        let Some(codes) = recorded_code("dump-code", &source, late, &["--code"]) else { return };
        for name in ["first", "second"] {
            assert!(codes.get(name).is_some_and(|code| *code == LOOP), "{late}: {name}: {codes:?}");
        }
    }
}

#[test]
fn code_is_that_in_memory_without_jitdump() {
    // The process may have ended before the code is read.
    for _ in 0..3 {
        let Some(codes) = recorded_code("map-code", PERF_MAP, "-DLATE=0", &["--code"]) else {
            return;
        };
        assert!(codes.values().all(|code| code.starts_with(&LOOP)), "{codes:?}");
        if codes.contains_key("second") {
            return;
        }
    }
    panic!("no code in three recordings");
}

#[test]
fn code_is_not_recorded_without_option() {
    let source = format!("{DUMP_WRITER}{JITDUMP}");
    let Some(codes) = recorded_code("no-code", &source, "-DLATE=0", &[]) else { return };
    assert!(codes.is_empty(), "{codes:?}");
}
