//! A machine for tests: a directory with the files of /proc and /sys.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The root directory of a machine, removed on drop.
#[derive(Debug)]
pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// Creates a machine like a desktop: `cpu`, an uncore PMU, probes, and tracepoints.
    pub(crate) fn usual() -> Self {
        let machine = Self::new();
        machine.pmu(
            "cpu",
            4,
            &[
                ("format/event", "config:0-7"),
                ("format/umask", "config:8-15"),
                ("events/mem-loads", "event=0xcd,umask=0x1"),
            ],
        );
        machine.pmu("uncore_imc_0", 14, &[("cpumask", "0"), ("events/reads", "config=1")]);
        machine.pmu("uprobe", 8, &[("format/retprobe", "config:0")]);
        machine.pmu("software", 1, &[]);
        machine.tracepoint("sched", "sched_switch", "316");
        machine.tracepoint("syscalls", "sys_enter_write", "700");
        machine
    }

    /// Creates a machine with two kinds of cores.
    pub(crate) fn hybrid() -> Self {
        let machine = Self::new();
        let format = ("format/event", "config:0-7");
        machine.pmu("cpu_core", 4, &[("cpus", "0-3"), format]);
        machine.pmu("cpu_atom", 10, &[("cpus", "4-5"), format]);
        machine
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn devices(&self) -> PathBuf {
        self.root().join("sys/bus/event_source/devices")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    }

    pub(crate) fn pmu(&self, name: &str, kind: u32, files: &[(&str, &str)]) {
        let directory = format!("sys/bus/event_source/devices/{name}");
        self.write(&format!("{directory}/type"), &format!("{kind}\n"));
        for (file, text) in files {
            self.write(&format!("{directory}/{file}"), text);
        }
    }

    pub(crate) fn tracepoint(&self, system: &str, name: &str, id: &str) {
        self.write(&format!("sys/kernel/tracing/events/{system}/{name}/id"), id);
    }
}

/// Refuses to open a detached tracefs.
pub(crate) fn no_mount() -> std::io::Result<std::os::fd::OwnedFd> {
    Err(std::io::Error::from_raw_os_error(libc::EPERM))
}
