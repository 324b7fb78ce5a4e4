//! Processes of the recording that still run: through them a file can be had that has no path
//! here, since it is in a container or was removed. Only the build ID tells whether it is the one.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::search_paths::without_deleted;

/// How many processes are remembered: those that were seen last.
const REMEMBERED: usize = 4096;

/// How many processes' mappings are looked through for one image.
const LOOKED_AT: usize = 64;

/// How many lines of one process's mappings are read.
const MAPPINGS: usize = 70_000;

/// The processes of the recording.
#[derive(Debug, Default)]
pub(crate) struct LiveProcesses {
    pids: RefCell<VecDeque<u32>>,
}

impl LiveProcesses {
    /// Takes note of a process.
    pub(crate) fn note_process(&self, pid: u32) {
        let mut pids = self.pids.borrow_mut();
        if pid == 0 || pids.back() == Some(&pid) || pids.contains(&pid) {
            return;
        }
        if pids.len() == REMEMBERED {
            pids.pop_front();
        }
        pids.push_back(pid);
    }

    /// Those that were seen.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.pids.borrow().iter().copied().collect()
    }

    /// The other roots that processes have, as `/proc/PID/root`, each once.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let mut seen: HashSet<_> = view("self").into_iter().collect();
        let mut roots = Vec::new();
        // Most are gone by the time they are asked, and need not be asked again.
        self.pids.borrow_mut().retain(|pid| {
            let view = view(&pid.to_string());
            let is_there = view.is_some();
            if view.is_some_and(|view| seen.insert(view)) {
                roots.push(format!("/proc/{pid}/root").into());
            }
            is_there
        });
        roots
    }

    /// The files that processes have mapped under a recorded path, as
    /// `/proc/PID/map_files/START-END`: what they run, whatever is at that path now.
    pub(crate) fn mapped(&self, recorded: &[u8]) -> Vec<PathBuf> {
        let pids: Vec<u32> = self.pids.borrow().iter().rev().copied().collect();
        let found = pids.into_iter().filter_map(|pid| mapping(pid, recorded));
        found.take(LOOKED_AT).flatten().collect()
    }
}

/// What tells which files a process sees: its mount namespace, and its root there.
fn view(process: &str) -> Option<(PathBuf, PathBuf)> {
    let link = |name: &str| std::fs::read_link(format!("/proc/{process}/{name}")).ok();
    Some((link("ns/mnt")?, link("root")?))
}

/// The first mapping of a path in a process. `None` when the process is gone or may not be asked.
fn mapping(pid: u32, recorded: &[u8]) -> Option<Option<PathBuf>> {
    let maps = std::fs::File::open(format!("/proc/{pid}/maps")).ok()?;
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok).take(MAPPINGS);
    let range = lines.into_iter().find_map(|line| range(&line, recorded));
    Some(range.map(|range| Path::new(&format!("/proc/{pid}/map_files")).join(range)))
}

/// The range of addresses of a line of `/proc/PID/maps`, if it is a mapping of the path:
/// `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`, where the path has its newlines escaped.
fn range(line: &[u8], recorded: &[u8]) -> Option<PathBuf> {
    let at = line.iter().position(|&byte| byte == b'/')?;
    let is_it = without_deleted(&line[at..]) == without_deleted(recorded);
    let end = line.iter().position(|&byte| byte == b' ').filter(|_| is_it)?;
    let (start, end) = std::str::from_utf8(&line[..end]).ok()?.split_once('-')?;
    // The directory has no zeros in front.
    let [start, end] = [start, end].map(|digits| digits.trim_start_matches('0'));
    Some(format!("{start}-{end}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_mapping_is_found_by_its_path_also_when_the_file_was_removed() {
        let line = b"7f00-7f10 r-xp 00001000 08:01 1234                       /bin/a b (deleted)";
        assert_eq!(range(line, b"/bin/a b"), Some("7f00-7f10".into()));
        assert_eq!(range(line, b"/bin/a b (deleted)"), Some("7f00-7f10".into()));
        assert_eq!(range(line, b"/bin/a"), None);
        assert_eq!(
            range(b"00400000-00401000 r-xp 0 08:01 9 /a", b"/a"),
            Some("400000-401000".into())
        );
        assert_eq!(range(b"7f00-7f10 r-xp 0 00:00 0  [vdso]", b"[vdso]"), None);
    }

    #[test]
    fn this_process_has_its_program_mapped_and_no_other_root() {
        let living = LiveProcesses::default();
        living.note_process(std::process::id());
        living.note_process(u32::MAX);
        assert_eq!(living.roots(), Vec::<PathBuf>::new());
        let exe = std::env::current_exe().unwrap();
        let mapped = living.mapped(exe.as_os_str().as_bytes());
        assert_eq!(mapped.len(), 1, "{mapped:?}");
        assert!(living.mapped(b"/no/such/file").is_empty());
    }

    #[test]
    fn only_so_many_processes_are_remembered() {
        let living = LiveProcesses::default();
        for pid in 1..=5000 {
            living.note_process(pid);
            living.note_process(pid);
        }
        let pids = living.pids.borrow();
        assert_eq!((pids.len(), pids.front()), (REMEMBERED, Some(&905)));
    }
}
