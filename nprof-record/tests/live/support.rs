//! Runs the recorder and reads its stream.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use nprof_stream::labels::{CallKey, Labels};
use nprof_stream::tables::Tables;
use nprof_stream::{End, Event, Mark, NodeId, Reader, Record, Verdict};

/// Returns a command that runs the recorder with these arguments.
pub(crate) fn recorder<S: AsRef<OsStr>>(words: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nprof-record"));
    command.args(words);
    command
}

/// Runs the recorder to its end.
pub(crate) fn record(words: &[&str]) -> Output {
    recorder(words).output().expect("the recorder runs")
}

/// Records a program as a user without privileges, into a file of the directory. An error if setpriv
/// cannot be executed.
pub(crate) fn record_as_other_user(
    directory: &Directory,
    file: &str,
    program: &str,
) -> io::Result<Output> {
    record_as_other_user_with(directory, file, program, &[])
}

/// The same with options.
pub(crate) fn record_as_other_user_with(
    directory: &Directory,
    file: &str,
    program: &str,
    options: &[&str],
) -> io::Result<Output> {
    let recorder = directory.path("nprof-record");
    copy_recorder(&recorder);
    // The other user executes the recorder here and writes the stream.
    fs::set_permissions(directory.path(""), Permissions::from_mode(0o777)).expect("open to all");
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    Command::new("setpriv")
        .args(user)
        .args([&recorder, "-o", file])
        .args(options)
        .args(["--", program])
        .output()
}

/// Copies the recorder, by another process: the children of a test beside this one would inherit the
/// descriptor of the copy, which cannot be executed while it is open for writing.
pub(crate) fn copy_recorder(to: &str) {
    let copied = Command::new("cp").args([env!("CARGO_BIN_EXE_nprof-record"), to]).status();
    assert!(copied.expect("cp runs").success());
}

/// True if the recorder may not sample, which is printed: the kernels of Debian and Ubuntu refuse ordinary
/// users from kernel.perf_event_paranoid 3 on.
pub(crate) fn is_refused(output: &Output) -> bool {
    let is_refused = stderr(output).contains("permission denied: kernel.perf_event_paranoid");
    if is_refused {
        eprintln!("SKIPPED: {}", stderr(output));
    }
    is_refused
}

/// Returns the standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A temporary directory of one test, removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates a directory with this prefix in the build's temporary directory.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Compiles a program. None if there is no compiler, which is printed.
    pub(crate) fn compile(&self, compiler: &str, source: &str, options: &[&str]) -> Option<String> {
        let program = self.path("program");
        let file = self.path(if compiler == "g++" { "program.cc" } else { "program.c" });
        std::fs::write(&file, source).expect("written");
        let headers = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/live");
        let words = [&file, "-o", &program, headers];
        match Command::new(compiler).args(words).args(options).status() {
            Ok(status) => assert!(status.success(), "{compiler} {options:?}"),
            // Machines without compilers still run the other tests.
            Err(_) => {
                eprintln!("SKIPPED: there is no {compiler}");
                return None;
            }
        }
        Some(program)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A control group of one test, removed on drop.
pub(crate) struct ControlGroup(pub(crate) String);

impl ControlGroup {
    /// Creates a group. None if none can be created, which is printed.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let mount = mount.and_then(|line| line.split(' ').nth(4));
        let group = mount.map(|mount| format!("{mount}/nprof-{name}-{}", std::process::id()));
        let created = group.filter(|group| fs::create_dir(group).is_ok());
        if created.is_none() {
            eprintln!("SKIPPED: no control group can be created");
        }
        created.map(Self)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel removes a task from its group a moment after its parent has waited for it.
        for _ in 0..1000 {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}

/// Waits until a process executes `sleep` and sleeps, or has ended.
pub(crate) fn wait_until_asleep(pid: u32) {
    let is_starting = |stat: String| !stat.contains("(sleep) S") && !stat.contains(") Z");
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(is_starting) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A stack, leaf first: of each frame the image's name and whether it is in the kernel.
pub(crate) type Frames = Vec<(String, bool)>;

/// A sample with its resolved stack.
pub(crate) struct StackSample {
    pub(crate) comm: String,
    pub(crate) weight: u64,
    pub(crate) mark: Mark,
    pub(crate) frames: Frames,
    /// The image offset of each frame; for return addresses minus one, so that it is in the call.
    pub(crate) offsets: Vec<u64>,
}

/// The names on a stack, leaf first.
pub(crate) struct NamedStack {
    pub(crate) names: Vec<String>,
    pub(crate) mark: Mark,
}

/// Returns the tables at the end of a stream of one epoch, the leaf nodes of its samples, and its
/// verdict.
pub(crate) fn sampled_nodes(bytes: &[u8]) -> (Tables, Vec<NodeId>, Verdict) {
    let (mut tables, mut nodes) = (Tables::new(), Vec::new());
    let mut reader = Reader::new(bytes);
    while let Some(record) = reader.next().expect("a stream") {
        tables.apply(&record);
        if let Record::Sample(sample) = record {
            nodes.push(sample.node);
        }
    }
    (tables, nodes, reader.verdict())
}

/// Returns the stacks of all samples of a stream, of one epoch. Names that arrived later count, too.
pub(crate) fn named_stacks(bytes: &[u8]) -> Vec<NamedStack> {
    let (tables, nodes, _) = sampled_nodes(bytes);
    let mut labels = Labels::new();
    let stacks = nodes.into_iter().map(|node| {
        let calls: Vec<_> = tables.stack_calls(node).collect();
        let mut name = |call| {
            let label = labels.label(&tables, call, CallKey::Function);
            String::from_utf8_lossy(labels.names.get(label)).into_owned()
        };
        let names = calls.into_iter().map(&mut name).collect();
        NamedStack { names, mark: frames(&tables, node).2 }
    });
    stacks.collect()
}

/// The parts of a stream that the tests check.
pub(crate) struct Stream {
    pub(crate) verdict: Verdict,
    /// The last event.
    pub(crate) event: Event,
    /// The names of all events.
    pub(crate) events: Vec<String>,
    pub(crate) end: Option<End>,
    pub(crate) samples: Vec<StackSample>,
    /// The number of samples with `stitched=`.
    pub(crate) stitched: u64,
    /// The CPUs that have samples.
    pub(crate) cpus: Vec<u32>,
    /// The number of tasks.
    pub(crate) tasks: usize,
    /// The values of `exit` changes.
    pub(crate) exits: Vec<String>,
    /// The values of `exec` changes: command names.
    pub(crate) executed: Vec<String>,
}

impl Stream {
    /// Reads a stream to its end.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut stream = Self {
            verdict: Verdict::Damaged,
            event: Event::default(),
            events: Vec::new(),
            end: None,
            samples: Vec::new(),
            stitched: 0,
            cpus: Vec::new(),
            tasks: 0,
            exits: Vec::new(),
            executed: Vec::new(),
        };
        let mut tables = Tables::new();
        let mut reader = Reader::new(bytes);
        while let Some(record) = reader.next().expect("a stream") {
            tables.apply(&record);
            match &record {
                Record::Event(event) => {
                    stream.event = (**event).clone();
                    stream.events.push(String::from_utf8_lossy(&event.name).into_owned());
                }
                Record::End(end) => stream.end = Some((**end).clone()),
                Record::Task(_) => stream.tasks += 1,
                Record::Change(change) => {
                    let value = String::from_utf8_lossy(change.value).into_owned();
                    match change.kind.word() {
                        Some("exit") => stream.exits.push(value),
                        Some("exec") => stream.executed.push(value),
                        _ => {}
                    }
                }
                Record::Sample(sample) => {
                    let task = tables.task(sample.task).expect("a task");
                    let comm = String::from_utf8_lossy(tables.names.get(task.comm)).into_owned();
                    stream.stitched += u64::from(sample.extras.get("stitched").is_some());
                    if !stream.cpus.contains(&sample.cpu) {
                        stream.cpus.push(sample.cpu);
                    }
                    let (frames, offsets, mark) = frames(&tables, sample.node);
                    let weight = sample.weight;
                    stream.samples.push(StackSample { comm, weight, mark, frames, offsets });
                }
                _ => {}
            }
        }
        stream.verdict = reader.verdict();
        stream
    }

    /// Reads the stream in a file.
    pub(crate) fn from_file(path: &str) -> Self {
        Self::read(&std::fs::read(path).expect("a file"))
    }

    /// Returns the share of the used CPU time that samples cover.
    pub(crate) fn coverage(&self) -> f64 {
        let end = self.end.as_ref().expect("an end");
        end.sampled_ns.expect("a clock") as f64 / end.task_ns.expect("known").max(1) as f64
    }

    /// Returns the share of the used CPU time that samples cover, with the lost ones.
    pub(crate) fn accounted(&self) -> f64 {
        let end = self.end.as_ref().expect("an end");
        let (kept, lost) = (self.samples.len() as f64, end.lost as f64);
        self.coverage() * (kept + lost) / kept.max(1.0)
    }

    /// Returns the reason why a condition on all samples need not hold: the recorder had to wait so
    /// long for a CPU that samples were lost. None if none were.
    pub(crate) fn overload(&self) -> Option<String> {
        let end = self.end.as_ref().expect("an end");
        let lost = end.lost + end.lost_others.unwrap_or(0);
        (lost > 0).then(|| format!("the machine is busy: {lost} samples were lost"))
    }

    /// Returns the share of samples with a complete stack.
    pub(crate) fn complete(&self) -> f64 {
        let complete = self.samples.iter().filter(|sample| sample.mark == Mark::None).count();
        complete as f64 / self.samples.len().max(1) as f64
    }
}

/// Returns the frames of a stack, leaf first, the offset of each, and the reason why it is incomplete.
pub(crate) fn frames(tables: &Tables, mut node: NodeId) -> (Frames, Vec<u64>, Mark) {
    let mut frames = Frames::new();
    let mut offsets = Vec::new();
    let mut mark = Mark::None;
    // From the leaf to the root. An incomplete stack has its mark at the root.
    while let Some((parent, frame)) = tables.node(node) {
        let entry = tables.frame(frame).expect("a frame");
        match entry.mark {
            Mark::None => {
                let image = tables
                    .image(entry.image)
                    .map_or(&b"?"[..], |image| tables.names.get(image.name));
                frames.push((String::from_utf8_lossy(image).into_owned(), entry.kernel));
                offsets.push(entry.offset.wrapping_sub(u64::from(entry.return_address)));
            }
            other => mark = other,
        }
        node = parent;
    }
    (frames, offsets, mark)
}

/// True if this user may record on this machine; prints SKIPPED if not.
pub(crate) fn can_record() -> bool {
    let output = record(&["-o", "/dev/null", "true"]);
    let may = output.status.success();
    if !may {
        eprintln!("SKIPPED: {}", stderr(&output));
    }
    may
}
