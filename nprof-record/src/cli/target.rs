//! The target of a recording: finds the processes, cgroup or command of the command line.

use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::shell;

use crate::cli::args::{Args, FollowArg};
use crate::os::cgroup;
use crate::os::machine;
use crate::os::procfs::{self, Stat};
use crate::perf::plan::OpenMode;
use crate::session::cpu_time::CpuTimeScope;

/// The processes to record.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A command to start, and its children; with the control group created for it, if any.
    Command(Option<Rc<cgroup::OwnCgroup>>),
    /// Running processes, and their new children. Never empty.
    Processes(Vec<u32>),
    /// All processes.
    System,
    /// The tasks of a control group.
    Group(PathBuf),
}

impl Target {
    /// Finds the target of the command line.
    ///
    /// # Errors
    ///
    /// If a process or the control group does not exist, or none can be created.
    pub(crate) fn find(args: &Args) -> anyhow::Result<Self> {
        if !args.command.is_empty() {
            let own = if args.follow == FollowArg::Cgroup {
                Some(cgroup::OwnCgroup::create()?)
            } else {
                None
            };
            return Ok(Self::Command(own.map(Rc::new)));
        }
        if args.follow != FollowArg::Auto {
            bail!("--follow applies to a command, and none is given");
        }
        if let Some(name) = &args.cgroup {
            return Ok(Self::Group(cgroup::find(name)?));
        }
        if args.all {
            return Ok(Self::System);
        }
        // A process that is missing or a zombie would end the recording at once: report it.
        let mut pids = Vec::new();
        for &pid in &args.pid {
            let Some(process) = procfs::process_of(pid) else {
                bail!("process {pid} does not exist (in this pid namespace)");
            };
            if Stat::of(process).is_some_and(|stat| stat.is_zombie) {
                bail!(
                    "process {pid} is a zombie (it has exited, its parent has not waited for it)"
                );
            }
            // The ids of two threads may name the same process.
            if !pids.contains(&process) {
                pids.push(process);
            }
        }
        Ok(Self::Processes(pids))
    }

    /// Returns the ways to open events for this target, the best first.
    pub(crate) fn open_modes(&self, follow: FollowArg) -> Vec<OpenMode> {
        match (self, follow) {
            (Self::System, _) | (_, FollowArg::System) => vec![OpenMode::System],
            (Self::Group(_), _) | (_, FollowArg::Cgroup) => vec![OpenMode::Group],
            (_, FollowArg::Inherit) => vec![OpenMode::Task],
            // Inherited events miss most of short-lived tasks: only if all CPUs are not permitted.
            (_, FollowArg::Auto) => vec![OpenMode::System, OpenMode::Task],
        }
    }

    /// Opens the directory of the control group. None if the target has no control group.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub(crate) fn group(&self) -> anyhow::Result<Option<File>> {
        let directory = match self {
            Self::Command(Some(own)) => &own.directory,
            Self::Group(directory) => directory,
            _ => return Ok(None),
        };
        File::open(directory).map(Some).with_context(|| format!("{}", directory.display()))
    }

    /// Returns the CPU time that coverage is a share of, if these CPUs are sampled. None if the
    /// kernel does not account it.
    pub(crate) fn cpu_time_scope(&self, cpus: &[u32]) -> Option<CpuTimeScope> {
        let all_cpus = machine::online_cpus().iter().all(|cpu| cpus.contains(cpu));
        Some(match self {
            Self::System => CpuTimeScope::Cpus(cpus.to_vec()),
            // The kernel accounts the time of processes and cgroups for all CPUs together.
            _ if !all_cpus => return None,
            Self::Command(Some(own)) => CpuTimeScope::Cgroup(own.directory.clone()),
            Self::Group(directory) => CpuTimeScope::Cgroup(directory.clone()),
            Self::Command(None) | Self::Processes(_) => CpuTimeScope::Processes,
        })
    }

    /// Returns the description of the target for the head of the stream.
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
