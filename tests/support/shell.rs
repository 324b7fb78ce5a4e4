//! A shell in a scratch directory, with the tools in its path.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A scratch directory, and how to run scripts in it. Both go away together.
#[derive(Debug)]
pub struct Shell {
    directory: TempDir,
    /// What every script is run under, such as `setpriv ...`.
    wrapper: Vec<OsString>,
    /// Where the tools are.
    tools: PathBuf,
}

/// How a script ended, and what it said.
#[derive(Debug)]
pub struct Finished {
    /// The exit status of the script's last command, 128+N for signal N.
    pub status: i32,
    /// The exit status of every stage of its last pipe.
    pub stages: Vec<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Finished {
    /// Checks that every stage of the last pipe ended well and nothing was said on standard
    /// error, and gives the output.
    ///
    /// # Panics
    ///
    /// When not.
    #[track_caller]
    pub fn quiet(self) -> String {
        let well = self.stages.iter().all(|&status| status == 0);
        assert!(well && self.err.is_empty(), "{self:#?}");
        self.out
    }
}

impl Default for Shell {
    fn default() -> Self {
        Self::new()
    }
}

impl Shell {
    /// A shell in a new scratch directory.
    ///
    /// # Panics
    ///
    /// When there is no room for one.
    pub fn new() -> Self {
        Self {
            directory: TempDir::with_prefix("nprof-").expect("a scratch directory can be made"),
            wrapper: Vec::new(),
            tools: super::tools().to_owned(),
        }
    }

    /// A shell whose scripts run as nobody, without any capability. The tools are copied, as
    /// the build directory may be closed to others.
    ///
    /// # Panics
    ///
    /// When there is no room for a scratch directory.
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

    /// The scratch directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file in the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in the scratch directory.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a scratch file can be written");
        path
    }

    /// Reads a file in the scratch directory.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a scratch file can be read")
    }

    /// Runs a script with bash, to its end, with an empty standard input.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn run(&self, script: &str) -> Finished {
        let stages = self.path(".stages");
        // The trap sees the statuses of the last pipe before anything else runs.
        let script = format!(
            "trap 'stages=(\"${{PIPESTATUS[@]}}\"); echo \"${{stages[@]}}\" >{}' EXIT\n{script}",
            stages.display()
        );
        // Where tests are run in the background these are ignored, by all they start as well.
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

    /// A command in the scratch directory, with the tools in its path.
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
            .env_remove("NO_COLOR")
            // perl does the same work every time.
            .env("PERL_HASH_SEED", "0")
            .current_dir(self.directory.path());
        command
    }
}
