//! Compiles and runs programs with the library, and reads their rings.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nprof_preload::protocol::{Allocated, Content, Hello, Record, Settings, VARIABLE};
use nprof_preload::{LIBRARY, Listener, Losses, Ring};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A directory with programs and the library.
pub(crate) struct Workshop {
    directory: tempfile::TempDir,
}

/// A process that connected, with its records.
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) hello: Hello,
    pub(crate) losses: Losses,
    records: Vec<(u32, Vec<u8>)>,
}

/// A program's run.
pub(crate) struct Run {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) processes: Vec<Process>,
}

impl Workshop {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("libnprof.so"), LIBRARY).unwrap();
        Workshop { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Compiles a program; the first of the options is the compiler. None, with a message, without the compiler.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        source: &str,
        options: &[&str],
    ) -> Option<PathBuf> {
        let extension = if compiler.contains("++") { "cpp" } else { "c" };
        let input = self.path().join(format!("program.{extension}"));
        std::fs::write(&input, source).unwrap();
        let output = self.path().join(format!("program-{}-{}", compiler, options.len()));
        let command = Command::new(compiler)
            .args(["-O1", "-g", "-fno-builtin", "-pthread", "-w", "-o"])
            .arg(&output)
            .arg(&input)
            .args(options)
            .status();
        let Ok(status) = command else {
            println!("SKIPPED {compiler}: not installed");
            return None;
        };
        assert!(status.success());
        Some(output)
    }

    /// Returns a command that runs a program with the library and settings.
    pub(crate) fn command(&self, program: &Path, settings: &Settings<'_>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", self.path().join("libnprof.so"))
            .env(VARIABLE, settings.to_string());
        command
    }

    /// Runs a program with the library until it exits, and reads all rings.
    pub(crate) fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        settings: impl Fn(&mut Settings<'_>),
    ) -> Run {
        self.run_with(program, settings, |command| {
            command.args(arguments);
        })
    }

    /// Like `run`; the command can be changed before it starts.
    pub(crate) fn run_with(
        &self,
        program: &Path,
        change: impl Fn(&mut Settings<'_>),
        prepare: impl Fn(&mut Command),
    ) -> Run {
        let mut listener = Listener::bind().unwrap();
        let name = listener.name().to_owned();
        let mut settings = settings(&name, listener.secret());
        change(&mut settings);
        let mut command = self.command(program, &settings);
        prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || std::io::read_to_string(output).unwrap());
        let mut rings = Rings::default();
        let status = loop {
            let status = child.try_wait().unwrap();
            rings.read(&mut listener);
            if let Some(status) = status {
                break status;
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            poll(&mut [PollFd::new(&listener.as_fd(), PollFlags::IN)], Some(&pause)).unwrap();
        };
        let output = reader.join().unwrap();
        rings.have_ended = true;
        rings.read(&mut listener);
        Run {
            status,
            output,
            processes: rings.processes.into_iter().map(|(process, _)| process).collect(),
        }
    }
}

/// Returns the settings of the tests: every allocation, 2 KiB of stack, no loss.
pub(crate) fn settings(socket: &str, secret: u64) -> Settings<'_> {
    Settings {
        socket,
        secret,
        heap_period: 1,
        call_period: 0,
        stack_bytes: 2048,
        ring_bytes: 1 << 20,
        memos: true,
        descriptors: false,
        wait: true,
        acknowledge: false,
    }
}

/// The rings of a run.
#[derive(Default)]
pub(crate) struct Rings {
    pub(crate) processes: Vec<(Process, Ring)>,
    /// True if all processes have exited.
    have_ended: bool,
    /// The time since which no record was complete.
    stuck_since: Option<Instant>,
}

impl Rings {
    /// Accepts new processes and reads all records that are complete.
    pub(crate) fn read(&mut self, listener: &mut Listener) {
        while let Some(connection) = listener.accept().unwrap() {
            let process = Process {
                pid: connection.pid,
                hello: connection.hello,
                losses: Losses::default(),
                records: Vec::new(),
            };
            self.processes.push((process, connection.ring));
        }
        for (process, ring) in &mut self.processes {
            let mut buffer = Vec::new();
            let mut count = 0;
            let pid = process.pid;
            // An unknown thread has ended between two instructions, or it would have gone on.
            let since = self.stuck_since.get_or_insert_with(Instant::now);
            let may_go_on = !self.have_ended && since.elapsed() < Duration::from_secs(3);
            let lives = |tid: Option<u32>| match tid {
                Some(tid) => Path::new(&format!("/proc/{pid}/task/{tid}")).exists(),
                None => may_go_on,
            };
            loop {
                while let Some(kind) = ring.next(&mut buffer).unwrap() {
                    process.records.push((kind, buffer.clone()));
                    count += 1;
                    if count % 100 == 0 {
                        ring.release_room();
                    }
                }
                if !ring.skip_abandoned(lives) {
                    break;
                }
                count += 1;
            }
            if count > 0 || !ring.has_unread() {
                self.stuck_since = None;
            }
            ring.release_room();
            process.losses = ring.losses();
        }
    }
}

/// The sums of a process's allocations.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Totals {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
    pub(crate) weight: u64,
    pub(crate) count: u64,
    /// The blocks that are live at the end, with their sizes.
    pub(crate) live: HashMap<u64, u64>,
}

impl Process {
    /// Drops the records so far.
    pub(crate) fn forget(&mut self) {
        self.records.clear();
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.records
            .iter()
            .map(|(kind, bytes)| Record::parse(*kind, bytes).expect("a well-formed record"))
    }

    pub(crate) fn allocations(&self) -> impl Iterator<Item = Allocated<'_>> {
        self.records().filter_map(|record| match record.content {
            Content::Allocated(allocated) => Some(allocated),
            _ => None,
        })
    }

    /// Returns the calls of instrumented functions: the thread, the weight and the address after the call of the hook.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.records().filter_map(|record| match record.content {
            Content::Called(called) => {
                Some((record.tid, called.weight, called.capture.registers.ip))
            }
            _ => None,
        })
    }

    /// Replays the records in their order, and checks that each free is that of a live block and no block is
    /// allocated twice.
    pub(crate) fn totals(&self, inherited: &HashMap<u64, u64>) -> Totals {
        let mut totals = Totals { live: inherited.clone(), ..Totals::default() };
        let mut last_freed = HashMap::new();
        for record in self.records() {
            match record.content {
                Content::Allocated(block) => {
                    totals.allocations += 1;
                    totals.bytes += block.size;
                    totals.weight += block.weight;
                    totals.count += u64::from(block.count);
                    let former = totals.live.insert(block.pointer, block.size);
                    assert_eq!(former, None, "{:#x} was allocated twice", block.pointer);
                }
                Content::Freed(pointer) => {
                    let size = totals.live.remove(&pointer).expect("the freed block is live");
                    last_freed.insert((record.tid, pointer), size);
                }
                Content::Kept(pointer) => {
                    let size = last_freed[&(record.tid, pointer)];
                    totals.live.insert(pointer, size);
                }
                _ => {}
            }
        }
        totals
    }
}

impl Run {
    /// Returns the only process of a run.
    pub(crate) fn only(&self) -> &Process {
        assert_eq!(self.processes.len(), 1, "processes");
        &self.processes[0]
    }
}
