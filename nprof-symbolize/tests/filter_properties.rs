//! Properties of the filter: no record is lost, renumbered or reordered, and unknown records pass.

#![allow(clippy::unwrap_used)] // a failed set-up is a failed test

mod fixture;

use fixture::{
    AREA, Binary, Places, locations, names, namings, run_in, sources, stream, stream_of_epochs,
    symbolize, symbolize_piped,
};
use nprof_stream::{Encoding, Reader, Record, Status, Writer};

/// Returns the records that no filter added, as text.
fn stripped(stream: &[u8]) -> String {
    let mut writer = Writer::new(Vec::new(), Encoding::Text);
    let mut reader = Reader::new(stream);
    while let Some(record) = reader.next().unwrap() {
        if !record.is_annotation() {
            writer.write(&record).unwrap();
        }
    }
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

fn program(directory: &std::path::Path) -> Binary {
    run_in(directory, "g++ -O2 -g -o @/prog @/a.cc");
    Binary::read(&directory.join("prog"))
}

#[test]
fn output_without_annotations_is_the_input() {
    let directory = sources();
    let binary = program(directory.path());
    let input = stream_of_epochs(&[Places::of(&binary, &binary.addresses(3))]);
    let output = symbolize(&[], &input);
    assert!(output.status.success());
    assert_eq!(stripped(&output.stdout), stripped(&input));
    let text = symbolize(&["--text"], &input);
    assert_eq!(stripped(&text.stdout), stripped(&input));
    assert!(text.stdout.starts_with(b"@nprof"));
    // Cut in two at any offset: the output is the input up to there.
    let (head, _) = input.split_at(input.len() / 2);
    let output = symbolize(&[], head);
    assert_eq!(stripped(&output.stdout), stripped(head));
}

#[test]
fn symbolizing_again_changes_only_the_steps() {
    let directory = sources();
    let binary = program(directory.path());
    let input = stream(&[Places::of(&binary, &binary.addresses(7))], Encoding::Binary);
    let once = symbolize(&["--no-inlines"], &input);
    let twice = symbolize(&["--text"], &once.stdout);
    let direct = symbolize(&["--text"], &input);
    let lines = |output: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(output).into_owned();
        // The checksum covers the steps, too.
        let lines = text.lines().filter(|line| !line.starts_with(['#', '@']));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&twice.stdout), lines(&direct.stdout));
    assert!(lines(&twice.stdout).len() > 10);
    let steps = String::from_utf8_lossy(&twice.stdout).into_owned();
    let steps: Vec<_> = steps.lines().filter(|line| line.starts_with("@step")).collect();
    assert_eq!(steps.len(), 2);
    assert!(steps[0].contains("--no-inlines") && steps[1].contains("--text"), "{steps:?}");
}

#[test]
fn locations_of_the_same_options_pass_unchanged() {
    let directory = sources();
    let binary = program(directory.path());
    // Frames in functions and in none, in an image that exists and in one that does not.
    let places = || Places::of(&binary, &binary.addresses(7));
    let nowhere = Places { path: b"/nowhere", ..Places::of(&binary, &[binary.text.0]) };
    let epoch = stream(&[places(), nowhere], Encoding::Binary);
    let body = |output: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(output).into_owned();
        // The checksum at the end covers the steps, too.
        let other = ["@step", "@end", "#"];
        let lines = text.lines().filter(|line| !other.iter().any(|word| line.starts_with(word)));
        lines.map(|line| line.replace("\tcheck=crc32c", "")).collect()
    };
    // Several segments and epochs: ids are defined again in each.
    let input = [&epoch[..], &stream_of_epochs(&[places()]), &epoch].concat();
    for style in ["full", "short"] {
        let once = symbolize(&["--names", style], &input).stdout;
        // A file is read ahead, a pipe is a live stream; both paths must agree.
        for again in [symbolize, symbolize_piped] {
            let twice = again(&["--names", style], &once).stdout;
            let thrice = again(&["--text", "--names", style], &twice).stdout;
            let text = symbolize(&["--text", "--names", style], &input).stdout;
            let unlike = body(&thrice).into_iter().zip(body(&text)).find(|(a, b)| a != b);
            assert_eq!((unlike, body(&thrice).len()), (None, body(&text).len()));
        }
    }
    // A deleted program is not missed if all its frames are reused. With another style of names
    // it is.
    let whole = Places::of(&binary, &[binary.symbol(AREA) + 4]);
    let once = symbolize(&[], &stream(&[whole], Encoding::Binary)).stdout;
    std::fs::remove_file(&binary.path).unwrap();
    for (style, is_missed) in [("full", false), ("short", true)] {
        let elsewhere = symbolize(&["-v", "--names", style], &once);
        assert_eq!(locations(&elsewhere.stdout), locations(&once));
        let shown = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
        assert!(shown.contains("/prog: 1 of 1 frames named"), "{shown}");
        assert_eq!(shown.contains("no such file"), is_missed, "{shown}");
    }
}

#[test]
fn lost_names_are_looked_up_again() {
    let directory = sources();
    let binary = program(directory.path());
    let input = stream_of_epochs(&[Places::of(&binary, &binary.addresses(7))]);
    let input = [&input[..], &input].concat();
    let once = symbolize(&[], &input).stdout;
    // The stream without some functions, and a part cut out of the middle of the binary one.
    let text = String::from_utf8(symbolize(&["--text"], &input).stdout).unwrap();
    // Function 2 and file 1 are used by many locations.
    let is_kept = |line: &&str| !line.starts_with("U\t2\t") && !line.starts_with("D\t1\t");
    let without: String = text
        .lines()
        .filter(|line| is_kept(line) && !line.starts_with('#'))
        .map(|line| line.replace("\tcheck=crc32c", ""))
        // Without checksums, so that the missing lines are the only damage.
        .map(|line| line.split("\tcrc=").next().unwrap().to_owned() + "\n")
        .collect();
    for again in [symbolize, symbolize_piped] {
        let named = again(&["--partial-ok"], without.as_bytes()).stdout;
        assert_eq!(locations(&named), locations(&once));
    }
    // Each block of a binary stream begins with this magic.
    let blocks: Vec<usize> = memchr::memmem::find_iter(&once, b"\x89NPF").collect();
    assert!(blocks.len() > 2);
    let bounds = [&blocks[..], &[once.len()]].concat();
    for lost in 1..blocks.len() {
        // Drops one block; the reader continues at the next.
        let rest = [&once[..bounds[lost]], &once[bounds[lost + 1]..]].concat();
        let direct = stripped(&rest);
        for again in [symbolize, symbolize_piped] {
            let named = again(&["--partial-ok"], &rest).stdout;
            assert_eq!(stripped(&named), direct);
            // Named frames have their old names.
            let known = locations(&once);
            let is_known = |location: &_| known.contains(location);
            let named = locations(&named);
            let wrong = named.iter().filter(|(status, _)| *status == Status::Named);
            assert_eq!(wrong.filter(|location| !is_known(location)).count(), 0, "block {lost}");
        }
    }
}

#[test]
fn line_is_added_to_an_existing_function() {
    let directory = sources();
    let at = directory.path();
    run_in(at, "g++ -O2 -g -Wl,--build-id -o @/whole @/a.cc");
    // Symbols only: the first run finds functions without lines.
    run_in(at, "strip -g -o @/prog @/whole");
    let binary = Binary::read(&at.join("prog"));
    let input = stream(&[Places::of(&binary, &binary.addresses(7))], Encoding::Binary);
    let once = symbolize(&[], &input).stdout;
    assert!(!locations(&once).iter().any(|(_, calls)| calls.iter().any(|call| call.line > 0)));
    let id = binary.id();
    let (first, rest) = id.split_at(2);
    let debug = at.join("debug/.build-id").join(first);
    std::fs::create_dir_all(&debug).unwrap();
    std::fs::copy(at.join("whole"), debug.join(format!("{rest}.debug"))).unwrap();
    let debug = at.join("debug");
    let options = ["--debug-dir", debug.to_str().unwrap()];
    let direct = symbolize(&options, &input).stdout;
    for again in [symbolize, symbolize_piped] {
        let twice = again(&options, &once).stdout;
        assert_eq!(locations(&twice), locations(&direct));
        assert_eq!(namings(&twice), namings(&direct));
    }
    assert!(locations(&direct).iter().any(|(_, calls)| calls.iter().any(|call| call.line > 0)));
}

#[test]
fn existing_names_stay_without_the_image() {
    let directory = sources();
    let binary = program(directory.path());
    let addresses = binary.addresses(13);
    let input = stream(&[Places::of(&binary, &addresses)], Encoding::Text);
    let once = symbolize(&[], &input).stdout;
    // On another system the program does not exist.
    std::fs::remove_file(&binary.path).unwrap();
    let elsewhere = symbolize(&[], &once);
    assert!(elsewhere.status.success());
    assert_eq!(locations(&elsewhere.stdout), locations(&once));
    assert_eq!(stripped(&elsewhere.stdout), stripped(&input));
    assert!(locations(&once).iter().any(|(status, _)| *status == Status::Named));
    // Without annotations there are no names.
    let (status, _) = &locations(&symbolize(&[], &input).stdout)[0];
    assert_eq!(*status, Status::NoImage);
}

#[test]
fn style_of_names_changes_shown_names_only() {
    let directory = sources();
    let binary = program(directory.path());
    let addresses = [binary.symbol("_ZN8geometry4areaERKNS_5PointIiEE")];
    let named = |style| {
        let (_, calls) = names(&["--names", style], Places::of(&binary, &addresses)).remove(0);
        let call = calls.last().unwrap().clone();
        (call.name, call.linkage, call.line)
    };
    let (full, linkage, line) = named("full");
    assert_eq!(full, "geometry::area(geometry::Point<int> const&)");
    assert_eq!(named("short"), ("geometry::area".to_owned(), linkage, line));
    for unknown in ["nice", "plain", "linkage"] {
        assert_eq!(symbolize(&["--names", unknown], b"").status.code(), Some(2));
    }
}

#[test]
fn epochs_and_segments_define_names_again() {
    let directory = sources();
    let binary = program(directory.path());
    let addresses = binary.addresses(11);
    let input = stream_of_epochs(&[Places::of(&binary, &addresses)]);
    let mut input = [&input[..], &input].concat();
    let output = symbolize(&[], &input);
    assert!(output.status.success());
    let all = locations(&output.stdout);
    assert_eq!(all.len(), addresses.len() * 4);
    let (first, rest) = all.split_at(addresses.len());
    assert!(rest.chunks(addresses.len()).all(|chunk| chunk == first));
    let mut reader = Reader::new(&output.stdout[..]);
    let mut order = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        match record {
            Record::Head(_) => order.push("head"),
            Record::Step(_) => order.push("step"),
            Record::Event(_) => order.push("event"),
            _ => {}
        }
    }
    assert_eq!(order, ["head", "step", "event", "event"].repeat(2));
    // A damaged byte costs its block, which is reported.
    let middle = input.len() / 3;
    input[middle] ^= 0x40;
    let output = symbolize(&[], &input);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stripped(&output.stdout), stripped(&input));
}

#[test]
fn truncated_input_passes_up_to_its_end() {
    let directory = sources();
    let binary = program(directory.path());
    let input = stream(&[Places::of(&binary, &binary.addresses(5))], Encoding::Text);
    let cut = &input[..input.len() * 2 / 3];
    let output = symbolize(&[], cut);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("nprof-symbolize: standard input: the input is truncated"));
    assert_eq!(message.lines().count(), 1);
    assert!(!String::from_utf8_lossy(&symbolize(&["--text"], cut).stdout).contains("@end"));
    assert_eq!(symbolize(&["--partial-ok"], cut).status.code(), Some(0));
}

#[test]
fn usage_error_writes_no_output() {
    for (args, input) in [(&["--no-such"][..], &b""[..]), (&["a", "b"], b""), (&[], b"no stream")] {
        let output = symbolize(args, input);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.nprof");
    std::fs::write(&file, stream(&[], Encoding::Binary)).unwrap();
    let path = file.to_str().unwrap();
    let output = symbolize(&["-o", path, path], b"");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(&file).unwrap(), stream(&[], Encoding::Binary));
}

#[test]
fn options_omit_inlined_calls_and_lines() {
    let directory = sources();
    let binary = program(directory.path());
    let addresses = binary.addresses(3);
    let named = |args: &[&str]| names(args, Places::of(&binary, &addresses));
    let all = named(&[]);
    assert!(all.iter().any(|(_, calls)| calls.len() > 2));
    let outer = named(&["--no-inlines"]);
    for ((_, all), (_, outer)) in all.iter().zip(&outer) {
        assert_eq!(outer.len(), all.len().min(1));
        assert_eq!(outer.last(), all.last());
    }
    let bare = named(&["--no-lines"]);
    for ((_, all), (_, bare)) in all.iter().zip(&bare) {
        let functions = all.iter().filter(|call| !call.name.is_empty());
        assert!(functions.map(|call| &call.name).eq(bare.iter().map(|call| &call.name)));
        assert!(bare.iter().all(|call| call.line == 0 && call.file.is_empty()));
    }
    let least = named(&["--no-inlines", "--no-lines"]);
    for ((_, bare), (_, least)) in bare.iter().zip(&least) {
        assert!(least.len() <= 1);
        assert_eq!(bare.is_empty(), least.is_empty());
    }
}

#[test]
fn return_address_belongs_to_the_caller() {
    let directory = sources();
    let at = directory.path();
    // The call is the last instruction of its function; the next one belongs to another function.
    std::fs::write(
        at.join("n.c"),
        "void stop(void) __attribute__((noreturn));
__attribute__((noinline)) void first(void) { stop(); }
__attribute__((noinline)) void second(void) { }
__attribute__((noinline,noreturn)) void stop(void) { for (;;) ; }
int main(void) { second(); first(); }",
    )
    .unwrap();
    run_in(at, "gcc -O2 -g -fno-toplevel-reorder -falign-functions=1 -o @/n @/n.c");
    let binary = Binary::read(&at.join("n"));
    let address = binary.symbol("second");
    let offset = binary.offset(address);
    let mut places = Places::of(&binary, &[address]);
    places.places.push((offset, true));
    let named = names(&[], places);
    let name = |i: usize| named[i].1.last().map(|call| call.name.clone()).unwrap_or_default();
    assert_eq!((name(0).as_str(), name(1).as_str()), ("second", "first"));
}

#[test]
fn plt_stubs_are_named_after_their_target() {
    let directory = sources();
    let at = directory.path();
    for options in ["-fcf-protection=full", "-fcf-protection=none -Wl,-z,lazy", "-Wl,-z,now"] {
        run_in(at, &format!("g++ -O2 {options} -o @/prog @/a.cc"));
        run_in(at, "strip @/prog");
        let binary = Binary::read(&at.join("prog"));
        let addresses: Vec<u64> = {
            use object::{Object, ObjectSection};
            let data = std::fs::read(&binary.path).unwrap();
            let file = object::File::parse(&*data).unwrap();
            let stubs =
                file.sections().filter(|section| section.name().unwrap().starts_with(".plt"));
            stubs.flat_map(|s| (s.address()..s.address() + s.size()).step_by(8)).collect()
        };
        let named = names(&[], Places::of(&binary, &addresses));
        let named: Vec<_> = named.iter().flat_map(|(_, calls)| calls).map(|c| &c.name).collect();
        for expected in ["printf@plt", "operator new(unsigned long)@plt", "__cxa_finalize@plt"] {
            assert!(named.iter().any(|name| *name == expected), "{options}: {expected}: {named:?}");
        }
    }
}

#[test]
fn generated_code_keeps_its_recorded_name() {
    use nprof_stream::ImageKind;
    let jit = |path| Places {
        kind: ImageKind::Jit,
        build_id: b"",
        path,
        places: vec![(0, false), (0x10, true)],
    };
    for name in ["JS:*f /home/me/a.js:1:2", "_Z1fv", "bpf_prog_6deef7357e7b4530_drop"] {
        for (status, calls) in names(&[], jit(name.as_bytes())) {
            let [call] = &calls[..] else { panic!("{calls:?}") };
            assert_eq!((status, call.name.as_str()), (Status::Named, name));
            assert_eq!((call.file.as_str(), call.line), ("", 0));
        }
    }
    assert_eq!(names(&[], jit(b""))[1], (Status::Anonymous, vec![]));
}

#[test]
fn address_in_no_image_is_anonymous() {
    use nprof_stream::ImageKind;
    let places =
        |kind| Places { kind, build_id: b"", path: b"//anon", places: vec![(0x1000, false)] };
    assert_eq!(names(&[], places(ImageKind::Anonymous)), [(Status::Anonymous, vec![])]);
    let kernel = Places { path: b"[kernel]", build_id: b"\x01\x02", ..places(ImageKind::Kernel) };
    assert_eq!(names(&[], kernel), [(Status::Mismatch, vec![])]);
}

#[test]
fn live_stream_is_not_delayed() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    let mut child = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_nprof-symbolize"), "--text"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = String::from_utf8(stream(&[], Encoding::Text)).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // Each line is written while the input is still open; otherwise the test would block.
    let mut lines = input.lines();
    let mut line = String::new();
    for expected in ["@nprof", "@step", "T\t1"] {
        if let Some(next) = lines.next() {
            writeln!(stdin, "{next}").unwrap();
        }
        line.clear();
        stdout.read_line(&mut line).unwrap();
        if expected == "@step" {
            assert!(line.starts_with("@step"), "{line}");
            line.clear();
            stdout.read_line(&mut line).unwrap();
            assert!(line.starts_with("@event"), "{line}");
        } else {
            assert!(line.starts_with(expected), "{line}");
        }
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn pipe_and_file_give_the_same_names() {
    let directory = sources();
    let binary = program(directory.path());
    let places = [Places::of(&binary, &binary.addresses(3))];
    let mut input = stream_of_epochs(&places);
    input.extend(stream(&places, Encoding::Text));
    let (file, pipe) = (symbolize(&[], &input), symbolize_piped(&[], &input));
    assert!(file.status.success() && pipe.status.success());
    assert_eq!(locations(&pipe.stdout), locations(&file.stdout));
    assert_eq!(stripped(&pipe.stdout), stripped(&input));
    assert_eq!(namings(&pipe.stdout), namings(&file.stdout));
}

#[test]
fn frames_are_named_before_the_next_sample_is_read() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let directory = sources();
    let binary = program(directory.path());
    let places = binary.addresses(2);
    let whole = stream(&[Places::of(&binary, &places)], Encoding::Text);
    let text = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> =
        text.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    let mut child = Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_nprof-symbolize")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut reader = Reader::new(child.stdout.take().unwrap());
    let (mut written, mut located) = (0, 0);
    // Up to each sample the input is written, and no further before that sample is read:
    // otherwise the test would block.
    while let Some(line) = lines.get(written).filter(|line| !line.starts_with("@end")) {
        stdin.write_all(line.as_bytes()).unwrap();
        written += 1;
        if !line.starts_with("S\t") {
            continue;
        }
        loop {
            match reader.next().unwrap().unwrap() {
                Record::Location(_) => located += 1,
                Record::Sample(_) => break,
                _ => {}
            }
        }
    }
    assert!(located >= places.len() && located > 10, "{located}");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn closed_output_is_no_error() {
    use std::process::{Command, Stdio};
    let directory = sources();
    let binary = program(directory.path());
    let file = directory.path().join("a.nprof");
    let addresses = binary.addresses(1).repeat(100);
    std::fs::write(&file, stream(&[Places::of(&binary, &addresses)], Encoding::Binary)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_nprof-symbolize"))
        .args(["--text", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn inlined_functions_without_linkage_names_have_scopes() {
    let directory = sources();
    let at = directory.path();
    let source = r#"
volatile int sink;
namespace outer {
namespace {
inline int hidden(int n) { sink = n; return n * 3; }
inline int hidden(const char *s, int (*f)(long)) { sink = *s; return f(sink); }
}
struct Counter { static int next(int n); template <class F> static int apply(F f, int n) { return f(n); } };
}
extern "C" { inline int plain(int n) { sink = n; return n ^ 5; } }
int call(long n) { return n; }
template <class F> __attribute__((noinline)) int often(F f, int n) { return f(n) + f(n + 1); }
namespace outer {
int named(int n) { return often([n](int m) { sink = m; return m * n; }, n); }
}
int main(int argc, char **argv) {
    auto twice = [](int n) { sink = n; return n + n; };
    return outer::hidden(argc) + outer::Counter::apply(twice, argc)
        + outer::hidden(argv[0], call) + plain(argc);
}"#;
    std::fs::write(at.join("n.cc"), source).unwrap();
    run_in(at, "g++ -O2 -g -o @/n @/n.cc");
    let binary = Binary::read(&at.join("n"));
    let start = binary.symbol("main");
    let addresses: Vec<u64> = (start..start + 60).collect();
    let named = names(&[], Places::of(&binary, &addresses));
    let inner: Vec<_> = named.iter().filter(|(_, calls)| calls.len() > 1).collect();
    let has = |name: &str| inner.iter().any(|(_, calls)| calls[0].name == name);
    assert!(has("outer::(anonymous namespace)::hidden(int)"), "{inner:?}");
    let pointers = "outer::(anonymous namespace)::hidden(char const*, int (*)(long))";
    assert!(has(pointers), "{inner:?}");
    assert!(has("main::{lambda}::operator()(int) const"), "{inner:?}");
    // The function around a lambda is named by its declaration, not by its instance.
    let symbols = binary.symbols();
    let often =
        symbols.iter().find(|(name, _)| name.starts_with("_Z5oftenIZN5outer5named")).unwrap();
    let addresses: Vec<u64> = (*often.1..often.1 + 20).collect();
    let lambda = names(&[], Places::of(&binary, &addresses));
    let is_named = |name: &str| name == "outer::named::{lambda}::operator()(int) const";
    assert!(lambda.iter().any(|(_, calls)| is_named(&calls[0].name)), "{lambda:?}");
    // The outermost function keeps its linkage name, and so does a function with C linkage.
    assert_eq!(named[0].1.last().unwrap().name, "main");
    assert!(has("plain"), "{inner:?}");
}
