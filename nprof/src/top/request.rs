//! The arguments of `nprof top`: those of `nprof run`, and the options of nprof-top. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::run::Request;

/// The samples per second without `-F`: enough for the shares of a few seconds, and little work for the
/// machine.
const FREQUENCY: &str = "99";

/// Show where the time of running programs goes, like top(1)
///
/// Takes the options of nprof-record; without a command and without -p, -a or --cgroup it records the
/// whole system (-a), and without -F at 99 Hz. q ends the recording, and a command that it started. The
/// output of the command is printed after that.
#[derive(Debug, Args)]
#[command(
    override_usage = "nprof top [--window TIME] [-o FILE] [options of nprof-record] [-p PID | -a | --cgroup NAME]\n       \
                      nprof top [--window TIME] [-o FILE] [options of nprof-record] -- command [args]"
)]
pub(crate) struct TopArgs {
    /// Also keep the recording in FILE
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the last TIME of the recording [default: 5s]
    #[arg(long, value_name = "TIME")]
    window: Option<OsString>,

    /// Options of nprof-record; then `--`, the command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "command")]
    words: Vec<OsString>,
}

/// A recording to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopRequest {
    pub(super) recording: Request,
    /// The options of nprof-top.
    pub(super) options: Vec<OsString>,
}

impl TopRequest {
    /// Separates the options of the programs.
    ///
    /// # Errors
    ///
    /// If an option has no value, or the recording would go to standard output.
    pub(super) fn of(args: &TopArgs) -> anyhow::Result<Self> {
        let mut recording = Request::separated(args.output.clone(), &args.words)?;
        let window = take_window(&mut recording.options)?.or(args.window.clone());
        if recording.command.is_empty() && !recording.has_target() {
            recording.options.push("-a".into());
        }
        let sets_rate = |option: &OsString| {
            [&b"-F"[..], b"-c"].iter().any(|name| option.as_bytes().starts_with(name))
        };
        if !recording.options.iter().any(sets_rate) {
            recording.options.extend(["-F".into(), FREQUENCY.into()]);
        }
        let options = window.into_iter().flat_map(|window| ["--window".into(), window]);
        Ok(Self { recording, options: options.collect() })
    }
}

/// Removes the option of nprof-top from those of nprof-record, and returns its last value.
fn take_window(options: &mut Vec<OsString>) -> anyhow::Result<Option<OsString>> {
    let mut window = None;
    let mut words = std::mem::take(options).into_iter();
    while let Some(word) = words.next() {
        if word == "--window" {
            window = Some(words.next().context("--window needs a time")?);
        } else if let Some(value) = word.as_bytes().strip_prefix(b"--window=") {
            window = Some(OsString::from_vec(value.to_vec()));
        } else {
            options.push(word);
        }
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Top {
        #[command(flatten)]
        args: TopArgs,
    }

    /// Returns the options of nprof-record, the command, and the options of nprof-top.
    fn parts(words: &[&str]) -> [String; 3] {
        let args = Top::parse_from(["top"].iter().chain(words)).args;
        let request = TopRequest::of(&args).expect("a request");
        let Request { options, command, .. } = request.recording;
        [options, command, request.options].map(|words| {
            let words: Vec<String> =
                words.into_iter().map(|word| word.into_string().expect("UTF-8")).collect();
            words.join(" ")
        })
    }

    #[test]
    fn whole_system_is_recorded_without_a_target() {
        assert_eq!(parts(&[]), ["-a -F 99", "", ""]);
        assert_eq!(parts(&["-F", "997"]), ["-F 997 -a", "", ""]);
        assert_eq!(parts(&["-p", "7", "-e", "wall"]), ["-p 7 -e wall -F 99", "", ""]);
        assert_eq!(parts(&["./a", "-x"]), ["-F 99", "./a -x", ""]);
        assert_eq!(parts(&["-c5", "--", "./a"]), ["-c5", "./a", ""]);
    }

    #[test]
    fn options_of_nprof_top_may_be_among_those_of_nprof_record() {
        assert_eq!(parts(&["--window", "2s"]), ["-a -F 99", "", "--window 2s"]);
        assert_eq!(
            parts(&["-p", "7", "--window=1s", "-o", "f"]),
            ["-p 7 -F 99", "", "--window 1s"]
        );
        let args = Top::parse_from(["top", "-p", "7", "--window"]).args;
        assert!(TopRequest::of(&args).is_err());
    }
}
