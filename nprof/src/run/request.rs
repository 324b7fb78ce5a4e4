//! The arguments of `nprof run`: options of nprof-record, and the command. Pure, except for the name
//! of a process.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

/// The longest name of a program in the name of a recording; file names have at most 255 bytes.
const MAX_NAME: usize = 64;

/// Record a program, print its profile, keep the recording
///
/// Takes the options of nprof-record: `nprof run -p PID -d 10s` records a running process for ten
/// seconds. The report is printed to standard error, since standard output belongs to the command.
/// Exits with the status of the command as nprof-record does; with 125 if nprof fails.
#[derive(Debug, Args)]
#[command(
    override_usage = "nprof run [-o FILE] [options of nprof-record] -- command [args]\n       \
                      nprof run [-o FILE] [options of nprof-record] -p PID | -a | --cgroup NAME"
)]
pub(crate) struct RunArgs {
    /// Keep the recording in FILE [default: nprof-PROGRAM-DATE-TIME.nprof]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Options of nprof-record; then `--`, the command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "command")]
    words: Vec<OsString>,
}

/// A recording to make.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// None for a name made of the program and the time.
    pub(crate) output: Option<PathBuf>,
    /// Options of nprof-record.
    pub(crate) options: Vec<OsString>,
    /// Empty if running processes are recorded.
    pub(crate) command: Vec<OsString>,
    /// The name of the program for the name of the recording. None for that of the command.
    pub(crate) name: Option<String>,
    /// The directory to run the command in. None for the current one.
    pub(crate) directory: Option<PathBuf>,
    /// Environment variables of the command, besides those of this process.
    pub(crate) variables: Vec<(OsString, OsString)>,
}

impl Request {
    /// Returns the request of the arguments of `nprof run`.
    ///
    /// # Errors
    ///
    /// If there is nothing to record, or the command cannot be separated.
    pub(super) fn of(args: &RunArgs) -> anyhow::Result<Self> {
        let request = Self::separated(args.output.clone(), &args.words)?;
        if request.command.is_empty() && !request.has_target() {
            // Without `--`, the value of an option cannot be distinguished from the command.
            bail!(
                "nothing to record; write -- before the command, or give -p PID, -a or --cgroup NAME"
            );
        }
        Ok(request)
    }

    /// Separates the command from the options of nprof-record, and `-o` from these.
    ///
    /// # Errors
    ///
    /// If the recording would go to standard output.
    pub(crate) fn separated(output: Option<PathBuf>, words: &[OsString]) -> anyhow::Result<Self> {
        let is_option = |word: &OsString| word.as_bytes().first() == Some(&b'-');
        // clap removes a `--` before the command if no option of nprof-record is before it.
        let (options, command) = match words.iter().position(|word| word == "--") {
            _ if !words.first().is_some_and(is_option) => (&[][..], words),
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        let mut request = Self { output, command: command.to_vec(), ..Self::default() };
        request.take(options)?;
        refuse_standard_output(request.output.as_deref())?;
        Ok(request)
    }

    /// True if its options select running processes.
    pub(crate) fn has_target(&self) -> bool {
        self.options.iter().any(|option| is_target(option))
    }

    /// Takes the options, and the output from among them.
    fn take(&mut self, options: &[OsString]) -> anyhow::Result<()> {
        let mut words = options.iter();
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            let value = match bytes {
                b"-o" | b"--output" => words.next().context("-o needs a file")?.as_bytes(),
                _ => match bytes.strip_prefix(b"--output=").or(bytes.strip_prefix(b"-o")) {
                    Some(value) => value,
                    None => {
                        self.options.push(word.clone());
                        continue;
                    }
                },
            };
            self.output = Some(OsStr::from_bytes(value).into());
        }
        Ok(())
    }

    /// Returns the name of the recorded program for the name of the recording.
    pub(super) fn program(&self) -> String {
        let name = match (&self.name, self.command.first()) {
            (Some(name), _) => name.into(),
            (None, Some(command)) => Path::new(command).file_name().unwrap_or(command).to_owned(),
            (None, None) => self.process().unwrap_or_else(|| "system".into()),
        };
        let plain = |byte: &u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'+' | b'-' => {
                char::from(*byte)
            }
            _ => '_',
        };
        name.as_bytes().iter().take(MAX_NAME).map(plain).collect()
    }

    /// Returns the name of the first process of `-p`, or of the control group. None for the system.
    fn process(&self) -> Option<OsString> {
        let at = self.options.iter().position(|option| is_target(option))?;
        let bytes = self.options[at].as_bytes();
        let prefixes = [&b"--cgroup="[..], b"--cgroup", b"-p"];
        let attached = prefixes.iter().find_map(|prefix| bytes.strip_prefix(*prefix))?;
        let value = match attached {
            [] => self.options.get(at + 1)?.as_bytes(),
            value => value,
        };
        if bytes.starts_with(b"--cgroup") {
            return Path::new(OsStr::from_bytes(value)).file_name().map(OsStr::to_owned);
        }
        let pid = value.split(|&byte| byte == b',').next().map(OsStr::from_bytes)?;
        let name = std::fs::read(Path::new("/proc").join(pid).join("comm")).unwrap_or_default();
        let name = name.trim_ascii_end();
        Some(OsStr::from_bytes(if name.is_empty() { pid.as_bytes() } else { name }).to_owned())
    }
}

/// Refuses standard output for the recording.
///
/// # Errors
///
/// If it is the output.
pub(crate) fn refuse_standard_output(output: Option<&Path>) -> anyhow::Result<()> {
    if output == Some(Path::new("-")) {
        bail!("-o -: standard output belongs to the command; write -o FILE");
    }
    Ok(())
}

/// True for an option of nprof-record that selects running processes.
fn is_target(option: &OsStr) -> bool {
    let bytes = option.as_bytes();
    bytes == b"-a" || bytes.starts_with(b"-p") || bytes.starts_with(b"--cgroup")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Run {
        #[command(flatten)]
        args: RunArgs,
    }

    fn request(words: &[&str]) -> anyhow::Result<Request> {
        Request::of(&Run::parse_from(["run"].iter().chain(words)).args)
    }

    fn parts(words: &[&str]) -> (Option<PathBuf>, String, String) {
        let request = request(words).expect("a request");
        let joined =
            |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().expect("UTF-8");
        (request.output, joined(request.options), joined(request.command))
    }

    #[test]
    fn separates_options_from_command() {
        let none = String::new;
        assert_eq!(parts(&["./a", "-o", "x"]), (None, none(), "./a -o x".into()));
        assert_eq!(parts(&["--", "./a", "--", "x"]), (None, none(), "./a -- x".into()));
        assert_eq!(
            parts(&["-F", "99", "-o", "f", "--", "a", "-o", "x"]),
            (Some("f".into()), "-F 99".into(), "a -o x".into())
        );
        assert_eq!(
            parts(&["-o", "f", "-e", "wall", "--", "a"]),
            (Some("f".into()), "-e wall".into(), "a".into())
        );
        assert_eq!(
            parts(&["-p", "7", "--output=f", "-d", "10s"]),
            (Some("f".into()), "-p 7 -d 10s".into(), none())
        );
    }

    #[test]
    fn refuses_command_that_cannot_be_separated() {
        for words in [&[][..], &["-F", "99", "./a"], &["-q"], &["-e", "wall", "--"]] {
            let error = request(words).expect_err("nothing to record").to_string();
            assert!(error.contains("write -- before the command"), "{error}");
        }
        assert!(request(&["-p", "1", "-o"]).is_err());
        for words in [&["-o", "-", "--", "a"][..], &["-p", "1", "--output=-"]] {
            let error = request(words).expect_err("standard output").to_string();
            assert!(error.contains("belongs to the command"), "{error}");
        }
    }

    #[test]
    fn program_names_recording() {
        let name = |words: &[&str]| request(words).expect("a request").program();
        assert_eq!(name(&["/usr/bin/my prog\n"]), "my_prog_");
        assert_eq!(name(&["-a", "-d", "1s"]), "system");
        assert_eq!(name(&["--cgroup", "/a.slice/b.service"]), "b.service");
        let own = std::process::id().to_string();
        assert_ne!(name(&["-p", &own]), own);
        assert_eq!(name(&["-p4000000000,1"]), "4000000000");
        assert_eq!(name(&[&"x".repeat(300)]).len(), MAX_NAME);
    }
}
