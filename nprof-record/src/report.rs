//! A run from the outside: what is started in which order, what is said on standard error, and
//! with which status it ends.

use std::io::{self, Write};
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_format::escape::escaped;

use crate::FAILURE;
use crate::args::Args;
use crate::child::{Child, Waiting};
use crate::event::Scope;
use crate::host;
use crate::output::{Destination, Opened};
use crate::record::{Outcome, Recording, Summary};
use crate::session::{self, Plan, Reach};
use crate::sources::{Kernel, Sources};
use crate::sys::{self, Signals};

/// Says something on standard error, on one line.
pub(crate) fn say(message: &str) {
    // There is nobody to tell when this cannot be said.
    let _ = writeln!(io::stderr(), "nprof-record: {message}");
}

/// Runs the command and records it. Gives the status to exit with.
///
/// # Errors
///
/// What kept the command from being started at all.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let destination = match Destination::for_option(args.output.as_deref()) {
        Ok(destination) => destination,
        Err(usage) => bail!(usage),
    };
    let plan = plan(args)?;
    let signals = Rc::new(Signals::block().context("cannot receive signals")?);
    let descriptors = sys::raise_descriptor_limit();
    let output_to_error = destination == Destination::Stdout;
    let waiting = Waiting::fork(&args.command, output_to_error, &signals, descriptors)?;
    let (sources, output) = match prepare(&plan, &destination, waiting.pid) {
        Ok(prepared) => prepared,
        Err(error) => {
            waiting.cancel();
            return Err(error);
        }
    };
    let child = match waiting.execute() {
        Ok(child) => Rc::new(child),
        Err(error) => {
            output.abandon();
            return Ok(not_executed(args, &error));
        }
    };
    let recorded = record(args, plan, sources, output, &child, &signals);
    child.wait(&signals).context("cannot wait for the command")?;
    Ok(conclude(args, &child, recorded))
}

fn plan(args: &Args) -> anyhow::Result<Plan> {
    let request = args.request();
    let highest = host::setting("kernel/perf_event_max_sample_rate").parse().ok();
    if let Some(highest) = highest.filter(|&highest: &u64| request.frequency > highest) {
        bail!(
            "-F {}: the kernel allows {highest} samples per second (kernel.perf_event_max_sample_rate)",
            request.frequency
        );
    }
    let cpu = host::online_cpus()[0];
    let plan = session::plan(&Kernel, &request, cpu).map_err(|refusal| {
        let paranoid = host::setting("kernel/perf_event_paranoid").parse().ok();
        anyhow::anyhow!(refusal.explain(paranoid))
    })?;
    if plan.reach == Reach::Task {
        let kernel = if plan.scope == request.scope { "" } else { "the kernel and " };
        say(&format!(
            "not privileged: {kernel}most of what short-lived processes do will not be seen \
             (run as root or with CAP_PERFMON to see it)"
        ));
    }
    Ok(plan)
}

fn prepare(plan: &Plan, destination: &Destination, pid: i32) -> anyhow::Result<(Sources, Opened)> {
    let sources = Sources::open(plan, &host::online_cpus(), pid)?;
    let output = destination.open(pid)?;
    sources.enable()?;
    Ok((sources, output))
}

fn record(
    args: &Args,
    plan: Plan,
    sources: Sources,
    output: Opened,
    child: &Rc<Child>,
    signals: &Rc<Signals>,
) -> anyhow::Result<Outcome> {
    let stream = output.begin(child.clone(), signals.clone()).context("cannot write the stream")?;
    let recording = Recording::begin(args, plan, sources, stream, child.clone(), signals.clone())?;
    recording.run().context("cannot wait for events")
}

fn not_executed(args: &Args, error: &io::Error) -> u8 {
    let name = escaped(args.command[0].as_encoded_bytes());
    let is_missing = error.raw_os_error() == Some(libc::ENOENT);
    say(&format!(
        "{name}: {}",
        if is_missing { "command not found".to_owned() } else { error.to_string() }
    ));
    if is_missing { 127 } else { 126 }
}

/// Says what there is to say, and gives the status to exit with.
fn conclude(args: &Args, child: &Child, recorded: anyhow::Result<Outcome>) -> u8 {
    let status = child.status();
    let outcome = match recorded {
        Ok(outcome) => outcome,
        Err(error) => {
            say(&format!("{error:#}"));
            return if status == 0 { FAILURE } else { status };
        }
    };
    let was_written = match outcome.error {
        None => true,
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => return status,
        Some(error) => {
            say(&format!("cannot write the stream: {error}; it ends early"));
            false
        }
    };
    for line in remarks(&outcome.summary, args) {
        say(&line);
    }
    if was_written || status != 0 { status } else { FAILURE }
}

/// So many samples are expected of a command that something is wrong when there are none.
const EXPECTED: u64 = 10;

/// What is worth saying about a recording.
fn remarks(summary: &Summary, args: &Args) -> Vec<String> {
    let mut remarks = Vec::new();
    let request = args.request();
    // A command that ends before its first sample is nothing unusual; reports tell.
    let expected =
        summary.task_ns.map_or(0, |ns| ns.saturating_mul(request.frequency) / 1_000_000_000);
    if summary.samples == 0 && (args.verbose || expected >= EXPECTED) {
        let used = summary.task_ns.map_or(String::new(), |ns| {
            let of = if request.scope == Scope::Kernel { "in the kernel" } else { "of CPU time" };
            format!(": the command used {} {of}", milliseconds(ns))
        });
        let rate = (request.frequency * 10 + 3).min(9973).max(request.frequency);
        remarks.push(format!("0 samples{used}; try -F {rate}"));
    }
    if summary.lost > 0 {
        remarks.push(format!(
            "{} samples were lost, the rings were full: try a lower -F or --stack-size",
            summary.lost
        ));
    }
    if summary.side_lost > 0 {
        let count = summary.side_lost;
        remarks.push(format!(
            "{count} records of processes and mappings were lost: some frames may be wrong"
        ));
    }
    if args.verbose {
        remarks.push(summary_line(summary));
    }
    remarks
}

fn summary_line(summary: &Summary) -> String {
    let Summary { samples, incomplete, lost, .. } = summary;
    let plural = if *samples == 1 { "" } else { "s" };
    let mut line =
        format!("{samples} sample{plural}, {lost} lost, {incomplete} with an incomplete stack");
    if let (Some(sampled), Some(used)) =
        (summary.sampled_ns, summary.task_ns.filter(|&used| used > 0))
    {
        let share = sampled as f64 * 100.0 / used as f64;
        line += &format!(
            "; sampled {} of {} CPU time ({share:.1} %)",
            milliseconds(sampled),
            milliseconds(used)
        );
    }
    line
}

fn milliseconds(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn args(words: &[&str]) -> Args {
        Args::try_parse_from([&["nprof-record"], words].concat()).expect("valid")
    }

    #[test]
    fn nothing_is_said_when_all_is_well() {
        let summary = Summary { samples: 5, ..Summary::default() };
        assert!(remarks(&summary, &args(&["x"])).is_empty());
    }

    #[test]
    fn no_samples_come_with_a_remedy() {
        let summary = Summary { task_ns: Some(4_200_000), ..Summary::default() };
        assert!(remarks(&summary, &args(&["x"])).is_empty(), "it was too short for one");
        let said = remarks(&summary, &args(&["-v", "x"]));
        assert_eq!(said[0], "0 samples: the command used 4.2 ms of CPU time; try -F 9973");
        let summary = Summary { task_ns: Some(42_000_000), ..Summary::default() };
        let said = remarks(&summary, &args(&["x"]));
        assert_eq!(said, ["0 samples: the command used 42 ms of CPU time; try -F 9973"]);
    }

    #[test]
    fn coverage_is_sampled_time_of_used_time() {
        let summary = Summary {
            samples: 90,
            incomplete: 1,
            task_ns: Some(100_000_000),
            sampled_ns: Some(90_000_000),
            ..Summary::default()
        };
        let said = remarks(&summary, &args(&["-v", "x"]));
        assert_eq!(
            said,
            [
                "90 samples, 0 lost, 1 with an incomplete stack; sampled 90 ms of 100 ms CPU time (90.0 %)"
            ]
        );
    }
}
