//! A shell in a scratch directory, with the tools in its `PATH`.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A scratch directory and the environment of scripts that run in it. Dropping it removes the
/// directory.
#[derive(Debug)]
pub struct Shell {
    directory: TempDir,
    /// The words before each command, such as `setpriv ...`.
    wrapper: Vec<OsString>,
    /// The directory of the tools.
    tools: PathBuf,
}

/// Exit status and output of a script.
#[derive(Debug)]
pub struct Finished {
    /// The exit status of the last command; 128+N for signal N.
    pub status: i32,
    /// The exit status of each stage of the last pipe.
    pub stages: Vec<i32>,
    /// The standard output.
    pub out: String,
    /// The standard error.
    pub err: String,
}

impl Finished {
    /// Returns the standard output.
    ///
    /// # Panics
    ///
    /// If a stage of the last pipe did not exit with 0, or there is output on standard error.
    #[track_caller]
    pub fn quiet(self) -> String {
        let succeeded = self.stages.iter().all(|&status| status == 0);
        assert!(succeeded && self.err.is_empty(), "{self:#?}");
        self.out
    }
}

impl Default for Shell {
    fn default() -> Self {
        Self::new()
    }
}

impl Shell {
    /// Creates a shell with a new scratch directory.
    ///
    /// # Panics
    ///
    /// If the directory cannot be created.
    pub fn new() -> Self {
        Self {
            directory: TempDir::with_prefix("nprof-").expect("a scratch directory can be made"),
            wrapper: Vec::new(),
            tools: super::tools().to_owned(),
        }
    }

    /// Creates a shell that runs scripts as user 65534, without capabilities. Copies the tools into
    /// the scratch directory, since other users may have no access to the build directory.
    ///
    /// # Panics
    ///
    /// If the directory cannot be created.
    pub fn unprivileged() -> Self {
        let mut shell = Self::new();
        let bin = shell.path("bin");
        std::fs::create_dir(&bin).expect("a directory can be made");
        for name in super::TOOLS {
            std::fs::copy(super::tool(name), bin.join(name)).expect("a tool can be copied");
        }
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(shell.directory.path(), everyone)
            .expect("a scratch directory can be opened to all");
        shell.tools = bin;
        shell.wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            .map(OsString::from)
            .to_vec();
        shell
    }

    /// Returns the path of the scratch directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of a file in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in the scratch directory; returns its path.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a scratch file can be written");
        path
    }

    /// Reads a file in the scratch directory.
    ///
    /// # Panics
    ///
    /// If it cannot be read.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a scratch file can be read")
    }

    /// Runs a script with bash and an empty standard input, and waits for it.
    ///
    /// # Panics
    ///
    /// If bash cannot be started.
    pub fn run(&self, script: &str) -> Finished {
        let stages = self.path(".stages");
        // PIPESTATUS is overwritten by the next command: the trap copies it first.
        let script = format!(
            "trap 'stages=(\"${{PIPESTATUS[@]}}\"); echo \"${{stages[@]}}\" >{}' EXIT\n{script}",
            stages.display()
        );
        // A background job of a script starts with SIGINT and SIGQUIT ignored, and its children
        // inherit that. Tests that send SIGINT must work there, too.
        let output = self
            .command("env")
            .args(["--default-signal=INT,QUIT", "bash", "-c", &script])
            .stdin(Stdio::null())
            .output()
            .expect("bash can be started");
        let stages = std::fs::read_to_string(stages).unwrap_or_default();
        Finished {
            status: output.status.code().unwrap_or(-1),
            stages: stages.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns a command that runs in the scratch directory with the tools in its `PATH`.
    pub fn command(&self, program: &str) -> Command {
        let mut words = self.wrapper.iter().cloned().chain([program.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        let mut path = self.tools.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        command
            .args(words)
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            // script(1) starts a command with it.
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .env_remove("LINES")
            // Perl orders hashes at random by default; a fixed seed makes each run do the same work.
            .env("PERL_HASH_SEED", "0")
            .current_dir(self.directory.path());
        command
    }
}
