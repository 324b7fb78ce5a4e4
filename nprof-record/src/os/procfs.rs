//! Reads /proc/PID (proc(5)) of existing processes: threads, names, mappings, CPU time. Processes
//! that have exited are omitted.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nprof_object::path::without_deleted;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::sys;

/// The ids and names of the threads of processes, by the ids of these.
pub(crate) type ThreadNames = FxHashMap<u32, Vec<(u32, Vec<u8>)>>;

/// An existing thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadInfo {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The parent process; 0 if there is none or it is unknown.
    pub(crate) parent: u32,
    pub(crate) comm: Vec<u8>,
    /// True if it has exited, and is kept as the first thread of its process.
    pub(crate) is_zombie: bool,
}

/// Returns the process of a thread. None if there is no such thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    number_after(&status, b"Tgid:")
}

/// True if a process ignores a signal.
pub(crate) fn ignores_signal(pid: u32, signal: i32) -> bool {
    fs::read(format!("/proc/{pid}/status")).is_ok_and(|status| ignored_in(&status, signal))
}

/// True if a signal is in the mask of ignored signals of /proc/PID/status.
fn ignored_in(status: &[u8], signal: i32) -> bool {
    let mut lines = status.split(|&byte| byte == b'\n');
    let mask = lines.find_map(|line| line.strip_prefix(b"SigIgn:"));
    let mask = mask.and_then(|mask| std::str::from_utf8(mask).ok());
    // Bit 0 is signal 1.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// True if this process is in another pid namespace than the initial one: it sees only processes of
/// its own and of nested ones.
pub(crate) fn is_in_pid_namespace() -> bool {
    // PROC_PID_INIT_INO (include/linux/proc_ns.h).
    fs::read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() != "pid:[4026531836]")
}

/// True if the mounted /proc lists processes by the ids of another pid namespace.
pub(crate) fn is_of_another_namespace() -> bool {
    match fs::read_link("/proc/self") {
        Ok(own) => own.as_os_str() != std::process::id().to_string().as_str(),
        // The link is there, and leads nowhere, if the namespace does not have this process.
        Err(_) => fs::symlink_metadata("/proc/self").is_ok(),
    }
}

/// Returns the peak resident memory of this process.
pub(crate) fn own_peak_bytes() -> Option<u64> {
    // ru_maxrss of getrusage(2) is inherited over fork and exec: it is at least that of our parent.
    let status = fs::read("/proc/self/status").ok()?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"VmHWM:"))?;
    let kib = std::str::from_utf8(line).ok()?.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns a number above all ids of tasks. None if it cannot be read.
pub(crate) fn pid_max() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()
}

/// Returns the ids of the threads of a process, the first thread's first. Empty if it has exited.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The first thread carries the state of the process: it must be added before the others.
    threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
    threads
}

/// Returns the number of threads of a process; 0 if it has exited.
fn thread_count(pid: u32) -> u64 {
    // The kernel counts a link for each directory in it, and two of its own.
    fs::metadata(format!("/proc/{pid}/task")).map_or(0, |task| task.nlink().saturating_sub(2))
}

/// True if a thread of a process has not exited, or cannot be read. The first thread stays until all
/// have.
pub(crate) fn may_run(pid: u32, tid: u32) -> bool {
    match fs::read(format!("/proc/{pid}/task/{tid}/stat")) {
        Ok(text) => Stat::parse(&text).is_some_and(|stat| !stat.is_zombie),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        // The recorder may have too many files open.
        Err(error) => error.raw_os_error() != Some(libc::ESRCH),
    }
}

/// True if a thread has exited, or has begun to: it runs no code of the program any more.
pub(crate) fn is_exiting(tid: u32) -> bool {
    /// PF_EXITING of include/linux/sched.h, set before the tracepoint `sched_process_exit`.
    const EXITING: u64 = 4;
    match fs::read(format!("/proc/{tid}/stat")) {
        Ok(text) => {
            // The second field, the name, may contain spaces and parentheses. The flags are the ninth.
            let name = text.iter().rposition(|&byte| byte == b')');
            let after = name.and_then(|end| std::str::from_utf8(&text[end + 1..]).ok());
            let mut fields = after.unwrap_or_default().split_ascii_whitespace();
            let is_zombie = matches!(fields.next(), Some("Z" | "X"));
            let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
            is_zombie || flags.is_some_and(|flags| flags & EXITING != 0)
        }
        // The recorder may have too many files open.
        Err(error) => {
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
        }
    }
}

/// Returns the living children of a process. Empty without CONFIG_PROC_CHILDREN.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for tid in threads(pid) {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let text = text.unwrap_or_default();
        children.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    children
}

/// Returns the living children of some processes, without this process.
pub(crate) fn children_of(pids: &[u32]) -> Vec<u32> {
    let own = std::process::id();
    let Some(others) = processes_to_search(pids) else {
        return pids.iter().flat_map(|&pid| children(pid)).filter(|&pid| pid != own).collect();
    };
    let parents: FxHashSet<u32> = pids.iter().copied().collect();
    let is_child = |pid: &u32| Stat::of(*pid).is_some_and(|stat| parents.contains(&stat.parent));
    others.into_iter().filter(|&pid| pid != own).filter(is_child).collect()
}

/// Threads of which the lists of children take less time to read than the names of all processes.
const FEW_THREADS: u64 = 8;

/// Returns all processes if the children of some are found with less among them, by their parents. None
/// if the lists of children, of which each thread has one, are fewer files.
fn processes_to_search(pids: &[u32]) -> Option<Vec<u32>> {
    let threads: u64 = pids.iter().map(|&pid| thread_count(pid)).sum();
    let has_lists = has_children_files();
    if threads <= FEW_THREADS && has_lists {
        return None;
    }
    Some(processes()).filter(|all| 2 * threads >= all.len() as u64 || !has_lists)
}

/// True if the kernel lists the children of each thread (CONFIG_PROC_CHILDREN).
fn has_children_files() -> bool {
    Path::new("/proc/thread-self/children").exists()
}

/// Reads a thread. None if it has exited.
pub(crate) fn thread_info(pid: u32, tid: u32) -> Option<ThreadInfo> {
    let mut line = [0; STAT_MAX_BYTES];
    let mut file = fs::File::open(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let length = file.read(&mut line).ok()?;
    let line = &line[..length];
    let name = line.iter().position(|&byte| byte == b'(')? + 1
        ..line.iter().rposition(|&byte| byte == b')')?;
    let comm = line.get(name)?.to_vec();
    let Stat { parent, is_zombie, .. } = Stat::parse(line)?;
    Some(ThreadInfo { pid, tid, parent, comm, is_zombie })
}

/// Returns the path of the file that a process executes. None if it is unknown: that of the kernel's threads,
/// of exited processes and, without privileges, of other users.
pub(crate) fn executed_file(pid: u32) -> Option<Vec<u8>> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?.into_os_string().into_vec();
    Some(without_deleted(&path).to_vec())
}

/// Returns the id of a thread of a process that has not exited: the first thread, if possible. None
/// if the process has exited.
///
/// /proc/PID shows the first thread: after it has exited, neither its memory nor its files, although
/// the other threads have both.
pub(crate) fn living_thread(pid: u32) -> Option<u32> {
    let lives = |&tid: &u32| Stat::of(tid).is_some_and(|stat| !stat.is_zombie);
    Some(pid).filter(lives).or_else(|| threads(pid).into_iter().skip(1).find(lives))
}

/// True if a task that was known at `time_ns` lives. A later task with the same id is younger.
pub(crate) fn lives_since(tid: u32, time_ns: u64) -> bool {
    // Programs may start and end thousands of processes a second, and their parents reap most at once.
    if !sys::exists(tid) {
        return false;
    }
    let Some(stat) = Stat::of(tid).filter(|stat| !stat.is_zombie) else { return false };
    !stat.is_later_than(time_ns)
}

/// True if an id that was known at `time_ns` is that of a later task.
pub(crate) fn is_reused(tid: u32, time_ns: u64) -> bool {
    Stat::of(tid).is_some_and(|stat| stat.is_later_than(time_ns))
}

/// Returns the ids of the existing processes.
pub(crate) fn processes() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the living descendants of some processes, without these processes, without this process,
/// and without those in `except` and their descendants.
pub(crate) fn descendants(pids: &[u32], except: &[u32]) -> Vec<u32> {
    let except: FxHashSet<u32> = except.iter().copied().collect();
    // The recorder may be a child of a recorded shell.
    let own = std::process::id();
    let is_other = |pid: &u32| *pid != own && !except.contains(pid);
    let Some(others) = processes_to_search(pids) else {
        return descendants_by(pids, |pid| {
            // A read misses a child if its predecessor in the list is removed at the same time.
            let mut children = children(pid);
            children.extend(self::children(pid));
            children.retain(is_other);
            children
        });
    };
    let mut children: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    for pid in others.into_iter().filter(is_other) {
        if let Some(stat) = Stat::of(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    descendants_by(pids, |pid| children.remove(&pid).unwrap_or_default())
}

/// Returns the descendants of some processes, without these, given the children of a process.
fn descendants_by(pids: &[u32], mut children: impl FnMut(u32) -> Vec<u32>) -> Vec<u32> {
    let mut family = pids.to_vec();
    // Ids that are reused while /proc is read could form a cycle.
    let mut known: FxHashSet<u32> = pids.iter().copied().collect();
    let mut next = 0;
    while let Some(&pid) = family.get(next) {
        family.extend(children(pid).into_iter().filter(|&child| known.insert(child)));
        next += 1;
    }
    family.split_off(pids.len())
}

/// Parses the number on the line with this key.
fn number_after(text: &[u8], key: &[u8]) -> Option<u32> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// The longest line of /proc/PID/stat: a name and 50 numbers.
const STAT_MAX_BYTES: usize = 2048;

/// The fields of /proc/PID/stat that the recorder needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// True if the process has exited, and its parent has not waited for it.
    pub(crate) is_zombie: bool,
    pub(crate) parent: u32,
    /// CPU time in clock ticks: user, kernel. That of the process or of the thread, as it was read.
    pub(crate) used_ticks: [u64; 2],
    /// CPU time of the children it has waited for: user, kernel.
    pub(crate) children_ticks: [u64; 2],
    /// Start time in clock ticks since boot: distinguishes it from a later process with the same
    /// id.
    pub(crate) start_ticks: u64,
}

impl Stat {
    /// True if a task that was known at `time_ns` is an earlier one.
    fn is_later_than(&self, time_ns: u64) -> bool {
        let start_ns = self.start_ticks.saturating_mul(sys::clock_tick_ns());
        let age_ns = sys::boot_ns().saturating_sub(start_ns);
        // The clocks are read one after the other; ids are not reused within a tick.
        let known_ns = sys::monotonic_ns().saturating_sub(time_ns);
        known_ns > age_ns.saturating_add(sys::clock_tick_ns())
    }

    /// Parses the text of /proc/PID/stat.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        // The second field, the name, may contain spaces and parentheses: count from its end.
        let after = text.iter().rposition(|&byte| byte == b')')? + 1;
        let text = std::str::from_utf8(&text[after..]).ok()?;
        // Fields by number as in proc(5), from 3: state, parent; 14 to 17: utime, stime, cutime,
        // cstime; 22: starttime.
        let mut fields = text.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let mut fields = fields.skip(9);
        let mut pair = || Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?]);
        let (used_ticks, children_ticks) = (pair()?, pair()?);
        let start_ticks = fields.nth(4)?.parse().ok()?;
        Some(Self { is_zombie, parent, used_ticks, children_ticks, start_ticks })
    }

    /// Reads that of a thread, or of a process by its first thread. None if it has exited.
    pub(crate) fn of(tid: u32) -> Option<Self> {
        // For the other file, the kernel sums the times of all threads: 0.15 ms for 1000.
        Self::read(&format!("/proc/{tid}/task/{tid}/stat"))
    }

    /// Reads that of a process with the CPU time of all of its threads. None if it has exited.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    fn read(file: &str) -> Option<Self> {
        // One read: targets are polled, and the kernel formats the whole line for each read.
        let mut line = [0; STAT_MAX_BYTES];
        let length = fs::File::open(file).ok()?.read(&mut line).ok()?;
        Self::parse(&line[..length])
    }
}

/// The system call in which a thread is blocked, with its pointers: /proc/PID/syscall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockedCall {
    /// All bits are set outside of a system call.
    pub(crate) number: u64,
    pub(crate) argument: u64,
    pub(crate) sp: u64,
    pub(crate) ip: u64,
}

impl BlockedCall {
    /// Parses the line. None if the thread runs.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let number = words.next()?.parse::<i64>().ok()? as u64;
        let rest: Vec<&str> = words.collect();
        let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let [arguments @ .., sp, ip] = &rest[..] else { return None };
        let argument = arguments.first().map_or(Some(0), |word| hexadecimal(word))?;
        Some(Self { number, argument, sp: hexadecimal(sp)?, ip: hexadecimal(ip)? })
    }
}

/// True if the program that a thread executes is a 64-bit ELF file (`EI_CLASS` of its header). None if it
/// cannot be read.
pub(crate) fn has_64_bit_program(tid: u32) -> Option<bool> {
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    let mut header = [0; CLASS + 1];
    fs::File::open(format!("/proc/{tid}/exe")).ok()?.read_exact(&mut header).ok()?;
    Some(header[CLASS] == CLASS_64)
}

/// Returns the place at which a thread is blocked. None if it runs.
///
/// # Errors
///
/// If the thread has exited, or may not be read: ptrace(2), "Ptrace access mode checking".
pub(crate) fn blocked_call(tid: u32) -> io::Result<Option<BlockedCall>> {
    // A number, eight words of up to 18 characters, and their separators.
    let mut line = [0; 256];
    let length = fs::File::open(format!("/proc/{tid}/syscall"))?.read(&mut line)?;
    Ok(std::str::from_utf8(&line[..length]).ok().and_then(BlockedCall::parse))
}

/// Returns the letter of a thread's state. None if it has exited.
pub(crate) fn state_letter(tid: u32) -> Option<u8> {
    let mut line = [0; STAT_MAX_BYTES];
    let line = thread_stat(tid, &mut line)?;
    // The name may contain spaces and parentheses: count from its end.
    let after = line.iter().rposition(|&byte| byte == b')')? + 2;
    line.get(after).copied()
}

/// Returns the CPU time of a thread in ns, up to its last switch or tick. None if it has exited, or without
/// CONFIG_SCHED_INFO.
pub(crate) fn run_ns(tid: u32) -> Option<u64> {
    schedstat(tid, 0)
}

/// Returns the number of times that a thread was switched in. None if it has exited, or without
/// CONFIG_SCHED_INFO.
pub(crate) fn arrivals(tid: u32) -> Option<u64> {
    schedstat(tid, 2)
}

/// Returns a number of /proc/TID/schedstat.
fn schedstat(tid: u32, index: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// Reads the line of a thread. None if it has exited.
fn thread_stat(tid: u32, line: &mut [u8]) -> Option<&[u8]> {
    // For /proc/TID/stat the kernel would add up the times of all threads of the process.
    let mut file = fs::File::open(format!("/proc/{tid}/task/{tid}/stat")).ok()?;
    let length = file.read(line).ok()?;
    line.get(..length)
}

/// Reads /proc/PID/maps. None if the process has exited or may not be read.
pub(crate) fn maps(pid: u32) -> Option<Vec<u8>> {
    let of_task = |tid| fs::read(format!("/proc/{tid}/maps")).ok();
    // Kernel threads and first threads that have exited have no mappings.
    let of_first = of_task(pid).filter(|text| !text.is_empty());
    of_first.or_else(|| of_task(living_thread(pid)?))
}

/// True if this process has no right to read the mappings of a process.
pub(crate) fn are_maps_refused(pid: u32) -> bool {
    let opened = fs::File::open(format!("/proc/{pid}/maps"));
    opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_call_is_parsed_as_the_kernel_prints_it() {
        let in_call = "202 0x7f00 0x80 0x0 0x0 0x0 0xffff 0x7ffe10 0x7f1234\n";
        let expected = BlockedCall { number: 202, argument: 0x7f00, sp: 0x7ffe10, ip: 0x7f1234 };
        assert_eq!(BlockedCall::parse(in_call), Some(expected));
        let in_fault = BlockedCall { number: u64::MAX, argument: 0, sp: 0x10, ip: 0x20 };
        assert_eq!(BlockedCall::parse("-1 0x10 0x20\n"), Some(in_fault));
        for other in ["running\n", "", "1 0x5\n", "7 a b c"] {
            assert_eq!(BlockedCall::parse(other), None, "{other}");
        }
    }

    #[test]
    fn ignored_signals_are_read_from_status() {
        let status = b"Name:\tcat\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000000002\n";
        assert!(ignored_in(status, 2) && !ignored_in(status, 3) && !ignored_in(status, 1));
        assert!(!ignored_in(b"", 2));
    }

    #[test]
    fn stat_fields_are_counted_after_name() {
        let text = b"7 (a) R 1 (b) Z 42 7 7 0 -1 4194304 1 2 3 4 5 6 70 8 20 0 1 0 99 4096";
        let stat = Stat {
            is_zombie: true,
            parent: 42,
            used_ticks: [5, 6],
            children_ticks: [70, 8],
            start_ticks: 99,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse(b"7 (a) R"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn thread_is_exiting_before_its_parent_has_waited_for_it() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("it is installed");
        assert!(!is_exiting(child.id()), "it waits for its input");
        drop(child.stdin.take());
        while !is_exiting(child.id()) {
            std::thread::yield_now();
        }
        child.wait().expect("it has ended");
        assert!(is_exiting(child.id()), "nothing is left of it");
    }

    #[test]
    fn thread_may_run_until_it_is_gone() {
        let own = std::process::id();
        assert!(may_run(own, own));
        assert!(!may_run(own, 1 << 30));
        assert!(!may_run(1 << 30, 1 << 30));
    }

    #[test]
    fn descendants_are_found_at_all_depths() {
        let parents = [(1, 0), (20, 1), (30, 20), (31, 20), (5, 31), (31, 5), (40, 2), (2, 0)];
        let children = |parent: u32| {
            let children = parents.iter().filter(|(_, its)| *its == parent);
            children.map(|(pid, _)| *pid).collect()
        };
        let found = |pids: &[u32]| {
            let mut found = descendants_by(pids, children);
            found.sort_unstable();
            found
        };
        assert_eq!(found(&[20]), [5, 30, 31]);
        assert_eq!(found(&[20, 31]), [5, 30], "without those that are given");
        assert_eq!(found(&[1, 2]), [5, 20, 30, 31, 40]);
        assert_eq!(found(&[7]), [] as [u32; 0]);
    }

    #[test]
    fn reads_own_process() {
        let pid = std::process::id();
        assert_eq!(process_of(pid), Some(pid));
        assert_eq!(threads(pid).first(), Some(&pid));
        assert!(thread_info(pid, pid).is_some_and(|it| !it.comm.is_empty() && it.parent > 0));
        assert!(thread_count(pid) >= 1);
        assert!(pid_max().is_some_and(|max| max > pid));
        assert!(run_ns(pid).is_some() && run_ns(u32::MAX).is_none());
        assert!(maps(pid).is_some_and(|text| !text.is_empty()));
        assert_eq!(process_of(u32::MAX), None);
        assert_eq!((living_thread(pid), living_thread(u32::MAX)), (Some(pid), None));
        assert!(lives_since(pid, sys::monotonic_ns()) && !lives_since(u32::MAX, 0));
        assert!(
            !lives_since(pid, 0) || sys::boot_ns() < 1_000_000_000,
            "it is younger than the machine"
        );
        assert!(own_peak_bytes().is_some_and(|bytes| bytes > 100_000));
    }
}
