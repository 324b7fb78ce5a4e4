//! `nprof doctor`: the events that this user can record on this machine, by the list of nprof-record.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Context, bail};
use nprof_cli::stage::Outcome;

use crate::programs::{not_started, tool};

/// A thing that can be recorded, and the line of `nprof-record -l` that shows whether it can.
struct Subject {
    about: &'static str,
    /// The class of the line, and its name. Without a name, any line of the class.
    class: &'static str,
    name: &'static str,
}

const fn subject(about: &'static str, class: &'static str, name: &'static str) -> Subject {
    Subject { about, class, name }
}

/// The first one is required for any profile.
const SUBJECTS: [Subject; 13] = [
    subject("CPU time", "default", ""),
    subject("hardware counters", "hardware", "cycles"),
    subject("kernel functions", "feature", "kernel-code"),
    subject("the whole system", "feature", "system-wide"),
    subject("deep stacks", "feature", "deep-stacks"),
    subject("waiting", "software", "blocked"),
    subject("who ends waiting", "software", "wakes"),
    subject("memory", "preload", "heap.alloc"),
    subject("descriptors", "preload", "fd.open"),
    subject("exact calls", "feature", "counted-calls"),
    subject("tracepoints", "tracepoint", ""),
    subject("probes of programs", "probe", "uprobe:PATH:0xOFFSET"),
    subject("probes of the kernel", "probe", "kprobe:FUNCTION"),
];

/// A line of `nprof-record -l`.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    name: &'a str,
    class: &'a str,
    /// `available` with a note, or the reason why it is not.
    state: &'a str,
}

/// Prints a line for each subject. No if not even CPU time can be recorded.
///
/// # Errors
///
/// If nprof-record cannot list its events, or the output cannot be written.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    let listed = tool("nprof-record").arg("-l").output();
    let listed = listed.with_context(|| not_started("nprof-record"))?;
    if !listed.status.success() {
        bail!("nprof-record -l: {}", String::from_utf8_lossy(&listed.stderr).trim_end());
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let lines: Vec<Line<'_>> = listed.lines().filter_map(line).collect();
    let mut out = io::stdout().lock();
    out.write_all(findings(&lines).as_bytes())?;
    out.flush()?;
    let has_cpu_time = SUBJECTS[0].state(&lines).is_ok();
    Ok(if has_cpu_time { Outcome::Done } else { Outcome::No })
}

/// Parses a line: name, class, unit and state, separated by two spaces or more.
fn line(text: &str) -> Option<Line<'_>> {
    // States are sentences, with single spaces.
    let mut rest = text;
    let mut field = || {
        let (field, after) = rest.split_once("  ")?;
        rest = after.trim_start();
        Some(field)
    };
    let (name, class, _unit) = (field()?, field()?, field()?);
    Some(Line { name, class, state: rest })
}

impl Subject {
    /// Returns the note about an available subject (may be empty).
    ///
    /// # Errors
    ///
    /// The reason why it is not available.
    fn state<'a>(&self, lines: &[Line<'a>]) -> Result<&'a str, &'a str> {
        let is_own = |line: &&Line<'_>| {
            line.class == self.class && (self.name.is_empty() || line.name == self.name)
        };
        let line = lines.iter().find(is_own).ok_or("this nprof-record does not list it")?;
        match line.state.strip_prefix("available") {
            Some(note) => Ok(note.trim_start_matches(": ")),
            None => Err(line.state),
        }
    }
}

/// Formats the findings: `yes`, or `no` with the cause, and the remedy in a line of its own.
fn findings(lines: &[Line<'_>]) -> String {
    let mut text = String::new();
    for subject in SUBJECTS {
        // Writing to a string cannot fail.
        let _ = match subject.state(lines) {
            Ok("") => writeln!(text, "{:<22}yes", subject.about),
            Ok(note) => writeln!(text, "{:<22}yes: {note}", subject.about),
            Err(reason) => {
                // As all messages: the cause, then the remedy.
                let (cause, remedy) = reason.split_once("; ").unwrap_or((reason, ""));
                let _ = writeln!(text, "{:<22}no: {cause}", subject.about);
                match remedy {
                    "" => Ok(()),
                    remedy => writeln!(text, "{:<22}    {remedy}", ""),
                }
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_cause_and_remedy() {
        let listed = "\
nprof.clk_unhalted              default     ns      available: cpu-clock
kernel-code                     feature     -       available
system-wide                     feature     -       permission denied: paranoid is 2; run as root
a:name_longer_than_its_column_of_thirty  tracepoint  count   tracefs is not mounted";
        let lines: Vec<Line<'_>> = listed.lines().filter_map(line).collect();
        let text = findings(&lines);
        for expected in [
            "CPU time              yes: cpu-clock\n",
            "kernel functions      yes\n",
            "the whole system      no: permission denied: paranoid is 2\n                          run as root\n",
            "tracepoints           no: tracefs is not mounted\n",
            "memory                no: this nprof-record does not list it\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
