//! Perf maps, `/tmp/perf-PID.map`: opens the file of a process, and parses its lines.
//!
//! Each line has the start and size of a function, both hexadecimal, and its name. The file has no
//! times, and is read while the process appends to it. It is in a directory that all users can
//! write: it must be a regular file of the user of the process or of root, and not be left by an
//! earlier process with the same id.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::image::jit::growing_file::{Held, OpenFileBudget};
use crate::os::procfs::{self, Stat};
use crate::sys;

/// The tolerance when the times of a file and of its process are compared: file times have the
/// resolution of a timer tick.
const TIME_TOLERANCE: Duration = Duration::from_millis(100);

/// The place of the perf map of a process. It is kept, because a process that has exited has no root
/// directory any more, but may have written its map at its end.
#[derive(Debug)]
pub(crate) struct MapPlace {
    /// The `/tmp` of the process, unless it is ours.
    directory: Option<Rc<Held>>,
    /// Its effective user.
    user: u32,
    /// Its id in its own pid namespace.
    own_pid: u32,
    /// The time of its start, less the tolerance. None if that was before 1970: any file is newer.
    start: Option<SystemTime>,
}

impl MapPlace {
    /// Opens the perf map of a process that started at `start_ns` of the monotonic clock. If that is
    /// None, the process started before the recording, and /proc has its start time. Reads the place
    /// again, unless the process has exited.
    ///
    /// None if there is no map, or if it is the file with the inode `held`.
    pub(crate) fn open(
        place: &mut Option<Self>,
        pid: u32,
        start_ns: Option<u64>,
        held: Option<u64>,
        files: &OpenFileBudget,
    ) -> Option<File> {
        // A held file needs only one stat(2), so that polls are cheap.
        if let Some(place) = place.as_ref().filter(|_| held.is_some()) {
            let named = fs::symlink_metadata(place.path(place.held_directory()));
            if named.map_or(true, |named| Some(named.ino()) == held) {
                return None;
            }
        }
        if let Some((found, directory)) = Self::read(pid, start_ns) {
            let file = found.open_file(directory.as_ref());
            *place = match directory {
                None => Some(found),
                Some(directory) => {
                    let held = files.hold(directory);
                    held.map(|held| Self { directory: Some(held), ..found })
                }
            };
            return file;
        }
        if let Some(place) = place {
            return place.open_file(place.held_directory());
        }
        // The process exited before its first poll. Most likely it was a child of the command, in our
        // namespaces and of our user.
        let user = fs::metadata("/proc/self").ok()?.uid();
        let start = earliest(start_ns.map(age_since)?);
        Self { directory: None, user, own_pid: pid, start }.open_file(None)
    }

    /// Reads the place of the map of a process, and opens the `/tmp` of the process unless it is
    /// ours. None if the process has exited.
    fn read(pid: u32, start_ns: Option<u64>) -> Option<(Self, Option<File>)> {
        let age = match start_ns {
            Some(start) => age_since(start),
            None => age(pid)?,
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let (user, own_pid) = identity(&status)?;
        // Not readable once the process has exited, even while its parent has not waited for it.
        let task = procfs::living_thread(pid).unwrap_or(pid);
        let directory = open_directory(&format!("/proc/{task}/root/tmp"))?;
        let own = open_directory("/tmp");
        let is_ours = own.is_some_and(|own| device_and_inode(&own) == device_and_inode(&directory));
        let place = Self { directory: None, user, own_pid, start: earliest(age) };
        Some((place, (!is_ours).then_some(directory)))
    }

    fn held_directory(&self) -> Option<&File> {
        self.directory.as_ref().map(|held| &held.file)
    }

    /// Returns the path of the map in a directory, by default in our `/tmp`.
    fn path(&self, directory: Option<&File>) -> String {
        let name = format!("perf-{}.map", self.own_pid);
        match directory {
            Some(directory) => format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()),
            None => format!("/tmp/{name}"),
        }
    }

    /// Opens the map in a directory, if it is a trusted one.
    fn open_file(&self, directory: Option<&File>) -> Option<File> {
        // No symbolic links, and no blocking on FIFOs: all users can write to /tmp.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags).open(self.path(directory)).ok()?;
        let metadata = file.metadata().ok()?;
        let is_trusted = metadata.is_file() && [self.user, 0].contains(&metadata.uid());
        let is_new_enough = self
            .start
            .is_none_or(|start| metadata.modified().is_ok_and(|modified| modified >= start));
        (is_trusted && is_new_enough).then_some(file)
    }
}

/// Returns the earliest time of a file of a process with this age. None if any file is newer.
fn earliest(age: Duration) -> Option<SystemTime> {
    SystemTime::now().checked_sub(age + TIME_TOLERANCE)
}

/// Returns the time since a reading of the monotonic clock.
fn age_since(start_ns: u64) -> Duration {
    Duration::from_nanos(sys::monotonic_ns().saturating_sub(start_ns))
}

/// Opens a directory, only as a place for paths.
fn open_directory(path: &str) -> Option<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

fn device_and_inode(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns the time since the start of a process, which may have called exec later. None if it has
/// exited.
fn age(pid: u32) -> Option<Duration> {
    let start = Stat::of(pid)?.start_ticks.checked_mul(sys::clock_tick_ns())?;
    Some(Duration::from_nanos(sys::boot_ns().saturating_sub(start)))
}

/// Parses /proc/PID/status: the effective user, and the id of the process in its own pid namespace,
/// which is in the name of its perf map.
fn identity(status: &str) -> Option<(u32, u32)> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let user = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let own_pid = match field("NSpid:") {
        // The id in each namespace, the innermost last.
        Some(pids) => pids.split_whitespace().next_back()?,
        // Before Linux 4.1.
        None => field("Pid:")?.trim(),
    };
    Some((user, own_pid.parse().ok()?))
}

/// Parses the lines of a chunk. `more` is true if the chunk does not end the file.
///
/// Returns the number of consumed bytes; an incomplete line at the end is left for the next read.
/// Of a line longer than a whole chunk, the front is used and the rest skipped: `in_line` is then
/// true, and the next chunk begins within a line.
pub(crate) fn read(
    chunk: &[u8],
    more: bool,
    in_line: &mut bool,
    mut take: impl FnMut(u64, u64, &[u8]),
) -> usize {
    let mut used = 0;
    while let Some(length) = memchr::memchr(b'\n', &chunk[used..]) {
        let line = &chunk[used..used + length];
        used += length + 1;
        if !std::mem::take(in_line)
            && let Some((start, size, name)) = entry(line)
        {
            take(start, size, name);
        }
    }
    if used > 0 || !more {
        return used;
    }
    // A chunk without a newline.
    if !std::mem::replace(in_line, true)
        && let Some((start, size, name)) = entry(chunk)
    {
        take(start, size, name);
    }
    chunk.len()
}

/// Parses the start, size and name of a line. None if it is malformed.
fn entry(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    let name = name.strip_suffix(b"\r").unwrap_or(name);
    Some((hexadecimal(start)?, hexadecimal(size)?, name))
}

/// Splits off the text before the first space.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..length], &text[length + 1..]))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    // `from_str_radix` accepts a sign.
    let is_number = digits.first().is_some_and(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_innermost_pid_and_effective_user() {
        let status = "Name:\tx\nPid:\t77\nNSpid:\t77\t12\t1\nUid:\t1000\t1001\t1002\t1003\n";
        assert_eq!(identity(status), Some((1001, 1)));
        assert_eq!(identity("Pid:\t77\nUid:\t0\t0\t0\t0\n"), Some((0, 77)));
        assert_eq!(identity("Pid:\t77\n"), None);
        assert_eq!(identity(""), None);
    }

    /// Opens the map of a process at its first poll.
    fn open(pid: u32, start_ns: Option<u64>) -> Option<File> {
        MapPlace::open(&mut None, pid, start_ns, None, &OpenFileBudget::default())
    }

    #[test]
    fn opens_map_that_exited_process_wrote_at_its_end() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let (pid, start) = (child.id(), Some(sys::monotonic_ns()));
        let (mut place, files) = (None, OpenFileBudget::default());
        assert!(MapPlace::open(&mut place, pid, start, None, &files).is_none(), "there is none");
        let path = format!("/tmp/perf-{pid}.map");
        let first = File::create(&path).expect("a file").metadata().expect("it").ino();
        child.kill().expect("it runs");
        // Now it has exited, and we have not waited for it: /proc/PID/root cannot be read.
        let has_exited = || Stat::of(pid).is_none_or(|stat| stat.is_zombie);
        while !has_exited() {
            std::thread::yield_now();
        }
        let mut open = |held| MapPlace::open(&mut place, pid, start, held, &files);
        assert!(open(None).is_some());
        assert!(open(Some(first)).is_none(), "the same file");
        let second = format!("{path}.new");
        File::create(&second).expect("a file");
        fs::rename(second, &path).expect("renamed");
        assert!(open(Some(first)).is_some(), "another file with the same name");
        fs::remove_file(path).expect("removed");
        assert!(open(Some(first)).is_none());
        child.wait().expect("its status");
    }

    #[test]
    fn opens_only_regular_file_of_process() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let _ = fs::remove_file(&path);
        assert!(open(pid, Some(0)).is_none(), "there is none");
        std::os::unix::fs::symlink("/proc/self/status", &path).expect("a link");
        assert!(open(pid, Some(0)).is_none(), "a symbolic link may be an attack");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a directory");
        assert!(open(pid, Some(0)).is_none(), "a directory is no file");
        fs::remove_dir(&path).expect("removed");
        let file = File::create(&path).expect("a file");
        assert!(open(pid, Some(0)).is_some());
        let before = SystemTime::now() - Duration::from_secs(2);
        file.set_modified(before).expect("set");
        assert!(open(pid, Some(sys::monotonic_ns())).is_none(), "an earlier process left it");
        assert!(
            open(pid, Some(0)).is_some(),
            "a process as old as the machine may have written it"
        );
        let age = age(pid).expect("we live");
        let earlier = SystemTime::now() - age - Duration::from_secs(5);
        file.set_modified(earlier).expect("set");
        assert!(open(pid, None).is_none(), "older than this process");
        file.set_modified(SystemTime::now()).expect("set");
        assert!(open(pid, None).is_some(), "written by this process");
        assert!(open(u32::MAX, None).is_none(), "no such process");
        if fs::metadata("/proc/self").expect("it").uid() == 0 {
            std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
            assert!(open(pid, Some(0)).is_none(), "another user's");
        }
        fs::remove_file(&path).expect("removed");
    }

    fn entries(chunk: &[u8], more: bool, in_line: &mut bool) -> (Vec<(u64, u64, Vec<u8>)>, usize) {
        let mut entries = Vec::new();
        let take = |start, size, name: &[u8]| entries.push((start, size, name.to_vec()));
        let used = read(chunk, more, in_line, take);
        (entries, used)
    }

    #[test]
    fn name_is_rest_of_line() {
        let map = b"7f00 10 fib\n0x8000 0xff JS:*f g /a b.js:1:2\r\n9000 1 \xff\x1b[0m\0\n";
        let (found, used) = entries(map, false, &mut false);
        let expected: [(u64, u64, &[u8]); 3] = [
            (0x7f00, 0x10, b"fib"),
            (0x8000, 0xff, b"JS:*f g /a b.js:1:2"),
            (0x9000, 1, b"\xff\x1b[0m\0"),
        ];
        assert_eq!(found, expected.map(|(start, size, name)| (start, size, name.to_vec())));
        assert_eq!(used, map.len());
    }

    #[test]
    fn skips_malformed_lines() {
        let map = b"\n \n10\n10 20\nx 1 f\n+1 2 f\n10 -2 f\n11111111111111111 1 f\n0x 1 f\n \xff 1 f\n1 2 f\n";
        assert_eq!(entries(map, false, &mut false), (vec![(1, 2, b"f".to_vec())], map.len()));
    }

    #[test]
    fn reads_only_complete_lines() {
        let map = b"10 1 first\n20 1 sec";
        assert_eq!(entries(map, false, &mut false), (vec![(0x10, 1, b"first".to_vec())], 11));
        assert_eq!(entries(&map[11..], false, &mut false), (vec![], 0));
        assert_eq!(entries(b"", false, &mut false), (vec![], 0));
    }

    #[test]
    fn reads_same_entries_however_file_grows() {
        let map = b"10 1 first\nnone\n20 2 \xff\x00\n\n30 3 third\n40 4 cut";
        let (whole, used) = entries(map, false, &mut false);
        assert_eq!((whole.len(), used), (3, map.len() - 8));
        for step in 1..map.len() {
            let (mut found, mut at, mut in_line) = (Vec::new(), 0, false);
            for end in (step..map.len() + step).step_by(step).map(|end| end.min(map.len())) {
                let (new, used) = entries(&map[at..end], false, &mut in_line);
                found.extend(new);
                at += used;
            }
            assert_eq!((&found, at, in_line), (&whole, used, false), "{step}");
        }
    }

    #[test]
    fn overlong_line_has_truncated_name() {
        let mut in_line = false;
        assert_eq!(entries(b"10 1 lo", true, &mut in_line), (vec![(0x10, 1, b"lo".to_vec())], 7));
        assert!(in_line);
        assert_eq!(entries(b"ng 1 ng", true, &mut in_line), (vec![], 7));
        let rest = b"1 1 ng\n20 2 next\n";
        assert_eq!(entries(rest, false, &mut in_line), (vec![(0x20, 2, b"next".to_vec())], 17));
        assert!(!in_line);
    }
}
