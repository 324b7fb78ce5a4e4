//! The command line of nprof-top.

use std::time::Duration;

use clap::Parser;
use nprof_cli::args::{Inputs, PartialOk};
use nprof_cli::time::interval;

/// The tool's name, which begins its messages.
pub(crate) const TOOL: &str = "nprof-top";

/// The shortest window, in which some samples can be expected.
const SHORTEST: Duration = Duration::from_millis(100);

/// Shows where the time of a live recording goes, on a terminal: functions, threads, waits.
///
/// Reads the stream from standard input and keys from the terminal; ? lists the keys.
#[derive(Clone, Debug, Parser)]
#[command(name = "nprof-top", version)]
pub(crate) struct Args {
    /// Show the last TIME of the recording (5s, 500ms)
    #[arg(long, value_name = "TIME", value_parser = window, default_value = "5s")]
    pub(crate) window: Duration,
    #[command(flatten)]
    pub(crate) tolerance: PartialOk,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

fn window(text: &str) -> Result<Duration, String> {
    let window = interval(text)?;
    if window < SHORTEST { Err("expected at least 100ms".to_owned()) } else { Ok(window) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_a_time_with_room_for_samples() {
        let window = |text| {
            let args = Args::try_parse_from(["nprof-top", "--window", text]);
            args.ok().map(|args| args.window)
        };
        assert_eq!(window("2s"), Some(Duration::from_secs(2)));
        assert_eq!([window("99ms"), window("0"), window("x")], [None; 3]);
    }
}
