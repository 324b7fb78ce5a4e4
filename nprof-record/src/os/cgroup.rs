//! Finds a control group by name, and creates one for a command, in the cgroup v2 hierarchy
//! (cgroups(7), Documentation/admin-guide/cgroup-v2.rst).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use nprof_stream::escape::escaped;

/// Returns the directory of a control group, given its path in the hierarchy or its directory.
///
/// # Errors
///
/// If no cgroup v2 hierarchy is mounted, or it has no such group.
pub(crate) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let mount = mount()?;
    let path = Path::new(name);
    // A directory as `ls /sys/fs/cgroup/...` shows it, or a path as in /proc/PID/cgroup.
    let directory = if path.starts_with(&mount) {
        path.to_owned()
    } else {
        mount.join(name.trim_start_matches('/'))
    };
    // Every cgroup v2 directory has this file.
    if !directory.join("cgroup.procs").is_file() {
        bail!("no control group {} in {}", escaped(name.as_bytes()), mount.display());
    }
    Ok(directory)
}

/// Returns the threads of a control group and those below it.
pub(crate) fn threads(directory: &Path) -> Vec<u32> {
    listed(directory, "cgroup.threads")
}

/// Returns the processes of a control group and those below it, but for groups of which processes have threads in
/// other groups: the kernel does not list their processes.
pub(crate) fn processes(directory: &Path) -> Vec<u32> {
    listed(directory, "cgroup.procs")
}

/// Returns the ids in a file of a control group and those below it.
fn listed(directory: &Path, file: &str) -> Vec<u32> {
    let list = fs::read_to_string(directory.join(file)).unwrap_or_default();
    let mut ids: Vec<u32> = list.lines().filter_map(|id| id.parse().ok()).collect();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        ids.extend(listed(&entry.path(), file));
    }
    ids
}

/// True if a process is neither in a group that was created for a command nor in one below it. A process that has
/// exited has not left.
pub(crate) fn has_left(pid: u32, directory: &Path) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = own_group(&text).zip(directory.file_name());
    // The path is relative to the cgroup namespace.
    group.is_some_and(|(path, name)| !Path::new(path).iter().any(|part| part == name))
}

/// The most creations of a group that other recorders remove before it is locked.
const CREATIONS_MAX: usize = 16;

/// The start of the names of groups created for commands; the id of the recorder follows.
const NAME: &str = "nprof-";

/// A control group created for a command. Removed on drop, unless processes still run in it.
#[derive(Debug)]
pub(crate) struct OwnCgroup {
    pub(crate) directory: PathBuf,
    /// The directory, open and locked: other recorders remove groups without a lock. The kernel
    /// releases it if this process is killed.
    _lock: File,
}

impl OwnCgroup {
    /// Creates a group below that of this process, so that its limits still apply.
    ///
    /// # Errors
    ///
    /// If no cgroup v2 hierarchy is mounted, or it is not writable.
    pub(crate) fn create() -> anyhow::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
        let ours =
            own_group(&groups).context("this process is in no control group of version 2")?;
        let parent = mount()?.join(ours.trim_start_matches('/'));
        remove_abandoned(&parent);
        let directory = parent.join(format!("{NAME}{}", std::process::id()));
        let lock = create_locked(&directory).map_err(|error| refused(&directory, &error))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Moves a process into the group.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub(crate) fn enter(&self, pid: i32) -> anyhow::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move a process to {}", self.directory.display()))
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        // EBUSY if processes still run in it: it stays.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Returns the failure to create a group, with the remedy.
fn refused(directory: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => "run nprof-record as root, or select --follow inherit",
        // In containers the hierarchy is read-only.
        _ => "select --follow system or inherit",
    };
    anyhow!("cannot create the control group {}: {error}; {remedy}", directory.display())
}

/// Creates a directory and locks it.
fn create_locked(directory: &Path) -> io::Result<File> {
    for _ in 0..CREATIONS_MAX {
        fs::create_dir(directory)?;
        let lock = match File::open(directory) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        lock.lock()?;
        // Another recorder may have removed it while it had no lock.
        if directory.exists() {
            return Ok(lock);
        }
    }
    Err(io::Error::other("another process removes it"))
}

/// Removes the groups of recorders that were killed, unless processes still run in them. A pid would
/// not show that they were: another recorder may run in another pid namespace.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let is_ours = id.is_some_and(|id| id.parse::<u32>().is_ok());
        if is_ours
            && let Ok(group) = File::open(entry.path())
            && group.try_lock().is_ok()
        {
            // Locked until it is gone: its recorder may be about to lock it. EBUSY if processes
            // still run in it: it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the mount point of cgroup v2.
fn mount() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    mounted(&mounts)
        .map(PathBuf::from)
        .context("no cgroup v2 hierarchy is mounted: `mount -t cgroup2 none /sys/fs/cgroup`")
}

/// Parses the mount point of cgroup v2 from /proc/self/mountinfo.
fn mounted(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4)
}

/// Parses the group of version 2 from /proc/self/cgroup: its hierarchy has number 0.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_without_a_recorder_are_removed() {
        let parent = std::env::temp_dir().join(format!("nprof-groups-{}", std::process::id()));
        fs::create_dir_all(&parent).expect("created");
        let used = create_locked(&parent.join("nprof-1")).expect("created");
        for name in ["nprof-2", "nprof-other", "nprof-3"] {
            fs::create_dir(parent.join(name)).expect("created");
        }
        // A directory with a file stands for a group with a process: it cannot be removed.
        fs::write(parent.join("nprof-3/file"), "").expect("written");
        remove_abandoned(&parent);
        let left =
            ["nprof-1", "nprof-2", "nprof-other", "nprof-3"].map(|name| parent.join(name).exists());
        assert_eq!(left, [true, false, true, true]);
        drop(used);
        remove_abandoned(&parent);
        assert!(!parent.join("nprof-1").exists());
        fs::remove_dir_all(&parent).expect("removed");
    }

    #[test]
    fn refused_group_names_a_remedy() {
        let message = |number| {
            let error = io::Error::from_raw_os_error(number);
            refused(Path::new("/sys/fs/cgroup/nprof-1"), &error).to_string()
        };
        assert_eq!(
            message(libc::EACCES),
            "cannot create the control group /sys/fs/cgroup/nprof-1: Permission denied (os error \
             13); run nprof-record as root, or select --follow inherit"
        );
        assert!(message(libc::EROFS).ends_with("; select --follow system or inherit"));
    }

    #[test]
    fn finds_version_2_among_other_hierarchies() {
        let text = "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    32 24 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(text), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mounted("31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
        assert_eq!(own_group("2:cpu:/a\n0::/user.slice/x\n"), Some("/user.slice/x"));
        assert_eq!(own_group("2:cpu:/a\n"), None);
    }
}
