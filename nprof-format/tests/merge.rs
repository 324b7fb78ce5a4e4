//! Properties of merging: all samples survive with their meaning, in any order and grouping of the
//! inputs, and reports on the merged stream equal reports on its inputs.

use std::collections::{BTreeMap, HashMap, HashSet};

use nprof_format::merge::{Error, Merged, merge};
use nprof_report::profile::{GroupBy, Profile};
use nprof_stream::Validator;
use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::Tables;
use nprof_stream::*;
use nprof_tests::segment::{Segment, read, reencode, segment, write};
use proptest::prelude::*;

fn try_merge(inputs: &[&[u8]], encoding: Encoding) -> Result<(Vec<u8>, Merged), Error> {
    let inputs = (1..).zip(inputs).map(|(i, &input)| (format!("input {i}"), input)).collect();
    let mut writer = Writer::new(Vec::new(), encoding);
    let step = Step { tool: b"merge".to_vec(), ..Step::default() };
    let merged = merge(inputs, &step, &mut writer)?;
    Ok((writer.finish().expect("memory does not fail"), merged))
}

#[allow(clippy::unwrap_used)]
fn merged(inputs: &[&[u8]]) -> Vec<u8> {
    try_merge(inputs, Encoding::Binary).unwrap().0
}

/// The state that determines the run and the time of a sample.
#[derive(Default)]
struct Context {
    tables: Tables,
    offset: u64,
    own: RunId,
    runs: HashSet<RunId>,
    tasks: HashMap<TaskId, (RunId, u64)>,
}

impl Context {
    fn apply(&mut self, record: &Record<'_>) {
        self.tables.apply(record);
        match record {
            Record::Head(head) => {
                self.own = head.run;
                self.offset = head.utc.unwrap_or(0).wrapping_sub(head.time.unwrap_or(0));
                self.runs.clear();
                self.tasks.clear();
            }
            Record::Run(head) => drop(self.runs.insert(head.run)),
            Record::Epoch(_) => self.tasks.clear(),
            Record::Task(task) => {
                let time = task.time.wrapping_add(self.offset);
                self.tasks.insert(task.id, (self.run(task.extras), time));
            }
            _ => {}
        }
    }

    fn run(&self, extras: Extras<'_>) -> RunId {
        let told = extras.number("run").map(RunId);
        told.filter(|run| self.runs.contains(run)).unwrap_or(self.own)
    }

    /// All a sample says, without ids.
    fn observation(&self, sample: &Sample<'_>) -> String {
        let tables = &self.tables;
        let event = tables
            .event(sample.event)
            .map(|event| format!("{:?} {:?} {:?}", event.name, event.period, event.more));
        let task = tables.task(sample.task).map(|task| {
            let name = tables.names.get(task.comm);
            (task.pid, task.tid, name.to_vec(), self.tasks[&sample.task])
        });
        let run = match task {
            Some((.., (run, _))) => run,
            None => self.run(sample.extras),
        };
        let stack: Vec<String> = tables.stack(sample.node).map(|frame| self.frame(frame)).collect();
        let time = sample.time.wrapping_add(self.offset);
        let Sample { cpu, weight, count, .. } = sample;
        format!("{time} {run} {event:?} {task:?} {cpu} {weight} {count} {stack:?}")
    }

    fn frame(&self, id: FrameId) -> String {
        let tables = &self.tables;
        let Some(frame) = tables.frame(id) else {
            return "lost".to_owned();
        };
        let image = tables.image(frame.image).map(|image| {
            (image.kind, image.build_id.clone(), tables.names.get(image.path).to_vec())
        });
        let calls: Vec<String> = tables
            .calls(id)
            .map(|call| {
                let name = tables.function(call.line.function).map(|name| tables.names.get(name));
                let file = tables.file(call.line.file).map(|name| tables.names.get(name));
                format!("{name:?} {file:?} {} {}", call.line.line, call.line.column)
            })
            .collect();
        let flags = (frame.kernel, frame.return_address, frame.mark, frame.status);
        format!("{image:?} {:#x} {flags:?} {calls:?}", frame.offset)
    }
}

/// All samples of a stream, in an order of their own.
#[allow(clippy::unwrap_used)]
fn observations(stream: &[u8]) -> Vec<String> {
    let (mut reader, mut context, mut all) = (Reader::new(stream), Context::default(), Vec::new());
    while let Some(record) = reader.next().unwrap() {
        context.apply(&record);
        if let Record::Sample(sample) = &record {
            all.push(context.observation(sample));
        }
    }
    all.sort();
    all
}

/// The records of a stream but the steps, as text.
#[allow(clippy::unwrap_used)]
fn without_steps(stream: &[u8]) -> Vec<String> {
    let lines = read(stream).unwrap().lines;
    lines.into_iter().filter(|line| !line.starts_with("@step")).collect()
}

fn head(stream: &[u8]) -> Head {
    match Reader::new(stream).next() {
        Ok(Some(Record::Head(head))) => *head,
        other => panic!("{other:?}"),
    }
}

fn three() -> impl Strategy<Value = [Vec<u8>; 3]> {
    [segment(), segment(), segment()].prop_map(|segments| {
        let mut run = 0;
        segments.map(|segment| {
            // Runs that are one are another matter.
            run += 1;
            let run = segment.run.wrapping_mul(4) + run;
            write(&Segment { run, ..segment }, Encoding::Binary)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn merge_keeps_every_sample_unchanged([a, b, c] in three()) {
        let stream = merged(&[&a, &b, &c]);
        let mut all = [observations(&a), observations(&b), observations(&c)].concat();
        all.sort();
        prop_assert_eq!(observations(&stream), all);
        prop_assert_eq!(read(&stream).unwrap().verdict, Verdict::Complete);
    }

    #[test]
    fn merge_is_commutative_and_associative([a, b, c] in three()) {
        let left = merged(&[&merged(&[&a, &b]), &c]);
        let right = merged(&[&a, &merged(&[&c, &b])]);
        let at_once = merged(&[&b, &c, &a]);
        let in_a_row = merged(&[&[&c[..], &a, &b].concat()]);
        let all = observations(&left);
        prop_assert_eq!(&observations(&right), &all);
        prop_assert_eq!(&observations(&at_once), &all);
        prop_assert_eq!(&observations(&in_a_row), &all);
        prop_assert_eq!(head(&left), head(&right));
        prop_assert_eq!(head(&left), head(&at_once));
    }

    #[test]
    fn merge_is_idempotent([a, b, _] in three()) {
        let once = merged(&[&a, &b]);
        let text = reencode(&once, Encoding::Text);
        prop_assert_eq!(read(&reencode(&text, Encoding::Binary)), read(&once));
        prop_assert_eq!(without_steps(&merged(&[&once])), without_steps(&once));
    }

    #[test]
    fn damage_costs_what_it_costs(
        [a, b, _] in three(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut damaged = a.clone();
        for (at, byte) in changes {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let Ok((stream, merged)) = try_merge(&[&damaged, &b], Encoding::Binary) else {
            return Ok(());
        };
        let whole = read(&damaged).unwrap().verdict == Verdict::Complete;
        prop_assert_eq!(merged.incomplete_inputs.iter().all(|incomplete| incomplete.input != "input 1"), whole);
        prop_assert_eq!(read(&stream).unwrap().verdict, Verdict::Complete);
        let there: HashSet<String> = observations(&stream).into_iter().collect();
        prop_assert!(observations(&b).iter().all(|observation| there.contains(observation)));
    }

    #[test]
    fn reports_agree_on_merged_and_separate_streams(recordings in prop::collection::vec(recording(), 1..4)) {
        let streams: Vec<Vec<u8>> =
            (1..).zip(&recordings).map(|(run, recording)| recorded(run, recording)).collect();
        let streams: Vec<&[u8]> = streams.iter().map(Vec::as_slice).collect();
        let stream = merged(&streams);
        prop_assert_eq!(report(&[&stream]), report(&streams));
        let times: Vec<u64> = times(&stream);
        prop_assert!(times.is_sorted());
        prop_assert_eq!(undefined(&stream), 0);
    }
}

/// A sample of a recording, by numbers: time since the one before, event, task, CPU, stack.
type Recorded = (u64, u8, u8, u32, Vec<u8>);

fn recording() -> impl Strategy<Value = Vec<Recorded>> {
    let stack = prop::collection::vec(0..6u8, 0..6);
    let samples = prop::collection::vec((0..1000u64, 0..2u8, 0..3u8, 0..2u32, stack), 0..60);
    samples.prop_map(|mut samples| {
        // The only frame with a name: a merge drops locations of frames without samples, and then a
        // report takes the stream for one that was never symbolized.
        samples.push((1, 0, 0, 0, vec![3]));
        samples
    })
}

/// A recording as its producer would write it: everything defined before it is used.
fn recorded(run: u64, samples: &[Recorded]) -> Vec<u8> {
    let mut text = format!(
        "@nprof\t1.1\trun={run:#x}\tclock=monotonic\ttime=1000\tutc={}\thost=h{run}\n\
         @step\ttool=recorder\tcommand={run}\n",
        1_000_000 + 77 * run
    );
    let names = ["cpu-clock", "page-faults"];
    for (i, name) in names.iter().enumerate() {
        text += &format!("@event\tid={}\tname={name}\tunit=ns\tmeasure=cpu-time\n", i + 1);
    }
    text += "I\t1\telf\t00ff\t/bin/a\nI\t2\tkernel\t-\t[kernel]\n";
    for task in 1..=3 {
        text += &format!("T\t{task}\t{}\t{task}\t{task}\t0\tworker\n", 900 + task);
    }
    text += "F\t1\t0\t0x0\tu,stack-truncated\nU\t1\tfun\t-\nD\t1\t/a.c\n";
    for frame in 2..=6 {
        text += &format!("F\t{frame}\t{}\t{:#x}\tu\n", 1 + frame % 2, frame * 16);
    }
    text += "Y\t4\tnamed\t1,1,7,0\t1,1,9,0\n";
    let (mut time, mut node) = (1000, 0);
    for (i, (delta, event, task, cpu, stack)) in samples.iter().enumerate() {
        time += delta;
        let mut leaf = 0;
        if !stack.is_empty() {
            let frames: Vec<String> =
                stack.iter().map(|frame| (u32::from(*frame) + 1).to_string()).collect();
            text += &format!("N\t{}\t0\t{}\n", node + 1, frames.join("\t"));
            node += frames.len();
            leaf = node;
        }
        let (event, weight) = (event + 1, i + 1);
        text += &format!("S\t{time}\t{event}\t{task}\t{cpu}\t{leaf}\t{weight}\t1\n");
        if i % 9 == 8 {
            text += &format!("L\t{time}\t{event}\t-\t{task}\t{i}\tring\n");
            text += &format!("X\t{time}\t1\tcomm\tname {i}\n");
        }
    }
    let records = text.lines().filter(|line| !line.starts_with(['@', 'U', 'D', 'Y'])).count();
    let count = samples.len();
    text += &format!(
        "@end\treason=exit\tstatus={run}\ttime={time}\tsamples={count}\trecords={}\tlost=0\ttask_ns=7\n",
        records + names.len()
    );
    text.into_bytes()
}

/// A report: sums by all properties of samples, and the facts of its heading.
#[allow(clippy::unwrap_used)]
fn report(streams: &[&[u8]]) -> (BTreeMap<String, (u64, u64)>, Vec<String>) {
    let mut profile = Profile::new(GroupBy { task: true, cpu: true, ..GroupBy::default() });
    let mut labels = Labels::new();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for stream in streams {
        profile
            .read("x", *stream, |tables, cell, sum| {
                let stack: Vec<String> = tables
                    .stack_calls(cell.node)
                    .map(|call| {
                        let label = labels.label(tables, call, CallKey::Line);
                        String::from_utf8_lossy(labels.names.get(label)).into_owned()
                    })
                    .collect();
                let name = |comm| String::from_utf8_lossy(tables.names.get(comm));
                let task = tables.task(cell.task).map(|task| (task.pid, name(cell.comm)));
                let (run, event, cpu) = (cell.run, cell.event, cell.cpu);
                let key = format!("{run} {event} {task:?} {cpu} {stack:?}");
                let entry = sums.entry(key).or_default();
                entry.0 += sum.samples;
                entry.1 += sum.weight;
            })
            .unwrap();
    }
    let summary = &profile.summary;
    assert!(summary.is_complete(), "{:?}", summary.incomplete_inputs);
    let mut facts = summary.heading();
    facts.extend(
        summary.runs.iter().map(|run| format!("{:?} {:?} {}", run.head, run.end, run.samples)),
    );
    facts.extend(summary.events.iter().map(|event| format!("{event:?}")));
    (sums, facts)
}

/// The number of ids that are used and not defined.
#[allow(clippy::unwrap_used)]
fn undefined(stream: &[u8]) -> u64 {
    let (mut reader, mut order) = (Reader::new(stream), Validator::new());
    while let Some(record) = reader.next().unwrap() {
        order.take(&record);
    }
    order.undefined
}

#[allow(clippy::unwrap_used)]
fn times(stream: &[u8]) -> Vec<u64> {
    let (mut reader, mut times) = (Reader::new(stream), Vec::new());
    while let Some(record) = reader.next().unwrap() {
        times.extend(match record {
            Record::Sample(sample) => Some(sample.time),
            _ => None,
        });
    }
    times
}
