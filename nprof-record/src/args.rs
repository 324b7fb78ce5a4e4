//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::event::{self, Scope, Unwind};
use crate::session::Request;

/// The most bytes of a stack the kernel copies: a record's size is a 16-bit number.
const STACK_MAX: u32 = 65528;

/// Runs a command and samples it and all its children.
///
/// Writes an nprof stream: to FILE, else to standard output when that is not a terminal (the
/// command's own standard output then goes to standard error), else to PID.nprof in the current
/// directory. Passes on the command's exit status, 128+N for signal N; its own failures are
/// 125, a command that cannot be executed 126, one that is not found 127.
#[derive(Debug, Parser)]
#[command(version, override_usage = "nprof-record [options] [--] command [args]")]
pub(crate) struct Args {
    /// Write the stream to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Take so many samples per second of CPU time
    #[arg(short = 'F', value_name = "HZ", default_value_t = 997, value_parser = clap::value_parser!(u64).range(1..))]
    frequency: u64,

    /// Sample by this event: cycles, cpu-clock, task-clock, or nprof.clk_unhalted, which is cycles
    /// where there is a counter, else cpu-clock
    #[arg(short, value_name = "NAME", default_value = event::DEFAULT_EVENT, value_parser = event_name)]
    event: &'static str,

    /// How stacks are captured
    #[arg(long, value_name = "HOW", value_enum, default_value_t = UnwindArg::Auto)]
    unwind: UnwindArg,

    /// Keep at most N frames of a stack, from the leaf
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=32768))]
    depth: u32,

    /// Copy so much of each stack: more reaches deeper and costs more
    #[arg(long, value_name = "BYTES", default_value_t = 32768, value_parser = stack_size)]
    stack_size: u32,

    /// Sample user code only
    #[arg(long, conflicts_with = "kernel_only")]
    user_only: bool,

    /// Sample the kernel only
    #[arg(long)]
    kernel_only: bool,

    /// Stop sampling after so many seconds; the command runs on
    #[arg(short, value_name = "SECS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,

    /// Say at the end what was recorded
    #[arg(short)]
    pub(crate) verbose: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "command")]
    pub(crate) command: Vec<OsString>,
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
    /// What to ask of the kernel.
    pub(crate) fn request(&self) -> Request {
        Request {
            event: self.event,
            frequency: self.frequency,
            unwind: match self.unwind {
                UnwindArg::Auto => None,
                UnwindArg::Dwarf => Some(Unwind::Dwarf),
                UnwindArg::Fp => Some(Unwind::FramePointer),
                UnwindArg::None => Some(Unwind::None),
            },
            stack_size: self.stack_size,
            scope: match (self.user_only, self.kernel_only) {
                (true, _) => Scope::User,
                (_, true) => Scope::Kernel,
                _ => Scope::Both,
            },
        }
    }

    /// How many frames of a stack are kept.
    pub(crate) fn depth(&self) -> usize {
        self.depth as usize
    }
}

fn event_name(name: &str) -> Result<&'static str, String> {
    let known: Vec<_> = event::names().collect();
    let found = known.iter().find(|&&event| event == name).copied();
    found.ok_or_else(|| format!("no such event; there are {}", known.join(", ")))
}

fn stack_size(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| (8..=STACK_MAX).contains(size) && size % 8 == 0);
    size.ok_or_else(|| format!("expected a multiple of 8 up to {STACK_MAX}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|seconds| !seconds.is_zero())
        .ok_or_else(|| "expected a number of seconds above 0".to_owned())
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
        let args = parse(&["-v", "ls", "-o", "x", "--help"]).expect("valid");
        assert_eq!(args.command, ["ls", "-o", "x", "--help"]);
        assert!(args.verbose && args.output.is_none());
        let args = parse(&["-o", "-", "--", "-weird"]).expect("valid");
        assert_eq!(args.command, ["-weird"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &[][..],
            &["-F", "0", "x"],
            &["-e", "instructionz", "x"],
            &["--stack-size", "12", "x"],
            &["--stack-size", "65536", "x"],
            &["--depth", "0", "x"],
            &["-d", "-1", "x"],
            &["-d", "0", "x"],
            &["-d", "nan", "x"],
            &["--user-only", "--kernel-only", "x"],
            &["--no-such-option", "x"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn options_become_a_request() {
        let request = parse(&["-e", "cpu-clock", "--kernel-only", "--unwind", "fp", "x"])
            .expect("valid")
            .request();
        assert_eq!(
            (request.event, request.scope, request.unwind),
            ("cpu-clock", Scope::Kernel, Some(Unwind::FramePointer))
        );
        assert_eq!(parse(&["x"]).expect("valid").request().unwind, None);
    }
}
