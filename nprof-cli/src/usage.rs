//! The command line of a program: read by clap, spoken of as all else the tools speak of.

use std::io::{self, Write};
use std::num::ParseIntError;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{ArgMatches, Parser};

use crate::stage::{TROUBLE, is_broken_pipe, warn};

/// Reads the command line.
///
/// # Errors
///
/// How the program ends where it is not to go on: after the help or the version, or since the
/// usage was wrong; the user has been told as `tool: what: why`.
pub fn arguments<T: Parser>(tool: &str) -> Result<T, ExitCode> {
    arguments_or(tool, TROUBLE)
}

/// As [`arguments`], of a program that ends with this status where the usage was wrong.
///
/// # Errors
///
/// As there.
pub fn arguments_or<T: Parser>(tool: &str, status: u8) -> Result<T, ExitCode> {
    T::try_parse().map_err(|error| end_with(tool, &error, status))
}

/// As [`arguments`], with what clap knows beside: in which order options were given.
///
/// # Errors
///
/// As there.
pub fn arguments_and_matches<T: Parser>(tool: &str) -> Result<(T, ArgMatches), ExitCode> {
    let matches = T::command().try_get_matches();
    let arguments = matches.and_then(|matches| Ok((T::from_arg_matches(&matches)?, matches)));
    arguments.map_err(|error| end(tool, &error))
}

/// Says what a command line led to, and how the program ends.
pub fn end(tool: &str, error: &Error) -> ExitCode {
    end_with(tool, error, TROUBLE)
}

fn end_with(tool: &str, error: &Error, status: u8) -> ExitCode {
    if error.use_stderr() {
        warn(tool, &format!("{}; {tool} --help lists the options", message(error)));
        return ExitCode::from(status);
    }
    // Help and version. What cannot be written is no success.
    let mut out = io::stdout().lock();
    match write!(out, "{}", error.render()).and_then(|()| out.flush()) {
        Err(error) if !is_broken_pipe(&error) => {
            warn(tool, &format!("writing to standard output: {error}"));
            ExitCode::from(status)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// What is wrong with a command line, in one line: `what: why`.
fn message(error: &Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    // `--by <KEY>` is `--by` to the user, who wrote no `<KEY>`.
    let option = argument.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "there is no command".to_owned()
        }
        ErrorKind::MissingRequiredArgument => {
            format!("missing: {}", argument.trim_start_matches('<').trim_end_matches('>'))
        }
        ErrorKind::InvalidSubcommand => {
            let asked = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            match text(ContextKind::SuggestedSubcommand) {
                Some(near) => format!("{asked}: no such command: is it {near}?"),
                None => format!("{asked}: no such command"),
            }
        }
        // One that a tool found itself has its own words.
        ErrorKind::ArgumentConflict if !argument.is_empty() => {
            let other = text(ContextKind::PriorArg).filter(|other| !other.is_empty());
            let other = other.unwrap_or_else(|| "anything else".to_owned());
            format!("{option}: cannot be used with {other}")
        }
        ErrorKind::UnknownArgument => match text(ContextKind::SuggestedArg) {
            Some(near) => format!("{argument}: no such option: is it {near}?"),
            None => format!("{argument}: no such option"),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("{option}: needs a value"),
        ErrorKind::InvalidValue => {
            let valid = text(ContextKind::ValidValue).unwrap_or_default();
            format!("{option} {value}: expected one of {valid}")
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error);
            let is_no_number = why.is_some_and(<dyn std::error::Error>::is::<ParseIntError>);
            let why = why.filter(|_| !is_no_number).map(ToString::to_string);
            let why = why.unwrap_or_else(|| "expected a number".to_owned());
            format!("{}: {why}", format!("{option} {value}").trim_end())
        }
        _ => {
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = first.split_whitespace().collect();
            words.join(" ").trim_start_matches("error: ").to_owned()
        }
    }
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

    fn said(args: &[&str]) -> String {
        message(&Args::try_parse_from(["x"].iter().chain(args)).unwrap_err())
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        assert_eq!(said(&["--frob"]), "--frob: no such option");
        assert_eq!(said(&["--numbr", "1"]), "--numbr: no such option: is it --number?");
        assert_eq!(said(&["--colour", "blue"]), "--colour blue: expected one of red, green");
        assert!(said(&["--number", "x"]).starts_with("--number x: expected a number"));
        assert!(
            said(&["--number"]).starts_with("--number: needs a value"),
            "{}",
            said(&["--number"])
        );
        assert!(!said(&["--number", "1", "--number", "2"]).contains('\n'));
    }

    #[derive(Debug, clap::Parser)]
    #[command(group = clap::ArgGroup::new("what").required(true))]
    struct Target {
        #[arg(short, group = "what")]
        all: bool,
        #[arg(long, group = "what", exclusive = true)]
        list: bool,
        #[arg(group = "what")]
        command: Vec<String>,
    }

    #[derive(Debug, clap::Parser)]
    enum Commands {
        Check,
        Merge,
    }

    #[test]
    fn what_is_missing_or_too_much_is_said_in_one_line() {
        let said =
            |args: &[&str]| message(&Target::try_parse_from(["x"].iter().chain(args)).unwrap_err());
        assert_eq!(said(&[]), "missing: -a|--list|COMMAND");
        assert_eq!(said(&["--list", "-a"]), "--list: cannot be used with anything else");
        assert_eq!(said(&["-a", "ls"]), "-a: cannot be used with [COMMAND]...");
        let said = |args: &[&str]| {
            message(&Commands::try_parse_from(["x"].iter().chain(args)).unwrap_err())
        };
        assert_eq!(said(&[]), "there is no command");
        assert_eq!(said(&["merg"]), "merg: no such command: is it merge?");
        assert_eq!(said(&["zzz"]), "zzz: no such command");
    }
}
