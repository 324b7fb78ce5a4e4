//! The command line: the commands of nprof itself, and those that run a tool.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nprof_cli::stage::{self, Outcome};
use nprof_cli::usage;

use crate::bench::BenchArgs;
use crate::programs::NPROF;
use crate::run::RunArgs;
use crate::top::TopArgs;
use crate::{bench, doctor, programs, run, top};

/// The tools, in groups. The command `flat` runs nprof-flat.
const TOOLS: [(&str, &[(&str, &str)]); 3] = [
    (
        "Tools that record",
        &[
            ("record", "Sample a command, running processes or the system"),
            ("symbolize", "Add functions, files and lines to a recording"),
            ("blame", "Charge waiting to the functions that caused it"),
        ],
    ),
    (
        "Tools that report",
        &[
            ("flat", "Report time by function, line, image or thread"),
            ("paths", "Report call paths, trees, the call graph and flame graphs"),
            ("annotate", "Report time within functions, by instruction, line or loop"),
            ("diff", "Compare two sets of recordings"),
        ],
    ),
    (
        "Tools for streams and files",
        &[
            ("format", "Check, count, merge and convert recordings"),
            ("export", "Write files for other programs"),
            ("import", "Read recordings of other profilers"),
        ],
    ),
];

/// The smallest similarity (Jaro and Winkler) of a name that may have been meant.
const MIN_SIMILARITY: f64 = 0.75;

/// The largest number of similar names in a message.
const MAX_SIMILAR: usize = 3;

/// Profile a program, or run a tool of nprof.
#[derive(Debug, Parser)]
#[command(name = NPROF, version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(RunArgs),
    #[command(version)]
    Top(TopArgs),
    Bench(BenchArgs),
    /// Report the events that can be recorded here, and the remedy for the others
    ///
    /// Tries to open each kind of event. Exits with 1 if not even CPU time can be recorded.
    Doctor,
    /// Show the manual page of a command
    Help {
        /// A command
        #[arg(value_name = "COMMAND")]
        name: Option<OsString>,
    },
    /// A tool with its arguments.
    #[command(external_subcommand)]
    Tool(Vec<OsString>),
}

/// Runs nprof with the arguments of this process.
pub fn main() -> ExitCode {
    let matches = with_tools().try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // Help and version end here, too.
        Err(error) => return usage::end_with(NPROF, &error, usage_status()),
    };
    match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Bench(args) => stage::run(NPROF, || bench::run(&args)),
        Command::Doctor => stage::run(NPROF, doctor::run),
        Command::Help { name } => match name.filter(|name| name != "help") {
            Some(name) => stage::run(NPROF, || help(&name)),
            None => print_help(),
        },
        Command::Tool(words) => stage::run(NPROF, || run_tool(&words)),
    }
}

fn with_tools() -> clap::Command {
    Cli::command().after_help(tool_list())
}

/// Returns the exit status after a usage error: `run` otherwise exits with the status of its command.
fn usage_status() -> u8 {
    let is_run = std::env::args_os().nth(1).is_some_and(|command| command == "run");
    if is_run { run::FAILURE } else { stage::FAILURE }
}

/// Returns the tools for the end of the help text.
fn tool_list() -> String {
    let mut text = String::new();
    for (group, tools) in TOOLS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{group}:");
        for (name, about) in tools {
            let _ = writeln!(text, "  {name:<10} {about}");
        }
        text.push('\n');
    }
    text + "nprof NAME runs the tool nprof-NAME with the same arguments."
}

fn print_help() -> ExitCode {
    match with_tools().try_get_matches_from([NPROF, "--help"]) {
        Ok(_) => ExitCode::SUCCESS,
        Err(help) => usage::end(NPROF, &help),
    }
}

fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().flat_map(|(_, tools)| tools.iter().map(|(name, _)| *name))
}

/// Returns the names of the commands of nprof itself.
fn own_names() -> Vec<String> {
    Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Executes a tool in the place of this process.
fn run_tool(words: &[OsString]) -> anyhow::Result<Outcome> {
    // clap never returns an external command without its name.
    let (command, arguments) = words.split_first().unwrap_or((&words[0], &[]));
    match tool_names().find(|name| command == name) {
        Some(name) => programs::execute(&format!("nprof-{name}"), arguments),
        None => bail!("{}", unknown(command)),
    }
}

/// Shows the manual page of a command, or its `--help` without one.
fn help(name: &OsStr) -> anyhow::Result<Outcome> {
    if let Some(tool) = tool_names().find(|tool| name == *tool) {
        return programs::show_help(&format!("nprof-{tool}"), None);
    }
    match own_names().into_iter().find(|own| name == own.as_str()) {
        Some(own) => programs::show_help(NPROF, Some(&own)),
        None => bail!("{}", unknown(name)),
    }
}

/// Returns the message about a command that does not exist, with those of similar names.
fn unknown(command: &OsStr) -> String {
    let command = command.to_string_lossy();
    let names = own_names().into_iter().chain(tool_names().map(str::to_owned));
    let mut similar: Vec<(f64, String)> = names
        .map(|name| (strsim::jaro_winkler(&command, &name), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    // The most similar one first.
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    similar.truncate(MAX_SIMILAR);
    let similar: Vec<String> = similar.into_iter().map(|(_, name)| name).collect();
    let hint = match &similar[..] {
        [] => String::new(),
        names => format!("; similar: {}", names.join(", ")),
    };
    format!("{command}: no such command{hint}; nprof --help lists the commands")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_command_has_similar_names() {
        let message = unknown("falt".as_ref());
        assert!(message.starts_with("falt: no such command; similar: flat"), "{message}");
        assert!(unknown("dcotor".as_ref()).contains("similar: doctor"));
        assert!(!unknown("\u{1}zzzz".as_ref()).contains("similar"));
    }
}
