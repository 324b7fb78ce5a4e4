//! `completions BIN TO`: writes the completions of the tools in the directory BIN for bash, zsh and
//! fish, as files in TO/bash, TO/zsh and TO/fish.
//!
//! They are generated from `--help` of each tool, so that the tools need no option for it and the
//! completions cannot differ from the help.

use std::path::Path;
use std::process::{Command as Process, ExitCode};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::{Shell, generate_to};
use nprof_tests::{Help, Opt, TOOLS};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [bin, to] = &words[..] else {
        eprintln!("usage: completions BIN TO");
        return ExitCode::from(2);
    };
    match write_all(Path::new(bin), Path::new(to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("completions: {error}");
            ExitCode::from(2)
        }
    }
}

fn write_all(bin: &Path, to: &Path) -> std::io::Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let directory = to.join(shell.to_string());
        std::fs::create_dir_all(&directory)?;
        for tool in TOOLS {
            generate_to(shell, &mut command(&bin.join(tool), tool)?, tool, &directory)?;
        }
    }
    Ok(())
}

/// Returns the command line of a tool, with its subcommands.
fn command(program: &Path, name: &str) -> std::io::Result<Command> {
    let help = read(program, &[])?;
    let mut command = with_help(Command::new(name.to_owned()), &help).version("");
    for (sub, about) in help.commands {
        let help = read(program, &[&sub])?;
        command = command.subcommand(with_help(Command::new(sub), &help).about(about));
    }
    for (tool, about) in help.tools {
        let program = program.with_file_name(format!("{name}-{tool}"));
        command = command.subcommand(self::command(&program, &tool)?.about(about));
    }
    Ok(command)
}

fn read(program: &Path, words: &[&str]) -> std::io::Result<Help> {
    let output = Process::new(program).args(words).arg("--help").output()?;
    Ok(Help::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Adds the options and the operand of a help text to a command, except `--help` and `--version`,
/// which clap adds itself.
fn with_help(command: Command, help: &Help) -> Command {
    let own = |option: &&Opt| !matches!(option.long.as_deref(), Some("help" | "version"));
    let command = command.args(help.options.iter().filter(own).map(argument));
    match help.operand.as_deref() {
        Some("command") => {
            command.arg(Arg::new("command").num_args(1..).trailing_var_arg(true).value_hint(
                // The name of a program, then the arguments of that program.
                ValueHint::CommandWithArguments,
            ))
        }
        Some(_) => command.arg(Arg::new("operand").num_args(1..).value_hint(ValueHint::FilePath)),
        None => command,
    }
}

fn argument(option: &Opt) -> Arg {
    let id = option.long.clone().or(option.short.map(String::from)).unwrap_or_default();
    let mut argument = Arg::new(id).help(option.about.clone());
    if let Some(short) = option.short {
        argument = argument.short(short);
    }
    if let Some(long) = &option.long {
        argument = argument.long(long.clone());
    }
    // An option without a value is a flag.
    let Some(value) = &option.value else {
        return argument.action(ArgAction::SetTrue);
    };
    // The name of `NAME[:INTERVAL]` only: in zsh a colon separates a description from the value.
    let value = value.split(|c: char| !c.is_ascii_uppercase()).next().unwrap_or_default();
    let hint = match value {
        "FILE" | "IMAGE" => ValueHint::FilePath,
        "DIR" | "ROOT" => ValueHint::DirPath,
        _ => ValueHint::Other,
    };
    argument = argument.action(ArgAction::Append).value_name(value.to_owned()).value_hint(hint);
    if option.values.is_empty() {
        argument
    } else {
        argument.value_parser(PossibleValuesParser::new(option.values.clone()))
    }
}
