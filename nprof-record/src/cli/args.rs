//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgGroup, Parser, ValueEnum};

use nprof_cli::time;

use crate::event::{self, Asked, Scope, Unwind};
use crate::os::machine;
use crate::session::recording::Times;

/// The most bytes of a stack the kernel copies: a record's size is a 16-bit number.
const STACK_MAX: u32 = 65528;

/// Runs a command and samples it and all its children, or samples what runs already.
///
/// Writes an nprof stream: to FILE, else to standard output when that is not a terminal (the
/// command's own standard output then goes to standard error), else to PID.nprof in the current
/// directory. Passes on the command's exit status, 128+N for signal N; its own failures are
/// 125, a command that cannot be executed 126, one that is not found 127.
#[derive(Debug, Parser)]
#[command(
    version,
    override_usage = "nprof-record [options] [--] command [args]\n       \
                      nprof-record [options] -p PID[,PID...]\n       \
                      nprof-record [options] -a | --cgroup NAME\n       \
                      nprof-record -l",
    group = ArgGroup::new("target").required(true),
    args = of_others()
)]
pub(crate) struct Args {
    /// Write the stream to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Take so many samples per second of CPU time [default: 997]
    #[arg(short = 'F', value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) frequency: Option<u64>,

    /// Sample by this event, see -l; several may be given. The default is cycles where there is a
    /// counter, else cpu-clock
    #[arg(short, value_name = "NAME[:INTERVAL][/u][k]", default_value = event::DEFAULT_EVENT, value_parser = Asked::parse)]
    pub(crate) event: Vec<Asked>,

    /// Sample these processes, all their threads, and what they start
    #[arg(short, value_name = "PID", group = "target", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Vec<u32>,

    /// Sample the whole system
    #[arg(short, group = "target")]
    pub(crate) all: bool,

    /// Sample the tasks of this control group (cgroup v2)
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) cgroup: Option<String>,

    /// List the events, and why some cannot be had
    #[arg(short, group = "target", exclusive = true)]
    pub(crate) list: bool,

    /// Sample on these CPUs only, as in 0-3,5
    #[arg(short = 'C', value_name = "CPUS", value_parser = cpus)]
    pub(crate) cpus: Option<Cpus>,

    /// How the command and its children are told from all others
    #[arg(long, value_name = "HOW", value_enum, default_value_t = ScopeArg::Auto)]
    pub(crate) scope: ScopeArg,

    /// How stacks are captured
    #[arg(long, value_name = "HOW", value_enum, default_value_t = UnwindArg::Auto)]
    unwind: UnwindArg,

    /// Keep at most N frames of a stack, from the leaf
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..=32768))]
    depth: u32,

    /// Copy so much of each stack: more reaches deeper and costs more
    #[arg(long, value_name = "BYTES", default_value_t = 61440, value_parser = stack_size)]
    pub(crate) stack_size: u32,

    /// Sample user code only
    #[arg(long, conflicts_with = "kernel_only")]
    user_only: bool,

    /// Sample the kernel only
    #[arg(long)]
    kernel_only: bool,

    /// Sample for so long, such as 10s or 500ms; the program runs on
    #[arg(short, value_name = "TIME", value_parser = time::interval)]
    duration: Option<Duration>,

    /// Begin to sample after so long
    #[arg(long, value_name = "TIME", value_parser = time::interval)]
    delay: Option<Duration>,

    /// Do not say at the end what was recorded
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The command and its arguments
    #[arg(group = "target", trailing_var_arg = true, value_name = "command")]
    pub(crate) command: Vec<OsString>,
}

/// Options of other profilers, and what does here what they do there.
fn of_others() -> [Arg; 3] {
    let stacks = "stacks are always recorded; --unwind says how";
    let interval = "the interval belongs to the event, as in -e cycles:1000000";
    let hints = [
        (Arg::new("g").short('g'), stacks),
        (Arg::new("call-graph").long("call-graph"), stacks),
        (Arg::new("count").short('c'), interval),
    ];
    hints.map(|(arg, hint)| {
        let arg = arg.hide(true).num_args(0..=1).require_equals(true).default_missing_value("");
        arg.value_parser(move |_: &str| Err::<String, _>(format!("no such option: {hint}")))
    })
}

/// The CPUs to sample on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<u32>);

/// The values of `--scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// By the process tree where the rights allow, else by task
    Auto,
    /// All CPUs are sampled, and what is not of the process tree is dropped
    Tree,
    /// The command runs in a control group of its own
    Cgroup,
    /// Events are inherited from task to task
    Task,
}

/// The values of `--unwind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnwindArg {
    /// By unwind tables where the kernel can copy stacks, else by frame pointers
    Auto,
    /// By unwind tables, from a copy of the stack
    Dwarf,
    /// By frame pointers, in the kernel
    Fp,
    /// Only where the program is, not how it got there
    None,
}

impl Args {
    /// How stacks are to be captured; `None`: as works best.
    pub(crate) fn unwind(&self) -> Option<Unwind> {
        match self.unwind {
            UnwindArg::Auto => None,
            UnwindArg::Dwarf => Some(Unwind::Dwarf),
            UnwindArg::Fp => Some(Unwind::FramePointer),
            UnwindArg::None => Some(Unwind::None),
        }
    }

    /// What is to be sampled of events that do not say it themselves.
    pub(crate) fn sampled(&self) -> Scope {
        match (self.user_only, self.kernel_only) {
            (true, _) => Scope::User,
            (_, true) => Scope::Kernel,
            _ => Scope::Both,
        }
    }

    /// When to sample.
    pub(crate) fn times(&self) -> Times {
        Times { delay: self.delay, duration: self.duration }
    }

    /// How many samples are taken per second, where no interval is given. The default does not
    /// march in step with what happens a hundred or a thousand times a second.
    pub(crate) fn frequency(&self) -> u64 {
        self.frequency.unwrap_or(997)
    }

    /// How many frames of a stack are kept.
    pub(crate) fn depth(&self) -> usize {
        self.depth as usize
    }
}

fn cpus(list: &str) -> Result<Cpus, String> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        match machine::cpu_list(part) {
            found if found.is_empty() => return Err("expected CPUs, as in 0-3,5".to_owned()),
            found => cpus.extend(found),
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    let online = machine::online_cpus();
    if let Some(missing) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        return Err(format!("CPU {missing} is not on line"));
    }
    Ok(Cpus(cpus))
}

fn stack_size(text: &str) -> Result<u32, String> {
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
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_commands_own_options_are_its_own() {
        let args = parse(&["-q", "ls", "-o", "x", "--help"]).expect("valid");
        assert_eq!(args.command, ["ls", "-o", "x", "--help"]);
        assert!(args.quiet && args.output.is_none());
        let args = parse(&["-o", "-", "--", "-weird"]).expect("valid");
        assert_eq!(args.command, ["-weird"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn there_is_one_target() {
        for words in [&["-p", "1,2"][..], &["-a"], &["--cgroup", "/x"], &["-l"]] {
            assert!(parse(words).is_ok(), "{words:?}");
            assert!(parse(&[words, &["ls"]].concat()).is_err(), "{words:?}");
        }
        assert_eq!(parse(&["-p", "7,8"]).expect("valid").pid, [7, 8]);
        assert!(parse(&["-p", "0"]).is_err() && parse(&["-p", "x"]).is_err());
        assert!(parse(&["-C", "99999", "x"]).is_err() && parse(&["-C", "", "x"]).is_err());
        assert!(parse(&["-C", "0,x", "x"]).is_err() && parse(&["-C", "1-0", "x"]).is_err());
        assert_eq!(parse(&["-C", "0,0", "x"]).expect("valid").cpus, Some(Cpus(vec![0])));
    }

    #[test]
    fn what_others_call_it_is_told_what_it_is_here() {
        for words in [&["-g", "x"][..], &["--call-graph", "dwarf", "x"], &["-c", "1000", "x"]] {
            let error = parse(words).expect_err("not an option");
            assert!(error.to_string().contains("--unwind") != (words[0] == "-c"), "{error}");
        }
        assert!(parse(&["x", "-g"]).is_ok(), "the command's own");
    }

    #[test]
    fn options_become_what_is_asked() {
        let args = parse(&["-e", "cpu-clock", "-e", "task-clock", "--kernel-only", "x"]);
        let args = args.expect("valid");
        assert_eq!(args.event.len(), 2);
        assert_eq!((args.sampled(), args.unwind()), (Scope::Kernel, None));
        assert_eq!(
            parse(&["--unwind", "fp", "x"]).expect("valid").unwind(),
            Some(Unwind::FramePointer)
        );
    }
}
