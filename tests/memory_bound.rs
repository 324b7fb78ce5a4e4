//! An endless stream passes every stage in bounded memory, and sums stay correct across epochs.

use std::io::{BufWriter, Read, Write};
use std::process::{Command, Stdio};

use nprof_stream::{
    Encoding, End, Epoch, Event, EventId, Extras, Frame, FrameId, Head, Image, ImageId, ImageKind,
    Mark, NO_CPU, NodeId, Nodes, Record, RunId, Sample, TaskId, Totals, Writer,
};
use nprof_tests::tools;

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
