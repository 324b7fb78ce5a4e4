//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, ValueEnum};

use nprof_cli::time;

use crate::event::{self, CpuMode, EventSpec, StackMode};
use crate::os::machine;
use crate::perf::waits::windows::Windows;
use crate::session::recording::Times;
use crate::sys::duration_ns;

/// The largest stack copy: the largest multiple of 8 below USHRT_MAX, since the size of a record is
/// a 16-bit number (`perf_copy_attr`, kernel/events/core.c).
const STACK_MAX: u32 = 65528;

/// The default of `--stack-size`: 60 KiB. A record is smaller than 64 KiB, and the rest of it has
/// room for the registers and the kernel's call chain.
const STACK_BYTES: u32 = 61440;

/// The shortest window in which waits are recorded: to attach the programs takes tens of microseconds.
const WINDOW_MIN_NS: u64 = 1_000_000;

/// Run a command and sample it with all its children, or sample running processes.
///
/// Writes an nprof stream to FILE. Without -o, writes to standard output if that is not a terminal
/// (the standard output of the command is then redirected to standard error), otherwise to
/// PID.nprof in the current directory. Exits with the status of the command, 128+N for signal N;
/// with 125 if nprof-record fails, 126 if the command cannot be executed, 127 if it is not found.
#[derive(Debug, Parser)]
#[command(
    version,
    override_usage = "nprof-record [options] [--] command [args]\n       \
                      nprof-record [options] -p PID[,PID...]\n       \
                      nprof-record [options] -a | --cgroup NAME\n       \
                      nprof-record -l",
    group = ArgGroup::new("target").required(true)
)]
pub(crate) struct Args {
    /// Write the stream to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Sampling frequency: samples per second of CPU time [default: 997]
    #[arg(short = 'F', value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frequency: Option<u64>,

    /// Period of events that have none in -e: events from one sample to the next
    #[arg(short = 'c', value_name = "N", conflicts_with = "frequency", value_parser = EventSpec::parse_period)]
    pub(crate) count: Option<u64>,

    /// Sample by this event, see -l; can be repeated. The default is cycles if the machine counts
    /// them, otherwise cpu-clock
    #[arg(short, value_name = "NAME[:PERIOD][/u][k]", default_value = event::DEFAULT_EVENT, value_parser = EventSpec::parse)]
    pub(crate) event: Vec<EventSpec>,

    /// Sample these processes, all their threads and new children
    #[arg(short, value_name = "PID", group = "target", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Vec<u32>,

    /// With -p: sample the existing children of the processes, too, and the children of these
    #[arg(long, conflicts_with_all = ["command", "all", "cgroup", "list"])]
    pub(crate) descendants: bool,

    /// Sample the whole system
    #[arg(short, group = "target")]
    pub(crate) all: bool,

    /// Sample the tasks of this control group (cgroup v2)
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) cgroup: Option<String>,

    /// List the events and whether they are available
    #[arg(short, group = "target", exclusive = true)]
    pub(crate) list: bool,

    /// Sample only these CPUs, for example 0-3,5
    #[arg(short = 'C', value_name = "CPUS", value_parser = cpus)]
    pub(crate) cpus: Option<Cpus>,

    /// How the command or processes and their children are followed
    #[arg(long, value_name = "HOW", value_enum, default_value_t = FollowArg::Auto)]
    pub(crate) follow: FollowArg,

    /// How stacks are captured
    #[arg(long, value_name = "HOW", value_enum, default_value_t = UnwindArg::Auto)]
    unwind: UnwindArg,

    /// Record stacks (the default; accepted for users of perf)
    #[arg(short = 'g')]
    stacks: bool,

    /// Same as --unwind, for users of perf: dwarf or fp
    #[arg(long, value_name = "HOW", value_parser = call_graph, conflicts_with = "unwind")]
    call_graph: Option<UnwindArg>,

    /// Keep at most N frames of a stack, beginning with the running function
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=32768))]
    depth: u32,

    /// Bytes of user stack to copy per sample: more reaches deeper and costs more
    #[arg(long, value_name = "BYTES", default_value_t = STACK_BYTES, value_parser = stack_size)]
    pub(crate) stack_size: u32,

    /// Sample only user code
    #[arg(long, conflicts_with = "kernel_only")]
    user_only: bool,

    /// Sample only the kernel
    #[arg(long)]
    kernel_only: bool,

    /// Stop sampling after this time, such as 10s or 500ms; the command continues
    #[arg(short, value_name = "TIME", value_parser = time::interval)]
    duration: Option<Duration>,

    /// Delay before sampling starts
    #[arg(long, value_name = "TIME", value_parser = time::interval)]
    delay: Option<Duration>,

    /// Count the calls of the functions in FILE, a list by nprof-symbolize --entries: exactly, by
    /// function, thread and second
    #[arg(long, value_name = "FILE")]
    pub(crate) calls: Option<PathBuf>,

    /// With --calls: count EVENT as well, such as page-faults or instructions, exactly, by the
    /// functions of the list that a thread is in: the event EVENT.exact
    #[arg(long, value_name = "EVENT", requires = "calls", value_parser = EventSpec::parse)]
    pub(crate) calls_event: Option<EventSpec>,

    /// With --calls: stop counting a function that is called more often per second
    #[arg(long, value_name = "N", default_value_t = 200_000, requires = "calls", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) calls_limit: u64,

    /// Record waits in one window of LENGTH in each INTERVAL only, such as 10ms/100ms: the cost is in this
    /// ratio, too
    #[arg(long, value_name = "LENGTH/INTERVAL", value_parser = wait_windows)]
    pub(crate) wait_windows: Option<Windows>,

    /// Write the live blocks of all processes at intervals of this time: heap.snapshot
    #[arg(long, value_name = "TIME", value_parser = time::interval)]
    pub(crate) snapshot: Option<Duration>,

    /// Copy the files of images with frames into DIR, to symbolize them later
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_images: Option<PathBuf>,

    /// Record the machine code of functions generated at run time, for nprof-annotate
    #[arg(long)]
    pub(crate) code: bool,

    /// Note the service that the recording is of, and its version, for nprof-export --to parquet
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub(crate) service: Option<String>,

    /// Do not print the summary
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The command and its arguments
    #[arg(group = "target", trailing_var_arg = true, value_name = "command")]
    pub(crate) command: Vec<OsString>,
}

/// The CPUs to sample, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<u32>);

/// The values of `--follow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FollowArg {
    /// system if the privileges suffice and no samples are lost by it, otherwise inherit
    Auto,
    /// Sample all CPUs and drop the samples of other processes
    System,
    /// Run the command in a new control group and sample that
    Cgroup,
    /// Child tasks inherit the events of the command or processes
    Inherit,
}

/// The values of `--unwind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnwindArg {
    /// By unwind tables where the kernel can copy stacks, otherwise by frame pointers
    Auto,
    /// By unwind tables, from a copy of the stack
    Dwarf,
    /// By frame pointers, in the kernel
    Fp,
    /// No stacks, only the running function
    None,
}

impl Args {
    /// Returns the way to capture stacks. None if the recorder selects it.
    pub(crate) fn unwind(&self) -> Option<StackMode> {
        match self.call_graph.unwrap_or(self.unwind) {
            UnwindArg::Auto => None,
            UnwindArg::Dwarf => Some(StackMode::Dwarf),
            UnwindArg::Fp => Some(StackMode::FramePointer),
            UnwindArg::None => Some(StackMode::None),
        }
    }

    /// Returns the CPU modes to sample for events without modifiers.
    pub(crate) fn mode(&self) -> CpuMode {
        if self.user_only {
            CpuMode::User
        } else if self.kernel_only {
            CpuMode::Kernel
        } else {
            CpuMode::Both
        }
    }

    /// Returns the time span to sample.
    pub(crate) fn times(&self) -> Times {
        Times { delay: self.delay, duration: self.duration }
    }

    /// Returns the samples per second of events without a period.
    pub(crate) fn frequency(&self) -> u64 {
        // A prime, so that sampling is not synchronous with timers of 100 Hz or 1000 Hz.
        self.frequency.unwrap_or(997)
    }

    /// Returns the largest number of frames of a stack.
    pub(crate) fn depth(&self) -> usize {
        self.depth as usize
    }
}

/// Parses the value of `-C`: a list of numbers and ranges of online CPUs.
fn cpus(list: &str) -> Result<Cpus, String> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let range = machine::cpu_list(part);
        if range.is_empty() {
            return Err("expected CPUs, for example 0-3,5".to_owned());
        }
        cpus.extend(range);
    }
    cpus.sort_unstable();
    cpus.dedup();
    // The kernel refuses events on offline CPUs with ENODEV, which reads like a missing counter.
    let online = machine::online_cpus();
    if let Some(offline) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        return Err(format!("CPU {offline} is offline"));
    }
    Ok(Cpus(cpus))
}

/// Parses the value of `--wait-windows`.
fn wait_windows(text: &str) -> Result<Windows, String> {
    let expected = || "expected LENGTH/INTERVAL, such as 10ms/100ms".to_owned();
    let (length, interval) = text.split_once('/').ok_or_else(expected)?;
    let (length, interval) = (time::interval(length)?, time::interval(interval)?);
    let (length_ns, interval_ns) = (duration_ns(length), duration_ns(interval));
    if length_ns < WINDOW_MIN_NS {
        return Err("a window is at least 1ms long".to_owned());
    }
    let of = interval_ns / length_ns;
    if of < 2 || !interval_ns.is_multiple_of(length_ns) {
        return Err("the interval must be a multiple of the length, at least twice as long, such as 10ms/100ms"
            .to_owned());
    }
    Ok(Windows { length_ns, of })
}

/// Parses the value of `--call-graph`: the values of perf that have an equivalent.
fn call_graph(text: &str) -> Result<UnwindArg, String> {
    match text.split_once(',') {
        None if text == "dwarf" => Ok(UnwindArg::Dwarf),
        None if text == "fp" => Ok(UnwindArg::Fp),
        // perf: --call-graph dwarf,SIZE.
        Some(("dwarf", size)) => Err(format!("write --call-graph dwarf --stack-size {size}")),
        _ => Err("expected dwarf or fp".to_owned()),
    }
}

/// Parses the value of `--stack-size`.
fn stack_size(text: &str) -> Result<u32, String> {
    // The kernel accepts only multiples of 8 (`perf_copy_attr`, kernel/events/core.c).
    let size = text.parse().ok().filter(|size| (8..=STACK_MAX).contains(size) && size % 8 == 0);
    size.ok_or_else(|| format!("expected a multiple of 8 up to {STACK_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["nprof-record"], words].concat())
    }

    #[test]
    fn definition_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_after_command_belong_to_command() {
        let args = parse(&["-q", "ls", "-o", "x", "--help"]).expect("valid");
        assert_eq!(args.command, ["ls", "-o", "x", "--help"]);
        assert!(args.quiet && args.output.is_none());
        let args = parse(&["-o", "-", "--", "-weird"]).expect("valid");
        assert_eq!(args.command, ["-weird"]);
    }

    #[test]
    fn rejects_invalid_values() {
        for words in [
            &[][..],
            &["-F", "0", "x"],
            &["-e", "cycles:0", "x"],
            &["--stack-size", "12", "x"],
            &["--stack-size", "65536", "x"],
            &["--depth", "0", "x"],
            &["-d", "-1", "x"],
            &["-d", "0", "x"],
            &["-d", "nan", "x"],
            &["--user-only", "--kernel-only", "x"],
            &["--no-such-option", "x"],
            &["-l", "-F", "99"],
            &["-c", "0", "x"],
            &["-c", "9223372036854775808", "x"],
            &["-c", "1000", "-F", "99", "x"],
            &["--call-graph", "dwarf", "--unwind", "fp", "x"],
            &["--wait-windows", "10ms", "x"],
            &["--wait-windows", "10ms/10ms", "x"],
            &["--wait-windows", "10ms/25ms", "x"],
            &["--wait-windows", "10us/1ms", "x"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn accepts_exactly_one_target() {
        for words in [&["-p", "1,2"][..], &["-a"], &["--cgroup", "/x"], &["-l"]] {
            assert!(parse(words).is_ok(), "{words:?}");
            assert!(parse(&[words, &["ls"]].concat()).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["-p", "7,8"]).expect("valid").pid, [7, 8]);
        assert!(parse(&["-p", "7", "--descendants"]).expect("valid").descendants);
        assert!(parse(&["--descendants", "ls"]).is_err(), "a command has no existing children");
        assert!(parse(&["-p", "0"]).is_err() && parse(&["-p", "x"]).is_err());
        assert!(parse(&["-C", "99999", "x"]).is_err() && parse(&["-C", "", "x"]).is_err());
        assert!(parse(&["-C", "0,x", "x"]).is_err() && parse(&["-C", "1-0", "x"]).is_err());
        assert_eq!(parse(&["-C", "0,0", "x"]).expect("valid").cpus, Some(Cpus(vec![0])));
    }

    #[test]
    fn accepts_options_of_perf() {
        let unwind = |words: &[&str]| parse(words).expect("valid").unwind();
        assert_eq!(unwind(&["-g", "x"]), None);
        assert_eq!(unwind(&["-g", "--call-graph", "dwarf", "x"]), Some(StackMode::Dwarf));
        assert_eq!(unwind(&["--call-graph=fp", "x"]), Some(StackMode::FramePointer));
        assert_eq!(parse(&["-c", "1000", "x"]).expect("valid").count, Some(1000));
        assert!(parse(&["x", "-g"]).is_ok(), "an option of the command");
        for (value, remedy) in [
            ("lbr", "expected dwarf or fp"),
            ("dwarf,4096", "--call-graph dwarf --stack-size 4096"),
        ] {
            let error = parse(&["--call-graph", value, "x"]).expect_err(value).to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn rejects_offline_cpu() {
        let error = parse(&["-C", "65535", "x"]).expect_err("no machine has as many CPUs");
        assert!(error.to_string().contains("CPU 65535 is offline"), "{error}");
    }

    #[test]
    fn options_set_events_mode_and_stacks() {
        let args = parse(&["--wait-windows", "10ms/100ms", "x"]).expect("valid");
        assert_eq!(args.wait_windows, Some(Windows { length_ns: 10_000_000, of: 10 }));
        let args = parse(&["-e", "cpu-clock", "-e", "task-clock", "--kernel-only", "x"]);
        let args = args.expect("valid");
        assert_eq!(args.event.len(), 2);
        assert_eq!((args.mode(), args.unwind()), (CpuMode::Kernel, None));
        assert_eq!(
            parse(&["--unwind", "fp", "x"]).expect("valid").unwind(),
            Some(StackMode::FramePointer)
        );
    }
}
