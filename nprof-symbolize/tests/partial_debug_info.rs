//! Debug information of which parts are missing or spread: the rest still gives names and lines.

#![allow(clippy::unwrap_used)] // a fixture that cannot be created is a failed test

mod fixture;

use fixture::{AREA, Binary, Places, area, is_complete, names, run_in, sources, stream, symbolize};
use nprof_stream::{Encoding, Reader, Record, Status};

/// gcc gives each type unit a `.debug_info.dwo` section, before the one with the code.
#[test]
fn names_code_of_dwo_files_that_begin_with_type_units() {
    let directory = sources();
    let at = directory.path();
    let flags = "-O2 -gdwarf-5 -gsplit-dwarf -fdebug-types-section -dumpdir @/";
    run_in(at, &format!("g++ {flags} -o @/prog @/a.cc"));
    let binary = Binary::read(&at.join("prog"));
    let address = binary.symbol(AREA) + 4;
    let found = area(&[], &binary, address);
    assert!(is_complete(&found), "{found:?}");
    let inlined = names(&[], Places::of(&binary, &binary.addresses(1)));
    assert!(inlined.iter().filter(|(_, calls)| calls.len() > 1).count() > 10);
}

#[test]
fn lines_stay_when_the_shared_file_is_missing() {
    for version in [4, 5] {
        let directory = sources();
        let at = directory.path();
        run_in(at, &format!("g++ -O2 -gdwarf-{version} -o @/prog @/a.cc"));
        run_in(at, "cp @/prog @/more");
        let binary = Binary::read(&at.join("prog"));
        let before = names(&[], Places::of(&binary, &binary.addresses(1)));
        run_in(at, "dwz -m @/shared -M @/shared @/prog @/more");
        std::fs::remove_file(at.join("shared")).unwrap();
        let input = stream(&[Places::of(&binary, &binary.addresses(1))], Encoding::Binary);
        let output = symbolize(&[], &input);
        let [naming] = &fixture::namings(&output.stdout)[..] else { panic!("one image") };
        let reason = String::from_utf8_lossy(&naming.reason);
        assert!(reason.contains("which was not found"), "{reason}");
        let after = fixture::locations(&output.stdout);
        assert_eq!(before.len(), after.len());
        let mut lines = 0;
        for ((status, before), (_, after)) in before.iter().zip(&after) {
            if *status == Status::Named {
                let positions = |calls: &[fixture::Named]| -> Vec<_> {
                    calls.iter().map(|call| (call.line, call.file.clone())).collect()
                };
                let (before, after) = (positions(before), positions(after));
                // A part inlined into its own function is one call with it only if both have names.
                assert!(before.len() <= after.len());
                if before.len() < after.len() {
                    assert_eq!(before.last().map(|call| call.0), after.last().map(|call| call.0));
                    continue;
                }
                let lost = before.iter().zip(&after).filter(|(one, other)| one.0 != other.0);
                assert_eq!(lost.count(), 0, "{before:?} {after:?}");
                lines += after.iter().filter(|(line, file)| *line > 0 && !file.is_empty()).count();
            }
        }
        assert!(lines > 100, "DWARF {version}: {lines} lines");
    }
}

#[test]
fn names_of_line_tables_only_have_no_parentheses() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g1 -o @/prog @/a.cc");
    let binary = Binary::read(&at.join("prog"));
    let found = names(&[], Places::of(&binary, &binary.addresses(1)));
    let names: std::collections::BTreeSet<&str> =
        found.iter().flat_map(|(_, calls)| calls).map(|call| &*call.name).collect();
    // Inlined, so that neither the symbol table nor -g1 has the parameters.
    assert!(names.contains("scaled"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("scaled(")), "{names:?}");
}

#[test]
fn functions_have_the_lines_at_which_they_begin() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // Two functions of one name, and one that is inlined.
    let source = |lines: usize, name: &str| {
        format!(
            "{}static inline int twice(int n) {{\n return n * n;\n}}\n\
             __attribute__((noinline)) static int same(int n) {{\n return twice(n) + 1;\n}}\n\
             int {name}(int n) {{ return same(n) + same(n + 1); }}\n",
            "\n".repeat(lines)
        )
    };
    std::fs::write(at.join("a.c"), source(0, "a")).unwrap();
    std::fs::write(at.join("b.c"), source(10, "b")).unwrap();
    run_in(at, "gcc -O2 -g -shared -fPIC -o @/l.so @/a.c @/b.c");
    let binary = Binary::read(&at.join("l.so"));
    let functions = |args: &[&str], input: &[u8]| {
        let output = symbolize(args, input);
        assert!(output.status.success(), "{output:?}");
        let mut functions = Vec::new();
        let mut reader = Reader::new(&*output.stdout);
        while let Some(record) = reader.next().unwrap() {
            if let Record::Function(function) = record {
                let name = String::from_utf8_lossy(function.name).into_owned();
                functions.push((name, function.start_line()));
            }
        }
        functions.sort();
        functions.retain(|(name, _)| ["a", "b", "same", "twice"].contains(&name.as_str()));
        (functions, output.stdout)
    };
    let input = stream(&[Places::of(&binary, &binary.addresses(1))], Encoding::Binary);
    let (named, output) = functions(&[], &input);
    let expected = [("a", 7), ("b", 17), ("same", 4), ("same", 14), ("twice", 1), ("twice", 11)];
    let expected = expected.map(|(name, line)| (name.to_owned(), line));
    assert_eq!(named, expected);
    // They stay if the stream is symbolized again.
    assert_eq!(functions(&[], &output).0, expected);
    let without = functions(&["--no-lines"], &input).0;
    assert!(without.iter().all(|(_, line)| *line == 0), "{without:?}");
}
