//! Code that was generated at run time: an image of its own for each function.

use nprof_tests::{Shell, rows};

/// Two generated functions with samples, of which one has code, and generated code of the kernel.
const STREAM: &str = "\
@nprof | 1.1 | run=0x1 | time=0 | command=node
@event | id=1 | name=cpu-clock | unit=ns | measure=cpu-time | frequency=997
T | 1 | 0 | 1 | 1 | 0 | node
I | 1 | jit | - | js:*add | base=0x7f0000001000
I | 2 | jit | - | js:*sort | base=0x7f0000002000
I | 3 | jit | - | bpf_prog | base=0xffffffffc0000000
F | 1 | 1 | 0x5 | u
F | 2 | 2 | 0x5 | u
F | 3 | 3 | 0x5 | k
U | 1 | js:*add | -
U | 2 | js:*sort | -
U | 3 | bpf_prog | -
Y | 1 | named | 1,0,0,0
Y | 2 | named | 2,0,0,0
Y | 3 | named | 3,0,0,0
C | 1 | 0x0 | x86_64 | 554889e548ffcf75fb5dc3 | 0,1,0,0,0 | -
N | 1 | 0 | 1
N | 2 | 0 | 2
N | 3 | 0 | 3
S | 1 | 1 | 1 | 0 | 1 | 30 | 30
S | 2 | 1 | 1 | 0 | 2 | 20 | 20
S | 3 | 1 | 1 | 0 | 3 | 10 | 10
@end | time=2000000000 | samples=3 | records=14 | lost=0
";

#[test]
fn generated_function_has_its_instructions() {
    let shell = Shell::new();
    shell.write("jit", STREAM.replace(" | ", "\t"));
    let report = shell.run("nprof-annotate --format tsv jit").quiet();
    let sampled: Vec<_> = rows(&report)
        .iter()
        .filter(|row| row.number("self_samples") > 0.0)
        .map(|row| (row.text("function").to_owned(), row.text("instruction").to_owned()))
        .collect();
    assert_eq!(sampled, [("js:*add".to_owned(), "dec rdi".to_owned())], "{report}");
}

#[test]
fn missing_code_of_a_process_names_the_option_of_the_recorder() {
    let shell = Shell::new();
    let report = |stream: String| {
        shell.write("jit", stream.replace(" | ", "\t"));
        shell.run("nprof-annotate jit").quiet()
    };
    assert!(report(STREAM.to_owned()).contains("nprof-record --code"));
    // The recorder does not read that of the kernel.
    let kernel = report(STREAM.replace("0x5 | u", "0x5 | k").replacen("0x5 | k", "0x5 | u", 1));
    assert!(kernel.contains("without code") && !kernel.contains("nprof-record"), "{kernel}");
}
