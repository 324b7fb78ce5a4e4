//! The target of a recording: finds the processes, cgroup or command of the command line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail};
use nprof_cli::shell;

use crate::cli::args::{Args, FollowArg};
use crate::os::cgroup;
use crate::os::machine;
use crate::os::procfs;
use crate::perf::plan::OpenMode;
use crate::session::cpu_time::CpuTimeScope;
use crate::session::existing_threads::ExistingThreads;

/// The processes to record.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A command to start, and its children; with the control group created for it, if any.
    Command(Option<Rc<cgroup::OwnCgroup>>),
    Processes(RunningProcesses),
    /// All processes.
    System,
    /// The tasks of a control group.
    Group(PathBuf),
}

/// Running processes to record.
#[derive(Clone, Debug)]
pub(crate) struct RunningProcesses {
    /// Those of the command line. Never empty.
    pub(crate) pids: Vec<u32>,
    /// All processes that existed before the descendants were listed.
    pub(crate) existing: Vec<u32>,
    /// The descendants they already have.
    pub(crate) descendants: Vec<u32>,
    /// True if these are recorded, too.
    pub(crate) with_descendants: bool,
}

impl RunningProcesses {
    /// Returns the processes that are recorded from the beginning.
    pub(crate) fn recorded(&self) -> Vec<u32> {
        let descendants = if self.with_descendants { &self.descendants[..] } else { &[] };
        [&self.pids[..], descendants].concat()
    }

    /// Returns the processes that are no new descendants: all that existed before.
    pub(crate) fn known(&self) -> Vec<u32> {
        [&self.existing[..], self.excluded()].concat()
    }

    /// Returns the descendants that are not recorded.
    pub(crate) fn excluded(&self) -> &[u32] {
        if self.with_descendants { &[] } else { &self.descendants }
    }
}

impl Target {
    /// Finds the target of the command line.
    ///
    /// # Errors
    ///
    /// If a process or the control group does not exist, or none can be created; if /proc has the ids of
    /// another pid namespace.
    pub(crate) fn find(args: &Args) -> anyhow::Result<Self> {
        // The stream would have the names and code of other processes.
        if procfs::is_of_another_namespace() {
            bail!(
                "/proc lists the processes of another pid namespace; mount that of this one: \
                 mount -t proc proc /proc, or start the namespace by unshare --mount-proc"
            );
        }
        if !args.command.is_empty() {
            let own = if args.follow == FollowArg::Cgroup {
                Some(cgroup::OwnCgroup::create()?)
            } else {
                None
            };
            return Ok(Self::Command(own.map(Rc::new)));
        }
        let is_attached = !args.pid.is_empty();
        match args.follow {
            FollowArg::Auto => {}
            FollowArg::System | FollowArg::Inherit if is_attached => {}
            FollowArg::Cgroup if is_attached => {
                bail!("--follow cgroup needs a command: a process keeps its control group");
            }
            _ => bail!("--follow applies to a command or to -p, and none is given"),
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
                if !Path::new("/proc/self").exists() {
                    bail!("process {pid} cannot be found: /proc is not mounted; mount it");
                }
                bail!("process {pid} does not exist (in this pid namespace)");
            };
            if procfs::living_thread(process).is_none() {
                bail!(
                    "process {pid} is a zombie (it has exited, its parent has not waited for it)"
                );
            }
            // The ids of two threads may name the same process.
            if !pids.contains(&process) {
                pids.push(process);
            }
        }
        let existing = procfs::processes();
        let mut descendants = procfs::descendants(&pids, &[]);
        descendants.retain(|&pid| procfs::living_thread(pid).is_some());
        Ok(Self::Processes(RunningProcesses {
            pids,
            existing,
            descendants,
            with_descendants: args.descendants,
        }))
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

    /// Returns the processes of which the threads exist before sampling begins. `command` is the process
    /// of the command.
    pub(crate) fn existing_threads(&self, command: u32) -> ExistingThreads {
        match self {
            Self::Command(None) => {
                ExistingThreads::Processes { pids: vec![command], known: Vec::new() }
            }
            Self::Command(Some(own)) => ExistingThreads::Group(own.directory.clone()),
            Self::Processes(running) => {
                ExistingThreads::Processes { pids: running.recorded(), known: running.known() }
            }
            Self::System => ExistingThreads::System,
            Self::Group(directory) => ExistingThreads::Group(directory.clone()),
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
            Self::Command(Some(own)) => CpuTimeScope::OwnCgroup(own.directory.clone()),
            Self::Group(directory) => CpuTimeScope::Cgroup(directory.clone()),
            Self::Command(None) | Self::Processes(_) => CpuTimeScope::Processes,
        })
    }

    /// Returns the description of the target for the head of the stream.
    pub(crate) fn described(&self, args: &Args) -> Vec<u8> {
        match self {
            Self::Command(_) => shell::quoted(&args.command),
            Self::Processes(RunningProcesses { pids, with_descendants, .. }) => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                let descendants = if *with_descendants { " with descendants" } else { "" };
                format!("pid {}{descendants}", pids.join(",")).into()
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
