//! Whom to record, as the command line says it, looked up on this machine.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::shell;

use crate::cli::args::{Args, ScopeArg};
use crate::os::cgroup;
use crate::os::machine;
use crate::os::procfs::{self, Stat};
use crate::perf::plan::OpenMode;
use crate::session::cpu_time::CpuTimeScope;

/// Whom to record.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A command that is yet to be started, and what it starts; in a control group of its own,
    /// if there is one.
    Command(Option<Rc<cgroup::Own>>),
    /// Processes that are there, and what they start. Never empty.
    Processes(Vec<u32>),
    /// Whoever there is.
    System,
    /// The tasks of a control group.
    Group(PathBuf),
}

impl Target {
    /// Finds out whom the command line means.
    ///
    /// # Errors
    ///
    /// When there is no such process or control group, or none can be made.
    pub(crate) fn find(args: &Args) -> anyhow::Result<Self> {
        if !args.command.is_empty() {
            let own = (args.scope == ScopeArg::Cgroup).then(cgroup::Own::make).transpose()?;
            return Ok(Self::Command(own.map(Rc::new)));
        }
        if !matches!(args.scope, ScopeArg::Auto) {
            bail!("--scope says how a command is followed; there is none");
        }
        if let Some(name) = &args.cgroup {
            return Ok(Self::Group(cgroup::find(name)?));
        }
        if args.all {
            return Ok(Self::System);
        }
        let mut pids = Vec::new();
        for &pid in &args.pid {
            let Some(process) = procfs::process_of(pid) else {
                bail!("there is no process {pid} (in this pid namespace)");
            };
            if Stat::of(process).is_some_and(|stat| stat.ended) {
                bail!("process {pid} has ended, only its parent has not asked for its status yet");
            }
            if !pids.contains(&process) {
                pids.push(process);
            }
        }
        Ok(Self::Processes(pids))
    }

    /// How it may be reached, the best way first.
    pub(crate) fn open_modes(&self, scope: ScopeArg) -> Vec<OpenMode> {
        match (self, scope) {
            (Self::System, _) | (_, ScopeArg::Tree) => vec![OpenMode::System],
            (Self::Group(_), _) | (_, ScopeArg::Cgroup) => vec![OpenMode::Group],
            (_, ScopeArg::Task) => vec![OpenMode::Task],
            (_, ScopeArg::Auto) => vec![OpenMode::System, OpenMode::Task],
        }
    }

    /// The directory of the control group, opened, if there is one.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub(crate) fn group(&self) -> anyhow::Result<Option<File>> {
        let directory = match self {
            Self::Command(Some(own)) => &own.directory,
            Self::Group(directory) => directory,
            _ => return Ok(None),
        };
        File::open(directory).map(Some).with_context(|| format!("{}", directory.display()))
    }

    /// What coverage is a share of, when these CPUs are sampled; `None` where what is used on
    /// them alone is not told.
    pub(crate) fn cpu_time_scope(&self, cpus: &[u32]) -> Option<CpuTimeScope> {
        let is_all = || machine::online_cpus().iter().all(|cpu| cpus.contains(cpu));
        Some(match self {
            Self::System => CpuTimeScope::Cpus(cpus.to_vec()),
            _ if !is_all() => return None,
            Self::Command(Some(own)) => CpuTimeScope::Cgroup(own.directory.clone()),
            Self::Group(directory) => CpuTimeScope::Cgroup(directory.clone()),
            Self::Command(None) | Self::Processes(_) => CpuTimeScope::Processes,
        })
    }

    /// What the head of the stream says was recorded.
    pub(crate) fn described(&self, args: &Args) -> Vec<u8> {
        match self {
            Self::Command(_) => shell::quoted(&args.command),
            Self::Processes(pids) => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                format!("pid {}", pids.join(",")).into()
            }
            Self::System => b"system".to_vec(),
            Self::Group(directory) => {
                let mut described = b"cgroup ".to_vec();
                described.extend_from_slice(directory.as_os_str().as_encoded_bytes());
                described
            }
        }
    }
}
