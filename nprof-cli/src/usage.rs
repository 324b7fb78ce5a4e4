//! Parses the command line with clap, and reports its errors in one line like all other messages.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{Error, ErrorKind};
use clap::{ArgMatches, Parser};

use crate::stage::{FAILURE, is_broken_pipe, warn};

/// Parses the command line of a tool that exits with [`FAILURE`] after a usage error.
///
/// # Errors
///
/// The exit status if the tool is to end here: help or version was printed, or a usage error was reported.
pub fn arguments<T: Parser>(tool: &str) -> Result<T, ExitCode> {
    arguments_or(tool, FAILURE)
}

/// Like [`arguments`], for a tool that exits with `status` after a usage error.
///
/// # Errors
///
/// See [`arguments`].
pub fn arguments_or<T: Parser>(tool: &str, status: u8) -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| end_with(tool, &error, status))
}

/// Like [`arguments`], and returns clap's matches, which hold the order in which options were given.
///
/// # Errors
///
/// See [`arguments`].
pub fn arguments_and_matches<T: Parser>(tool: &str) -> Result<(T, ArgMatches), ExitCode> {
    let matches = T::command().try_get_matches();
    let arguments = matches.and_then(|matches| Ok((T::from_arg_matches(&matches)?, matches)));
    arguments.map_err(|error| end(tool, &error))
}

/// Reports an error found in the command line, or prints help or version; returns the exit status.
pub fn end(tool: &str, error: &Error) -> ExitCode {
    end_with(tool, error, FAILURE)
}

/// Like [`end`], for a tool that exits with `status` after a usage error.
pub fn end_with(tool: &str, error: &Error, status: u8) -> ExitCode {
    if error.use_stderr() {
        warn(tool, &format!("{}; {tool} --help lists the options", message(error)));
        return ExitCode::from(status);
    }
    // Help and version are output: a full disk is an error, a closed pipe is not.
    let mut out = io::stdout().lock();
    match write!(out, "{}", error.render()).and_then(|()| out.flush()) {
        Err(error) if !is_broken_pipe(&error) => {
            warn(tool, &format!("writing to standard output: {error}"));
            ExitCode::from(status)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns clap's message and its tip in one line, without the usage that clap prints below.
fn message(error: &Error) -> String {
    // clap prints the whole help here instead of a message.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "missing subcommand".to_owned();
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(one_line);
    let cause = paragraphs.next().unwrap_or_default();
    let cause = cause.trim_start_matches("error: ");
    match paragraphs.next().filter(|second| second.starts_with("tip: ")) {
        Some(tip) => format!("{cause}; {tip}"),
        None => cause.to_owned(),
    }
}

fn one_line(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Args {
        #[arg(long, value_name = "N")]
        number: Option<u8>,
        #[arg(long, value_parser = ["red", "green"])]
        colour: Option<String>,
    }

    #[derive(Debug, clap::Parser)]
    enum Commands {
        Check,
        Merge,
    }

    fn message_for<T: Parser + std::fmt::Debug>(args: &[&str]) -> String {
        message(&T::try_parse_from(["x"].iter().chain(args)).unwrap_err())
    }

    #[test]
    fn usage_error_is_one_line_with_cause_and_tip() {
        assert_eq!(message_for::<Args>(&["--frob"]), "unexpected argument '--frob' found");
        assert_eq!(
            message_for::<Args>(&["--numbr", "1"]),
            "unexpected argument '--numbr' found; tip: a similar argument exists: '--number'"
        );
        assert_eq!(
            message_for::<Args>(&["--colour", "blue"]),
            "invalid value 'blue' for '--colour <COLOUR>' [possible values: red, green]"
        );
        assert!(!message_for::<Args>(&["--number", "1", "--number", "2"]).contains('\n'));
    }

    #[test]
    fn missing_subcommand_is_reported_without_the_help() {
        assert_eq!(message_for::<Commands>(&[]), "missing subcommand");
        assert!(message_for::<Commands>(&["merg"]).contains("'merge'"));
    }
}
