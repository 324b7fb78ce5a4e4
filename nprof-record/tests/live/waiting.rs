//! Recordings of waiting, as the tests of waits read them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;
use std::rc::Rc;

use nprof_stream::tables::Tables;
use nprof_stream::{ChangeKind, End, Event, Mark, Reader, Record, TaskId};

use crate::support::{Directory, Frames, frames, record, stderr};
use crate::symbols::Symbols;

/// The default interval of the events, in ns.
pub(crate) const PERIOD_NS: u64 = 1_003_010;

/// A sample of any event.
pub(crate) struct Observation {
    pub(crate) event: String,
    pub(crate) task: TaskId,
    pub(crate) weight: u64,
    pub(crate) count: u64,
    /// 0 for events other than waits and wake-ups.
    pub(crate) lasted_ns: u64,
    pub(crate) call: String,
    pub(crate) on: String,
    pub(crate) state: String,
    pub(crate) pair: Option<u64>,
    pub(crate) mark: Mark,
    pub(crate) frames: Frames,
    offsets: Vec<u64>,
}

impl Observation {
    /// True for a sample of `blocked` or `runnable`.
    pub(crate) fn is_wait(&self) -> bool {
        self.event == "blocked" || self.event == "runnable"
    }
}

/// The life of a thread.
pub(crate) struct Life {
    pub(crate) pid: u32,
    /// Its name at first.
    pub(crate) comm: Vec<u8>,
    /// None if its end is not in the stream.
    pub(crate) exit_ns: Option<u64>,
}

/// The exact times of a thread.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) task: TaskId,
    /// The time up to which it was measured.
    pub(crate) end_ns: u64,
    pub(crate) wall: u64,
    pub(crate) cpu: u64,
    pub(crate) runnable: u64,
    pub(crate) blocked: u64,
}

/// A recording of waiting.
pub(crate) struct Recording {
    directory: Rc<Directory>,
    pub(crate) output: Output,
    pub(crate) events: Vec<Event>,
    pub(crate) samples: Vec<Observation>,
    pub(crate) times: Vec<Times>,
    pub(crate) lives: BTreeMap<TaskId, Life>,
    pub(crate) end: End,
}

impl Recording {
    /// Compiles a program and records it. None if it cannot be compiled, or waiting cannot be measured
    /// here, which is printed.
    pub(crate) fn of_program(
        name: &str,
        source: &str,
        flags: &[&str],
        options: &[&str],
        operands: &[&str],
    ) -> Option<Self> {
        let directory = Directory::new(name);
        let program = directory.compile("gcc", source, &[&["-O1", "-pthread"], flags].concat())?;
        Self::of(directory, &[options, &["--", &program], operands].concat())
    }

    /// Records with these options and operands. None if BPF programs cannot measure waiting here, which
    /// is printed.
    pub(crate) fn of(directory: Directory, words: &[&str]) -> Option<Self> {
        let file = directory.path("out");
        let output = record(&[&["-o", &file][..], words].concat());
        let message = stderr(&output);
        if ["cannot measure waiting", "hides its addresses"].iter().any(|it| message.contains(it)) {
            eprintln!("SKIPPED: {message}");
            return None;
        }
        assert!(output.status.success(), "{message}");
        let recording = Self::of_output(&Rc::new(directory), "out", output);
        if recording.is_by_switches() {
            eprintln!("SKIPPED: no BPF programs measure waiting: {}", stderr(&recording.output));
            return None;
        }
        Some(recording)
    }

    /// Reads the stream that a recorder with this output has written to a file of the directory.
    pub(crate) fn of_output(directory: &Rc<Directory>, file: &str, output: Output) -> Self {
        let bytes = fs::read(directory.path(file)).expect("a file");
        let mut all = Self {
            directory: directory.clone(),
            output,
            events: Vec::new(),
            samples: Vec::new(),
            times: Vec::new(),
            lives: BTreeMap::new(),
            end: End::default(),
        };
        let (mut tables, mut reader) = (Tables::new(), Reader::new(&bytes[..]));
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match record {
                Record::Event(event) => all.events.push((*event).clone()),
                Record::End(end) => all.end = *end,
                Record::Task(task) => {
                    let comm = task.comm.to_vec();
                    all.lives.insert(task.id, Life { pid: task.pid, comm, exit_ns: None });
                }
                Record::Change(change) if change.kind == ChangeKind::Exit => {
                    if let Some(life) = all.lives.get_mut(&change.task) {
                        life.exit_ns = Some(change.time);
                    }
                }
                Record::Sample(sample) => {
                    let event = &all.events[sample.event.0 as usize - 1].name;
                    let word = |key| {
                        let value = sample.extras.get(key).unwrap_or_default();
                        match (&event[..], key, &value[..]) {
                            (b"runnable", "call", b"") => "preempted".to_owned(),
                            (b"runnable", "state", b"") => "R".to_owned(),
                            _ => String::from_utf8_lossy(&value).into_owned(),
                        }
                    };
                    let (frames, offsets, mark) = frames(&tables, sample.node);
                    all.samples.push(Observation {
                        event: String::from_utf8_lossy(event).into_owned(),
                        task: sample.task,
                        weight: sample.weight,
                        count: sample.count,
                        lasted_ns: sample.extras.number("lasted").unwrap_or(sample.weight),
                        call: word("call"),
                        on: word("on"),
                        state: word("state"),
                        pair: sample.extras.number("pair"),
                        mark,
                        frames,
                        offsets,
                    });
                }
                Record::Change(change) if change.kind == ChangeKind::Times => {
                    let ns = |key| change.extras.number(key).unwrap_or(0);
                    let [cpu, runnable, blocked] = ["cpu", "runnable", "blocked"].map(ns);
                    let wall = change.extras.number("wall").unwrap_or(cpu + runnable + blocked);
                    let (task, end_ns) = (change.task, change.time);
                    all.times.push(Times { task, end_ns, wall, cpu, runnable, blocked });
                }
                _ => {}
            }
        }
        all
    }

    /// True if waiting was measured without BPF programs.
    pub(crate) fn is_by_switches(&self) -> bool {
        self.events.iter().any(|event| event.capture == b"switches")
    }

    /// Returns the numbers that the program has printed.
    pub(crate) fn printed(&self) -> Vec<f64> {
        let text = String::from_utf8_lossy(&self.output.stdout).into_owned();
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    }

    /// Returns the waits.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &Observation> {
        self.samples.iter().filter(|sample| sample.is_wait())
    }

    /// Asserts that the times of each thread add up.
    pub(crate) fn assert_books_close(&self) {
        for Times { wall, cpu, runnable, blocked, .. } in &self.times {
            let sum = cpu + runnable + blocked;
            assert!(wall.abs_diff(sum) <= wall / 1000 + PERIOD_NS, "{wall} {sum}");
        }
    }

    /// Asserts that [`Self::inexact_waits`] finds nothing.
    pub(crate) fn assert_waits_are_exact(&self) {
        assert_eq!(self.inexact_waits(), [] as [String; 0]);
    }

    /// Returns lines on the threads of which the waits have another sum than its times, in a recording
    /// with the events `blocked` and `runnable`. Waits of a period or more are exact; the sum of the
    /// shorter ones is within a period for each event, and so is the last part of a wait that is recorded
    /// in parts. None are known if samples were lost, as on a machine that did not run.
    ///
    /// Samples of the CPU clock have no such bound: the kernel's timer skips periods in which the
    /// interrupt was late.
    pub(crate) fn inexact_waits(&self) -> Vec<String> {
        if self.end.lost > 0 {
            eprintln!("{} samples were lost", self.end.lost);
            return Vec::new();
        }
        let mut inexact = Vec::new();
        for times in &self.times {
            let own: Vec<_> = self.waits().filter(|wait| wait.task == times.task).collect();
            let weight: u64 = own.iter().map(|wait| wait.weight).sum();
            let exact = times.runnable + times.blocked;
            if weight.abs_diff(exact) > exact / 100 + 6 * PERIOD_NS {
                let long = own.iter().filter(|wait| wait.weight >= exact / 100);
                let long: Vec<_> =
                    long.map(|wait| (&wait.event, &wait.call, wait.weight)).collect();
                inexact.push(format!("{weight} of {exact}, {} on a CPU: {long:?}", times.cpu));
            }
        }
        inexact
    }

    /// Returns the sum of the weights of an event.
    pub(crate) fn weight_of(&self, event: &str) -> u64 {
        self.samples.iter().filter(|it| it.event == event).map(|it| it.weight).sum()
    }

    /// Returns the sum of the weights of waits in a system call.
    pub(crate) fn weight_in(&self, call: &str) -> u64 {
        self.waits().filter(|wait| wait.call == call).map(|wait| wait.weight).sum()
    }

    /// Returns the names of the functions of the program and of the kernel.
    pub(crate) fn names(&self) -> Names {
        let program = Symbols::from_file(&self.directory.path("program"));
        Names { program, kernel: kernel_functions() }
    }
}

/// The functions of a program and of the kernel.
pub(crate) struct Names {
    program: Symbols,
    /// By offset from the start of the kernel's text.
    kernel: BTreeMap<u64, String>,
}

impl Names {
    /// Returns the kernel's function at the leaf of a sample; empty if there is none.
    pub(crate) fn leaf<'a>(&'a self, sample: &Observation) -> &'a str {
        match sample.frames.first() {
            Some((image, true)) if image == "[kernel]" => {
                let found = self.kernel.range(..=sample.offsets[0]).next_back();
                found.map_or("", |(_, name)| name)
            }
            _ => "",
        }
    }

    /// Returns the program's functions on a stack, leaf first.
    pub(crate) fn calls<'a>(&'a self, sample: &Observation) -> Vec<&'a str> {
        let frames = sample.frames.iter().zip(&sample.offsets);
        let own = frames.filter(|((image, _), _)| image.ends_with("program"));
        own.filter_map(|(_, &offset)| self.program.at(offset)).collect()
    }
}

fn kernel_functions() -> BTreeMap<u64, String> {
    let text = fs::read_to_string("/proc/kallsyms").expect("the kernel's symbols");
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
        Some((address, words.next()?)).filter(|_| is_code)
    });
    let symbols: Vec<_> = lines.collect();
    let start = symbols.iter().find(|(_, name)| *name == "_stext").map_or(0, |(start, _)| *start);
    let within = symbols.iter().filter(|(address, _)| *address >= start);
    within.map(|(address, name)| (address - start, (*name).to_owned())).collect()
}
