//! What /proc tells of processes that were there before the recording: their threads, names,
//! mappings, and the CPU time they used (proc(5)). What is gone by now is not told.

use std::fs;
use std::io::Read;

/// A thread that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// The parent process; 0 when it has none or it is not told.
    pub(crate) parent: u32,
    pub(crate) comm: Vec<u8>,
}

/// The process a thread belongs to; `None` when there is no such thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    number_after(&status, b"Tgid:")
}

/// The peak of our own resident memory, bytes. (What getrusage(2) tells is not below that of the
/// process we were forked from.)
pub(crate) fn own_peak() -> Option<u64> {
    let status = fs::read("/proc/self/status").ok()?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"VmHWM:"))?;
    let kib = std::str::from_utf8(line).ok()?.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// The ids of a process's threads, the first thread's first; empty when it is gone.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut threads: Vec<_> = entries.filter_map(number).collect();
    threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
    threads
}

/// The processes a process has made that are still there; none where the kernel does not tell
/// (CONFIG_PROC_CHILDREN).
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let of_thread = |tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let texts = threads(pid).into_iter().filter_map(|tid| of_thread(tid).ok());
    let numbers = |text: String| -> Vec<u32> {
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    texts.flat_map(numbers).collect()
}

/// What is known of a thread; `None` when it is gone.
pub(crate) fn find(pid: u32, tid: u32) -> Option<Found> {
    let mut comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    comm.pop_if(|last| *last == b'\n');
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = Stat::read(&stat).map_or(0, |stat| stat.parent);
    Some(Found { pid, tid, parent, comm })
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u32> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// What the line of /proc/PID/stat takes at most, bytes: a name and 50 numbers.
const STAT_MAX: usize = 2048;

/// Of /proc/PID/stat, what is asked for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether it has ended, and only its status is left.
    pub(crate) ended: bool,
    pub(crate) parent: u32,
    /// CPU time, user and kernel, in clock ticks.
    pub(crate) used: [u64; 2],
    /// The same of children it has waited for.
    pub(crate) waited: [u64; 2],
    /// When it began, in clock ticks since the system did: tells it from a later process that
    /// has its id.
    pub(crate) began: u64,
}

impl Stat {
    /// Reads the text of /proc/PID/stat. The name in it may hold anything, so the fields are
    /// counted from its closing bracket.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let after = text.iter().rposition(|&byte| byte == b')')? + 1;
        let text = std::str::from_utf8(&text[after..]).ok()?;
        // The first field here is the third of the line.
        let mut fields = text.split_ascii_whitespace();
        let ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let mut fields = fields.skip(9);
        let mut pair = || Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?]);
        let (used, waited) = (pair()?, pair()?);
        let began = fields.nth(4)?.parse().ok()?;
        Some(Self { ended, parent, used, waited, began })
    }

    /// Of a process; `None` when it is gone.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        // It is asked for often, and the kernel writes the line anew for every piece read.
        let mut line = [0; STAT_MAX];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        Self::read(&line[..length])
    }
}

/// The executable mappings of a process, as the text of /proc/PID/maps has them; `None` when it
/// is gone or not ours to see.
pub(crate) fn maps(pid: u32) -> Option<Vec<u8>> {
    fs::read(format!("/proc/{pid}/maps")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_confuse_the_fields() {
        let text = b"7 (a) R 1 (b) Z 42 7 7 0 -1 4194304 1 2 3 4 5 6 70 8 20 0 1 0 99 4096";
        let stat = Stat { ended: true, parent: 42, used: [5, 6], waited: [70, 8], began: 99 };
        assert_eq!(Stat::read(text), Some(stat));
        assert_eq!(Stat::read(b"7 (a) R"), None);
        assert_eq!(Stat::read(b""), None);
    }

    #[test]
    fn our_own_process_is_found() {
        let pid = std::process::id();
        assert_eq!(process_of(pid), Some(pid));
        assert_eq!(threads(pid).first(), Some(&pid));
        assert!(find(pid, pid).is_some_and(|found| !found.comm.is_empty() && found.parent > 0));
        assert!(maps(pid).is_some_and(|text| !text.is_empty()));
        assert_eq!(process_of(u32::MAX), None);
        assert!(own_peak().is_some_and(|bytes| bytes > 100_000));
    }
}
