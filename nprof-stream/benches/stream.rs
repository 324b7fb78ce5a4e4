//! The speed of reading and writing a stream, in records a second on one core.

#![allow(clippy::unwrap_used)] // a bench may fail

use divan::Bencher;
use divan::counter::ItemsCount;
use nprof_report::profile::{GroupBy, Profile};
use nprof_stream::*;

const SAMPLES: u64 = 1_000_000;
const NODES: u32 = 10_000;
const DEFINITIONS: u32 = 100_000;

fn main() {
    divan::main();
}

/// Samples as a recording has them: two CPUs, some tasks, stacks of uneven popularity.
fn stream(encoding: Encoding) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), encoding);
    write_to(&mut writer);
    writer.finish().unwrap()
}

fn write_to(writer: &mut Writer<impl std::io::Write>) {
    let head = Head { run: RunId(1), clock: b"monotonic".to_vec(), ..Head::default() };
    writer.write(&Record::Head(Box::new(head))).unwrap();
    let event = Event { id: EventId(1), name: b"cpu-clock".to_vec(), ..Event::default() };
    writer.write(&Record::Event(Box::new(event))).unwrap();
    for id in 1..=NODES {
        let frame = Frame {
            id: FrameId(id),
            image: ImageId(1),
            offset: u64::from(id) * 16,
            kernel: false,
            return_address: true,
            mark: Mark::None,
            extras: Extras::NONE,
        };
        writer.write(&Record::Frame(frame)).unwrap();
        // A binary tree: the deepest stacks have 14 frames.
        let nodes = Nodes { first: NodeId(id), parent: NodeId(id / 2), frames: &[FrameId(id)] };
        writer.write(&Record::Nodes(nodes)).unwrap();
    }
    let mut state = 1u64;
    for i in 0..SAMPLES {
        // A fixed pseudo-random sequence, so that every run measures the same stream.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let popular = (state >> 33) % u64::from(NODES) * ((state >> 13) % 64) / 64;
        let sample = Sample {
            time: 81_230_000_000_000 + i * 501_505 + (state >> 50),
            event: EventId(1),
            task: TaskId(1 + (i / 100 % 7) as u32),
            cpu: (i & 1) as u32,
            node: NodeId(1 + popular as u32),
            weight: 1_003_009,
            count: 1,
            extras: Extras::NONE,
        };
        writer.write(&Record::Sample(sample)).unwrap();
    }
    let Totals { samples, records } = writer.totals();
    let end = End { samples, records, ..End::default() };
    writer.write(&Record::End(Box::new(end))).unwrap();
}

/// Definitions as a symbolized recording has them, each kind in turn.
fn definitions(encoding: Encoding) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), encoding);
    let head = Head { run: RunId(1), clock: b"monotonic".to_vec(), ..Head::default() };
    writer.write(&Record::Head(Box::new(head))).unwrap();
    let extras = Extras::NONE;
    for id in 1..=DEFINITIONS {
        let time = 81_230_000_000_000 + u64::from(id) * 501_505;
        let frame = Frame {
            id: FrameId(id),
            image: ImageId(1 + id % 40),
            offset: u64::from(id) * 48,
            kernel: id % 5 == 0,
            return_address: id % 3 != 0,
            mark: Mark::None,
            extras,
        };
        writer.write(&Record::Frame(frame)).unwrap();
        let path = format!("/usr/lib/x86_64-linux-gnu/libexample-{}.so.1", id % 40);
        let function = format!("example::container<unsigned long>::insert_{id}(unsigned long)");
        let function =
            Function { id: FunctionId(id), name: function.as_bytes(), linkage: b"", extras };
        writer.write(&Record::Function(function)).unwrap();
        let line = Line { function: FunctionId(id), file: FileId(1), line: id % 999, column: 9 };
        let location = Location {
            frame: FrameId(id),
            status: Status::Named,
            lines: &[line, Line { line: 7, ..line }],
            extras,
        };
        writer.write(&Record::Location(location)).unwrap();
        let (pid, parent, comm) = (4_000 + id, TaskId(id / 2), &b"worker"[..]);
        let task = Task { id: TaskId(id), time, pid, tid: pid, parent, comm, extras };
        writer.write(&Record::Task(task)).unwrap();
        let kind = ChangeKind::Exit;
        let change = Change { time, task: TaskId(id), kind, value: b"0", extras };
        writer.write(&Record::Change(change)).unwrap();
        if id % 100 == 0 {
            let (id, kind, build_id) = (ImageId(id / 100), ImageKind::Elf, &[7; 20]);
            let image = Image { id, kind, build_id, path: path.as_bytes(), extras };
            writer.write(&Record::Image(image)).unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Reads and writes definitions in one encoding.
#[divan::bench(args = SPELLINGS, sample_count = 20)]
fn copy_definitions(bencher: Bencher<'_, '_>, name: &str) {
    let stream = definitions(encoding(name));
    bencher.counter(ItemsCount::new(5 * DEFINITIONS)).bench(|| {
        let mut reader = Reader::new(&stream[..]);
        let mut writer = Writer::new(std::io::sink(), encoding(name));
        while let Some(record) = reader.next().unwrap() {
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap()
    });
}

const SPELLINGS: [&str; 2] = ["binary", "text"];

fn encoding(name: &str) -> Encoding {
    if name == "text" { Encoding::Text } else { Encoding::Binary }
}

#[divan::bench(args = SPELLINGS, sample_count = 10)]
fn read(bencher: Bencher<'_, '_>, name: &str) {
    let stream = stream(encoding(name));
    bencher.counter(ItemsCount::new(SAMPLES)).bench(|| {
        let mut reader = Reader::new(&stream[..]);
        let mut weight = 0u64;
        while let Some(record) = reader.next().unwrap() {
            if let Record::Sample(sample) = record {
                weight += sample.weight;
            }
        }
        assert_eq!(reader.verdict(), Verdict::Complete);
        weight
    });
}

#[divan::bench(args = SPELLINGS, sample_count = 10)]
fn write(bencher: Bencher<'_, '_>, name: &str) {
    bencher.counter(ItemsCount::new(SAMPLES)).bench(|| {
        let mut writer = Writer::new(std::io::sink(), encoding(name));
        write_to(&mut writer);
        writer.finish().unwrap()
    });
}

#[divan::bench(args = SPELLINGS, sample_count = 10)]
fn convert_to(bencher: Bencher<'_, '_>, name: &str) {
    let other = if name == "text" { Encoding::Binary } else { Encoding::Text };
    let stream = stream(other);
    bencher.counter(ItemsCount::new(SAMPLES)).bench(|| {
        let mut reader = Reader::new(&stream[..]);
        let mut writer = Writer::new(std::io::sink(), encoding(name));
        while let Some(record) = reader.next().unwrap() {
            writer.write(&record).unwrap();
        }
        writer.finish().unwrap()
    });
}

#[divan::bench(sample_count = 10)]
fn profile(bencher: Bencher<'_, '_>) {
    let stream = stream(Encoding::Binary);
    bencher.counter(ItemsCount::new(SAMPLES)).bench(|| {
        let mut profile = Profile::new(GroupBy::default());
        let mut samples = 0;
        profile.read("bench", &stream[..], |_, _, sum| samples += sum.samples).unwrap();
        assert_eq!(samples, SAMPLES);
    });
}
