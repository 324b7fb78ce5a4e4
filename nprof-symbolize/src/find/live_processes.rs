//! Running processes of the recording: they give access to files without a path on this system, in
//! a container or deleted. The build ID or the loaded segments show that such a file is the recorded image.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nprof_object::maps::Mapping;
use nprof_object::path::without_deleted;

/// The number of processes that are remembered: the latest ones.
const MAX_PROCESSES: usize = 4096;

/// The number of running processes that are inspected for one image.
const MAX_PROCESSES_READ: usize = 64;

/// The number of mappings that are read of one process: the kernel's default limit is 65,530
/// (`vm.max_map_count`).
const MAX_MAPPINGS: usize = 70_000;

/// The processes of the recording.
#[derive(Debug, Default)]
pub(crate) struct LiveProcesses {
    pids: RefCell<VecDeque<u32>>,
}

/// The view of the file system that a process has.
#[derive(PartialEq, Eq, Hash)]
struct View {
    mount_namespace: PathBuf,
    root: PathBuf,
}

/// The mapping of a path in one process.
enum MappingSearch {
    /// The file of the mapping in `/proc/PID/map_files`.
    Found(PathBuf),
    /// The process has no such mapping.
    NotMapped,
    /// The process has exited, or its mappings may not be read.
    NoAccess,
}

impl LiveProcesses {
    /// Adds a process.
    pub(crate) fn note_process(&self, pid: u32) {
        let mut pids = self.pids.borrow_mut();
        // Process 0 is the kernel's idle task. The last process repeats most often.
        if pid == 0 || pids.back() == Some(&pid) || pids.contains(&pid) {
            return;
        }
        if pids.len() == MAX_PROCESSES {
            pids.pop_front();
        }
        pids.push_back(pid);
    }

    /// Returns the processes, the latest last.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.pids.borrow().iter().copied().collect()
    }

    /// Returns the roots of processes that differ from this process's, as `/proc/PID/root`, each
    /// once.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let mut seen: HashSet<View> = View::of("self").into_iter().collect();
        let mut roots = Vec::new();
        // Most processes have exited by now; they are dropped and not tried again.
        self.pids.borrow_mut().retain(|pid| {
            let Some(view) = View::of(&pid.to_string()) else { return false };
            if seen.insert(view) {
                roots.push(format!("/proc/{pid}/root").into());
            }
            true
        });
        roots
    }

    /// Returns the files that processes have mapped under a recorded path, as `/proc/PID/exe` and
    /// `/proc/PID/map_files/START-END`: the files they execute, even if the path now has another.
    pub(crate) fn mapped(&self, recorded: &[u8]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        let mut processes_read = 0;
        // The latest processes are the most likely to run.
        let pids: Vec<u32> = self.pids.borrow().iter().rev().copied().collect();
        for pid in pids {
            if processes_read == MAX_PROCESSES_READ {
                break;
            }
            // Unlike map_files, this link needs no capability for processes of the same user.
            paths.extend(executed(pid, recorded));
            match find_mapping(pid, recorded) {
                MappingSearch::Found(path) => paths.push(path),
                MappingSearch::NotMapped => {}
                // Such a process costs little and does not count.
                MappingSearch::NoAccess => continue,
            }
            processes_read += 1;
        }
        paths
    }
}

impl View {
    /// Returns the view of a process. None if it has exited or may not be inspected.
    fn of(process: &str) -> Option<Self> {
        let link = |name: &str| std::fs::read_link(format!("/proc/{process}/{name}")).ok();
        Some(Self { mount_namespace: link("ns/mnt")?, root: link("root")? })
    }
}

/// Returns the link to the executed file of a process, if it has the recorded path.
fn executed(pid: u32, recorded: &[u8]) -> Option<PathBuf> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = std::fs::read_link(&link).ok()?;
    let path = without_deleted(path.as_os_str().as_bytes());
    (path == without_deleted(recorded)).then_some(link)
}

/// Finds the first mapping of a path in a process.
fn find_mapping(pid: u32, recorded: &[u8]) -> MappingSearch {
    let Ok(maps) = std::fs::File::open(format!("/proc/{pid}/maps")) else {
        return MappingSearch::NoAccess;
    };
    // A path may have any byte, so that lines are bytes.
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok).take(MAX_MAPPINGS);
    match lines.into_iter().find_map(|line| map_files_name(&line, recorded)) {
        Some(name) => MappingSearch::Found(Path::new(&format!("/proc/{pid}/map_files")).join(name)),
        None => MappingSearch::NotMapped,
    }
}

/// Returns the name in `map_files` of a line of `/proc/PID/maps`, if it is a mapping of the path.
fn map_files_name(line: &[u8], recorded: &[u8]) -> Option<String> {
    let mapping = Mapping::parse(line)?;
    // Names in brackets, such as [vdso], have no file.
    let is_file = mapping.path.starts_with(b"/");
    let is_same = without_deleted(&mapping.path) == without_deleted(recorded);
    (is_file && is_same).then(|| mapping.map_files_name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_found_by_path_after_the_file_was_deleted() {
        let line = b"7f00-7f10 r-xp 00001000 08:01 1234                       /bin/a b (deleted)";
        assert_eq!(map_files_name(line, b"/bin/a b").as_deref(), Some("7f00-7f10"));
        assert_eq!(map_files_name(line, b"/bin/a b (deleted)").as_deref(), Some("7f00-7f10"));
        assert_eq!(map_files_name(line, b"/bin/a"), None);
        assert_eq!(
            map_files_name(b"00400000-00401000 r-xp 0 08:01 9 /a", b"/a").as_deref(),
            Some("400000-401000")
        );
        assert_eq!(map_files_name(b"7f00-7f10 r-xp 0 00:00 0  [vdso]", b"[vdso]"), None);
    }

    #[test]
    fn own_process_has_its_program_mapped_and_no_other_root() {
        let processes = LiveProcesses::default();
        processes.note_process(std::process::id());
        processes.note_process(u32::MAX);
        assert_eq!(processes.roots(), Vec::<PathBuf>::new());
        let exe = std::env::current_exe().unwrap();
        let mapped = processes.mapped(exe.as_os_str().as_bytes());
        assert_eq!(mapped.len(), 2, "{mapped:?}");
        assert_eq!(mapped[0], Path::new(&format!("/proc/{}/exe", std::process::id())));
        assert!(processes.mapped(b"/no/such/file").is_empty());
    }

    #[test]
    fn oldest_processes_are_forgotten() {
        let processes = LiveProcesses::default();
        for pid in 1..=5000 {
            processes.note_process(pid);
            processes.note_process(pid);
        }
        let pids = processes.pids.borrow();
        assert_eq!((pids.len(), pids.front()), (MAX_PROCESSES, Some(&905)));
    }
}
