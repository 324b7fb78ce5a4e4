//! Finds and opens the map of run-time code of a process, which lies where anybody may write. It
//! must be a regular file of the user the process runs as, or root's; and not left by an earlier
//! process that had the same id.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};

use crate::os::procfs::Stat;
use crate::sys;

/// How much older than the process its map may seem: file times are those of the last tick.
const TICK: Duration = Duration::from_millis(100);

/// Opens the map of a process that began at `began`, ns of the monotonic clock; or, with none,
/// before the recording, when /proc has to tell.
pub(crate) fn open(pid: u32, began: Option<u64>) -> Option<File> {
    let age = match began {
        Some(began) => Duration::from_nanos(sys::monotonic_ns().saturating_sub(began)),
        None => age(pid)?,
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    let (path, user) = match status.ok().and_then(|status| identity(&status)) {
        Some((user, own_pid)) => (format!("/proc/{pid}/root/tmp/perf-{own_pid}.map"), user),
        // It has ended, and was most likely one of ours.
        None => (format!("/tmp/perf-{pid}.map"), fs::metadata("/proc/self").ok()?.uid()),
    };
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let is_of_it = metadata.is_file()
        && [user, 0].contains(&metadata.uid())
        && SystemTime::now()
            .checked_sub(age + TICK)
            .is_none_or(|began| metadata.modified().is_ok_and(|modified| modified >= began));
    is_of_it.then_some(file)
}

/// How long ago a process began; `None` when it is gone. It may have executed its image later.
fn age(pid: u32) -> Option<Duration> {
    let began = Stat::of(pid)?.start_ticks.checked_mul(sys::clock_tick_ns())?;
    Some(Duration::from_nanos(sys::boot_ns().saturating_sub(began)))
}

/// From the text of /proc/PID/status: the user a process acts as, and the id it has in its own
/// pid namespace, by which it knows itself.
fn identity(status: &str) -> Option<(u32, u32)> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let own_pid = match field("NSpid:") {
        Some(pids) => pids.split_whitespace().next_back()?,
        None => field("Pid:")?.trim(),
    };
    Some((user, own_pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_innermost_pid_and_effective_user() {
        let status = "Name:\tx\nPid:\t77\nNSpid:\t77\t12\t1\nUid:\t1000\t1001\t1002\t1003\n";
        assert_eq!(identity(status), Some((1001, 1)));
        assert_eq!(identity("Pid:\t77\nUid:\t0\t0\t0\t0\n"), Some((0, 77)));
        assert_eq!(identity("Pid:\t77\n"), None);
        assert_eq!(identity(""), None);
    }

    #[test]
    fn only_a_file_of_the_process_is_its_map() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let _ = fs::remove_file(&path);
        assert!(open(pid, Some(0)).is_none(), "there is none");
        std::os::unix::fs::symlink("/proc/self/status", &path).expect("a link");
        assert!(open(pid, Some(0)).is_none(), "a link is somebody's trick");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a directory");
        assert!(open(pid, Some(0)).is_none(), "a directory is no file");
        fs::remove_dir(&path).expect("removed");
        let file = File::create(&path).expect("a file");
        assert!(open(pid, Some(0)).is_some());
        let before = SystemTime::now() - Duration::from_secs(2);
        file.set_modified(before).expect("set");
        assert!(open(pid, Some(sys::monotonic_ns())).is_none(), "an earlier process left it");
        assert!(open(pid, Some(0)).is_some(), "one that began with the machine may have");
        let age = age(pid).expect("we live");
        let earlier = SystemTime::now() - age - Duration::from_secs(5);
        file.set_modified(earlier).expect("set");
        assert!(open(pid, None).is_none(), "older than this process");
        file.set_modified(SystemTime::now()).expect("set");
        assert!(open(pid, None).is_some(), "written by this process");
        assert!(open(u32::MAX, None).is_none(), "gone");
        if fs::metadata("/proc/self").expect("it").uid() == 0 {
            std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
            assert!(open(pid, Some(0)).is_none(), "another user's");
        }
        fs::remove_file(&path).expect("removed");
    }
}
