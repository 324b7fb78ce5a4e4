//! An endless stream passes every stage in bounded memory, and sums stay correct across epochs. Every
//! report stays within its limit for streams of which the rows would take more.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use nprof_stream::{
    Encoding, End, Epoch, Event, EventId, Extras, Frame, FrameId, Head, Image, ImageId, ImageKind,
    Mark, NO_CPU, NodeId, Nodes, Record, RunId, Sample, TaskId, Totals, Writer,
};
use nprof_tests::{have, skipped, tool, tools};

/// The number of samples, each with a new stack. The variable `NPROF_BOUND_SAMPLES` overrides it.
const SAMPLES: u64 = 3_000_000;

/// Nodes per epoch: the writer starts a new epoch before it exceeds them.
const NODES: u32 = 1 << 16;

/// Nodes that each stack adds.
const BRANCH: u32 = 4;

const FRAMES: u32 = 1000;

/// Address space of each stage in KiB. A stage that kept all nodes would exceed it: 12 million nodes
/// take at least 16 bytes each, and there are a million sums.
const LIMIT_KIB: u32 = 80_000;

/// Address space of the symbolizer in KiB: each of its two threads reserves a stack of 128 MiB and
/// a malloc arena of 64 MiB, and touches little of both.
const LIMIT_SYMBOLIZE_KIB: u32 = LIMIT_KIB + 2 * (192 << 10);

/// Writes the definitions that every epoch repeats.
fn define(writer: &mut Writer<impl Write>) {
    let event = Event {
        id: EventId(1),
        name: b"cpu-clock".to_vec(),
        unit: b"ns".to_vec(),
        ..Event::default()
    };
    let image = Image {
        id: ImageId(1),
        kind: ImageKind::Elf,
        build_id: &[1, 2, 3],
        path: b"/nonexistent/endless",
        extras: Extras::NONE,
    };
    writer.write(&Record::Event(Box::new(event))).expect("the pipe is open");
    writer.write(&Record::Image(image)).expect("the pipe is open");
    for id in 1..=FRAMES {
        let frame = Frame {
            id: FrameId(id),
            image: ImageId(1),
            offset: u64::from(id) * 16,
            kernel: false,
            return_address: false,
            mark: Mark::None,
            extras: Extras::NONE,
        };
        writer.write(&Record::Frame(frame)).expect("the pipe is open");
    }
}

/// Writes the stream; returns the number of samples by leaf frame.
fn generate(out: impl Write, samples: u64) -> Vec<u64> {
    let mut leaves = vec![0; FRAMES as usize + 1];
    let mut writer = Writer::new(out, Encoding::Binary);
    let head = Head { run: RunId(1), clock: b"monotonic".to_vec(), ..Head::default() };
    writer.write(&Record::Head(Box::new(head))).expect("the pipe is open");
    define(&mut writer);
    let (mut next, mut epoch, mut state) = (1u32, 0u64, 1u64);
    for time in 0..samples {
        if next + BRANCH > NODES {
            epoch += 1;
            let record = Record::Epoch(Box::new(Epoch { number: epoch, more: Vec::new() }));
            writer.write(&record).expect("the pipe is open");
            define(&mut writer);
            next = 1;
        }
        // The linear congruential generator of Knuth's MMIX: each run generates the same stream.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The low bits of such a generator have short periods.
        let random = (state >> 33) as u32;
        let frames: Vec<FrameId> =
            (0..BRANCH).map(|i| FrameId(1 + random.rotate_left(7 * i) % FRAMES)).collect();
        // Two of three stacks start at the root and stay short: the test is about their number.
        let parent = if random.is_multiple_of(3) { random % next } else { 0 };
        let nodes = Nodes { first: NodeId(next), parent: NodeId(parent), frames: &frames };
        writer.write(&Record::Nodes(nodes)).expect("the pipe is open");
        next += BRANCH;
        leaves[frames[BRANCH as usize - 1].index()] += 1;
        let sample = Sample {
            time,
            event: EventId(1),
            task: TaskId::NONE,
            cpu: NO_CPU,
            node: NodeId(next - 1),
            weight: 2,
            count: 1,
            extras: Extras::NONE,
        };
        writer.write(&Record::Sample(sample)).expect("the pipe is open");
    }
    let Totals { samples, records } = writer.totals();
    let end = End { samples, records, ..End::default() };
    writer.write(&Record::End(Box::new(end))).expect("the pipe is open");
    writer.finish().expect("the pipe is open");
    leaves
}

#[test]
fn stays_within_memory_bound_when_every_stack_is_new() {
    let wanted = std::env::var("NPROF_BOUND_SAMPLES").ok();
    let samples = wanted.map_or(SAMPLES, |number| number.parse().expect("a number of samples"));
    let pipe = format!(
        "(ulimit -v {LIMIT_SYMBOLIZE_KIB}; exec nprof-symbolize) | \
         (ulimit -v {LIMIT_KIB}; exec nprof-flat --by address --format tsv)"
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new("bash")
        .args(["-o", "pipefail", "-c", &pipe])
        .env("PATH", format!("{}:{path}", tools().display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash can be started");
    let input = child.stdin.take().expect("it was piped");
    let generator = std::thread::spawn(move || generate(BufWriter::new(input), samples));
    let mut table = String::new();
    child.stdout.take().expect("it was piped").read_to_string(&mut table).expect("text");
    let leaves = generator.join().expect("all of the stream was read");
    assert!(child.wait().expect("bash exits").success());

    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().expect("a header").split('\t').collect();
    let column = |name| header.iter().position(|&column| column == name).expect("a column");
    let (address, own) = (column("address"), column("self_samples"));
    let mut rows = 0;
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let offset = fields[address].strip_prefix("endless+0x").expect("the one image");
        let offset = usize::from_str_radix(offset, 16).expect("an offset");
        assert_eq!(fields[own], leaves[offset / 16].to_string(), "{line}");
        rows += 1;
    }
    assert_eq!(rows, FRAMES as usize);
}

/// Peak resident memory of a report in MiB, for any stream.
const LIMIT_MIB: u64 = 256;

/// Runs a command and prints its peak resident memory in KiB on standard error.
const MEASURE: &str = "import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(status)";

/// A text stream under construction.
struct Text {
    out: BufWriter<File>,
    samples: u64,
    records: u64,
}

impl Text {
    /// Begins a stream of `events` events, with a frame for each of these functions.
    fn create(path: &Path, events: usize, functions: &[String]) -> Self {
        let out = BufWriter::new(File::create(path).expect("a new file"));
        let mut text = Self { out, samples: 0, records: 0 };
        writeln!(text.out, "@nprof\t1.1\trun=0x{}", path.as_os_str().len()).expect("written");
        text.define(events, functions);
        text
    }

    fn define(&mut self, events: usize, functions: &[String]) {
        for id in 1..=events {
            self.record(format_args!("@event\tid={id}\tname=e{id}\tunit=ns\tmeasure=cpu-time"));
        }
        self.record(format_args!("I\t1\telf\t-\t/bin/p"));
        for (function, id) in functions.iter().zip(1..) {
            self.record(format_args!("F\t{id}\t1\t{id:#x}\tu"));
            writeln!(self.out, "U\t{id}\t{function}\t-\nY\t{id}\tnamed\t{id},0,0,0")
                .expect("written");
        }
    }

    /// Writes a record that the end counts: all but annotations and the head.
    fn record(&mut self, line: std::fmt::Arguments<'_>) {
        self.records += 1;
        writeln!(self.out, "{line}").expect("written");
    }

    /// Writes nodes from `first` on, one below the other.
    fn nodes(&mut self, first: usize, frames: impl Iterator<Item = usize>) {
        let frames: Vec<String> = frames.map(|frame| frame.to_string()).collect();
        self.record(format_args!("N\t{first}\t0\t{}", frames.join("\t")));
    }

    fn sample(&mut self, event: usize, node: usize) {
        self.samples += 1;
        let time = self.samples * 1000;
        self.record(format_args!("S\t{time}\t{event}\t0\t0\t{node}\t1000\t1"));
    }

    fn end(mut self) {
        let (samples, records) = (self.samples, self.records);
        writeln!(self.out, "@end\tsamples={samples}\trecords={records}\tlost=0").expect("written");
        self.out.flush().expect("written");
    }
}

fn names(count: usize, length: usize) -> Vec<String> {
    (0..count).map(|i| format!("f{i}{}", "x".repeat(length))).collect()
}

/// Random recursion: all stacks are 1000 calls deep, and differ after the first few.
fn random_recursion(path: &Path) {
    let functions = names(10, 0);
    let mut text = Text::create(path, 1, &functions);
    let (mut next, mut state) = (1, 1u64);
    for sample in 0..2000 {
        // As the recorder does, before there are 2^20 nodes.
        if next > 1_000_000 {
            text.record(format_args!("@epoch\tnumber={sample}"));
            text.define(1, &functions);
            next = 1;
        }
        let random = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (state >> 33) as usize % 10
        });
        text.nodes(next, random.take(1000));
        text.sample(1, next + 999);
        next += 1000;
    }
    text.end();
}

/// One chain of 65,000 calls, with 2000 samples at different depths.
fn chain(path: &Path) {
    let mut text = Text::create(path, 1, &names(100, 0));
    text.nodes(1, (0..65_000).map(|i| 1 + i % 100));
    (0..2000).for_each(|i| text.sample(1, 1 + i * 65_000 / 2000));
    text.end();
}

/// 3000 events, each with a sample in a time slice of its own.
fn many_events(path: &Path) {
    let mut text = Text::create(path, 3000, &names(1, 0));
    text.nodes(1, std::iter::once(1));
    (1..=3000).for_each(|event| text.sample(event, 1));
    text.end();
}

/// 6000 functions with names of 20 kB.
fn long_names(path: &Path) {
    let mut text = Text::create(path, 1, &names(6000, 20_000));
    for i in 1..=6000 {
        text.nodes(2 * i - 1, [1, i].into_iter());
        text.sample(1, 2 * i);
    }
    text.end();
}

/// 500 functions that each call 500 others.
fn many_edges(path: &Path) {
    let mut text = Text::create(path, 1, &names(1000, 0));
    for i in 0..250_000 {
        text.nodes(2 * i + 1, [1 + i / 500, 501 + i % 500].into_iter());
        text.sample(1, 2 * i + 2);
    }
    text.end();
}

/// An epoch of 12 million nodes, of which the recorder writes a million at most.
fn large_epoch(path: &Path) {
    let mut text = Text::create(path, 1, &names(10, 0));
    for sample in 0..12_000 {
        // The stacks differ after a few calls.
        let calls = (0..1000).map(|call| 1 + (sample >> (3 * (call % 5))) % 10);
        text.nodes(1 + 1000 * sample, calls);
        text.sample(1, 1000 * (sample + 1));
    }
    text.end();
}

/// Three million tasks with names of their own.
fn many_tasks(path: &Path) {
    let mut text = Text::create(path, 1, &names(1, 0));
    text.nodes(1, std::iter::once(1));
    for task in 1..=3_000_000 {
        text.record(format_args!("T\t{task}\t{task}\t{task}\t{task}\t0\tthread-{task}"));
        if task % 100 == 0 {
            text.samples += 1;
            text.record(format_args!("S\t{task}\t1\t{task}\t0\t1\t1000\t1"));
        }
    }
    text.end();
}

/// Asserts the memory of every view in every format.
fn assert_memory(write: fn(&Path)) {
    let mut reports: Vec<String> = Vec::new();
    // CSV has the printer of TSV.
    for format in ["table -n 0", "tsv", "json"] {
        reports.push(format!("nprof-flat --by slice=1us,function --format {format}"));
        for view in ["paths", "graph"] {
            reports.push(format!("nprof-paths --view {view} --format {format}"));
        }
        let format = format.replace("-n 0", "--min-percent 0");
        for view in ["tree", "callers"] {
            reports.push(format!("nprof-paths --view {view} --format {format}"));
        }
    }
    for format in ["folded", "flamegraph", "icicle"] {
        reports.push(format!("nprof-paths --format {format}"));
        reports.push(format!("nprof-paths --view callers --format {format}"));
    }
    reports.push("nprof-paths --view tree --format tsv --focus f1".to_owned());
    // A copy of the report is printed while the stream is read.
    reports.push("nprof-flat --by slice=1us,function --format tsv --every 200ms".to_owned());
    reports.push("nprof-paths --format tsv --every 200ms".to_owned());
    for format in ["table", "tsv", "json", "folded", "flamegraph"] {
        reports.push(format!("nprof-diff --by path --event e1 --format {format}"));
    }
    reports.push("nprof-diff --by function --event e1 --format json".to_owned());
    // A page has rows of three kinds.
    reports.push("nprof-diff --event e1 --format html".to_owned());
    reports.push("nprof-paths --format html".to_owned());
    assert_memory_of(&reports, write);
}

/// Asserts the memory of these reports.
fn assert_memory_of<S: AsRef<str>>(reports: &[S], write: fn(&Path)) {
    if !have(&["python3"]) {
        return skipped("no python3");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
    write(&one);
    write(&other);
    for report in reports.iter().map(AsRef::as_ref) {
        let mut words = report.split(' ');
        let name = words.next().expect("a program");
        let operands = if name == "nprof-diff" { vec![&one, &other] } else { vec![&one] };
        let program = tool(name);
        let run = Command::new("python3")
            .args(["-c", MEASURE])
            .arg(program)
            .args(words)
            .args(operands)
            .output()
            .expect("python3 can be started");
        let messages = String::from_utf8_lossy(&run.stderr);
        // 4: nprof-diff has too few samples to decide.
        assert!(matches!(run.status.code(), Some(0 | 4)), "{report}: {messages}");
        let peak = messages.lines().find_map(|line| line.strip_prefix("peak "));
        let peak: u64 = peak.and_then(|peak| peak.parse().ok()).expect("the peak");
        eprintln!("{} MiB: {report}", peak >> 10);
        assert!(peak >> 10 <= LIMIT_MIB, "{report}: {} MiB", peak >> 10);
    }
}

#[test]
fn reports_are_within_limit_for_random_recursion() {
    assert_memory(random_recursion);
}

#[test]
fn reports_are_within_limit_for_a_chain_of_65000_calls() {
    assert_memory(chain);
}

#[test]
fn reports_are_within_limit_for_an_epoch_of_12_million_nodes() {
    assert_memory_of(
        &[
            "nprof-flat --format json",
            "nprof-paths --format json",
            "nprof-paths --view callers --format flamegraph",
            "nprof-paths --view tree --format tsv --every 200ms",
            "nprof-diff --by path --format json",
        ],
        large_epoch,
    );
}

#[test]
fn reports_are_within_limit_for_3_million_tasks() {
    assert_memory_of(
        &[
            "nprof-flat --by thread --format json",
            "nprof-paths --format folded",
            "nprof-paths --format flamegraph --every 200ms",
            "nprof-diff --by command --format json",
        ],
        many_tasks,
    );
}

#[test]
fn reports_are_within_limit_for_3000_events() {
    assert_memory(many_events);
}

#[test]
fn reports_are_within_limit_for_long_names() {
    assert_memory(long_names);
}

#[test]
fn reports_are_within_limit_for_250000_edges() {
    assert_memory(many_edges);
}
