//! `completions BIN TO`: writes what bash, zsh and fish need to complete the command lines of the
//! tools in the directory BIN, as files in TO/bash, TO/zsh and TO/fish.
//!
//! From the tools' own `--help`: the tools have no option for it, and what they complete is what
//! they say they take.

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

/// A tool's command line as clap describes it, with its commands.
fn command(program: &Path, name: &'static str) -> std::io::Result<Command> {
    let help = read(program, &[])?;
    let mut command = described(Command::new(name), &help).version("");
    for (sub, about) in help.commands {
        let taken = read(program, &[&sub])?;
        command = command.subcommand(described(Command::new(sub), &taken).about(about));
    }
    Ok(command)
}

fn read(program: &Path, words: &[&str]) -> std::io::Result<Help> {
    let output = Process::new(program).args(words).arg("--help").output()?;
    Ok(Help::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// A command with the options and the operand of a help. Those for help and the version are
/// clap's own.
fn described(command: Command, help: &Help) -> Command {
    let own = |option: &&Opt| !matches!(option.long.as_deref(), Some("help" | "version"));
    let command = command.args(help.options.iter().filter(own).map(argument));
    match help.operand.as_deref() {
        Some("command") => {
            command.arg(Arg::new("command").num_args(1..).trailing_var_arg(true).value_hint(
                // The command's own name, then whatever it takes.
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
    let Some(value) = &option.value else {
        return argument.action(ArgAction::SetTrue);
    };
    // Of `NAME[:INTERVAL]` the name: in zsh colons part what is said from what is completed.
    let value = value.split(|c: char| !c.is_ascii_uppercase()).next().unwrap_or_default();
    let hint = match value {
        "FILE" | "IMAGE" => ValueHint::FilePath,
        "DIR" | "ROOT" => ValueHint::DirPath,
        _ => ValueHint::Other,
    };
    argument = argument.action(ArgAction::Append).value_name(value.to_owned()).value_hint(hint);
    match option.values.is_empty() {
        true => argument,
        false => argument.value_parser(PossibleValuesParser::new(option.values.clone())),
    }
}
