//! Control groups: finding one by its name, and making one for a command, in the cgroup v2
//! hierarchy (cgroups(7), Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use nprof_stream::escape::escaped;

/// The directory of a control group, by its path in the hierarchy or its directory.
///
/// # Errors
///
/// When there is no hierarchy of version 2, or no such group in it.
pub(crate) fn find(name: &str) -> anyhow::Result<PathBuf> {
    let mount = mount()?;
    let path = Path::new(name);
    let directory = if path.starts_with(&mount) {
        path.to_owned()
    } else {
        mount.join(name.trim_start_matches('/'))
    };
    if !directory.join("cgroup.procs").is_file() {
        bail!("no control group {} in {}", escaped(name.as_bytes()), mount.display());
    }
    Ok(directory)
}

/// A control group made for a command. Goes when it is dropped, unless something lives on in it.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) directory: PathBuf,
}

impl Own {
    /// Makes one below the group we are in, so that its limits go on to hold.
    ///
    /// # Errors
    ///
    /// When there is no hierarchy of version 2, or it is not ours to write.
    pub(crate) fn make() -> anyhow::Result<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
        let ours =
            own_group(&groups).context("this process is in no control group of version 2")?;
        let parent = mount()?.join(ours.trim_start_matches('/'));
        let directory = parent.join(format!("nprof-{}", std::process::id()));
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make the control group {}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Moves a process into it.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub(crate) fn enter(&self, pid: i32) -> anyhow::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("cannot move a process to {}", self.directory.display()))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

fn mount() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    mounted(&mounts)
        .map(PathBuf::from)
        .context("no cgroup v2 hierarchy is mounted: `mount -t cgroup2 none /sys/fs/cgroup`")
}

/// Where cgroup v2 is mounted, in the text of /proc/self/mountinfo.
fn mounted(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4)
}

/// The group of version 2, in the text of /proc/self/cgroup.
fn own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_version_2_is_found_among_others() {
        let text = "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    32 24 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(text), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mounted("31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
        assert_eq!(own_group("2:cpu:/a\n0::/user.slice/x\n"), Some("/user.slice/x"));
        assert_eq!(own_group("2:cpu:/a\n"), None);
    }
}
