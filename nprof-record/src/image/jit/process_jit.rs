//! The code that a process generates at run time, from its perf map and jitdump files.
//!
//! The files are read while they grow. A name is valid from the time it was written, so that a
//! sample gets the function that existed when it was taken.
//!
//! A jitdump has times. A perf map has none: a new entry is valid from the last poll on. The files
//! are polled when a sample in generated code is newer than the last poll, which is once per drain.
//! So where addresses are reused, samples between two polls may get the later name.
//!
//! Entries may come late: runtimes buffer their files, and some write them at their end. Each applied
//! entry is therefore passed on, for the frames that were written without a name.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_object::path::without_deleted;

use crate::image::jit::growing_file::{CHUNK_BYTES, GrowingFile, OpenFileBudget};
use crate::image::jit::jitdump::{self, JitRecord, JitdumpReader};
use crate::image::jit::perf_map::{self, MapPlace};
use crate::image::jit::runtime_code::{CodeRegions, DumpedCode, RuntimeFunction, RuntimeFunctions};
use crate::image::jit::runtime_unwinding::RuntimeUnwinding;
use crate::image::mapped_file;
use crate::os::code_mapping::Mmap;
use crate::os::task_serial::ProcessId;
use crate::sys;

/// The most jitdump files of a process.
const DUMPS_MAX: usize = 4;

/// The most polls of the files at the end of a process, of 8 MiB of each file. The files of all
/// processes that end have a budget besides.
const FINAL_POLLS_MAX: usize = 8;

const _: () = assert!(CHUNK_BYTES >= jitdump::FRONT_MAX_BYTES);

/// A change of the generated code, pending until its time.
#[derive(Debug)]
enum CodeChange {
    /// A function was generated, with this size.
    Generated(Rc<RuntimeFunction>, u64),
    Moved {
        from: u64,
        to: u64,
        size: u64,
    },
}

/// An entry of a file that is pending until its time.
#[derive(Debug)]
struct PendingEntry {
    change: CodeChange,
    /// True if the file states the time.
    has_time: bool,
    /// The number of the poll that read it.
    poll: u64,
}

/// The name that an entry gave to a range of addresses.
#[derive(Debug)]
pub(crate) struct AppliedName {
    pub(crate) function: Rc<RuntimeFunction>,
    pub(crate) size: u64,
    /// The time from which the name is valid. None if the file has no times.
    pub(crate) time_ns: Option<u64>,
    /// The number of the poll that read it.
    pub(crate) poll: u64,
}

/// The generated code of a process.
#[derive(Debug, Default)]
pub(crate) struct ProcessJit {
    /// The time of its exec or fork. None if that was before the recording.
    start_ns: Option<u64>,
    /// The place of the perf map; None until it was found.
    place: Option<MapPlace>,
    /// The perf map. State: true if the last chunk ended within a line.
    map: GrowingFile<bool>,
    dumps: Vec<GrowingFile<JitdumpReader>>,
    /// The offset of the clock of the jitdumps, which is that of the process's time namespace.
    clock_offset_ns: i64,
    /// The time of the last poll of the files.
    polled_ns: u64,
    /// The number of polls.
    polls: u64,
    /// The pending entries, by the time in ns from which they are valid, and their number.
    pending: BTreeMap<(u64, u64), PendingEntry>,
    /// The number of entries read.
    entries: u64,
    /// The applied names since they were last taken.
    applied: Vec<AppliedName>,
    regions: Rc<CodeRegions>,
}

impl ProcessJit {
    /// Creates the state of a process that executed a program at `time_ns`.
    pub(crate) fn executed(time_ns: u64) -> Self {
        Self { start_ns: Some(time_ns), ..Self::default() }
    }

    /// Creates the state of a child forked at `time_ns`: it has the code that its parent has by
    /// then, as far as known. Later code must be in its own files. Both share the regions until one
    /// of them changes them.
    pub(crate) fn forked(&mut self, time_ns: u64) -> Self {
        self.apply_until(time_ns);
        Self { start_ns: Some(time_ns), regions: self.regions.clone(), ..Self::default() }
    }

    /// Handles a mapping of executable memory: a process announces its jitdump by mapping it.
    pub(crate) fn mapped(&mut self, mmap: &Mmap<'_>, files: &OpenFileBudget) {
        // A process may map its file more than once.
        let inode = mmap.identity.inode;
        if is_dump(&mmap.path)
            && self.dumps.len() < DUMPS_MAX
            && self.dumps.iter().all(|dump| dump.inode() != inode)
            && let Some(file) = mapped_file::open(mmap)
        {
            self.clock_offset_ns = sys::monotonic_offset_ns_of(mmap.pid);
            self.dumps.extend(GrowingFile::hold(file, files));
        }
    }

    /// Polls the files of the process `owner`, unless they were polled after `time_ns`, and applies
    /// the changes up to that time, which must not decrease.
    pub(crate) fn read_until(
        &mut self,
        owner: ProcessId,
        time: u64,
        functions: &RuntimeFunctions,
        files: &OpenFileBudget,
    ) {
        if self.polled_ns <= time {
            let now = sys::monotonic_ns();
            self.poll(owner, now, functions, files);
            self.polled_ns = now;
        }
        self.apply_until(time);
    }

    /// Polls the files of the process `owner` to their end, and applies the entries up to `time_ns`.
    /// Does nothing if no sample was in generated code.
    pub(crate) fn read_to_end(
        &mut self,
        owner: ProcessId,
        time_ns: u64,
        functions: &RuntimeFunctions,
        files: &OpenFileBudget,
    ) {
        if self.polled_ns == 0 {
            return;
        }
        let files = files.at_end();
        for _ in 0..FINAL_POLLS_MAX {
            let before = self.positions();
            let now = sys::monotonic_ns();
            self.poll(owner, now, functions, &files);
            self.polled_ns = now;
            if self.positions() == before {
                break;
            }
        }
        self.apply_until(time_ns);
    }

    /// True if its files may state times.
    pub(crate) fn has_times(&self) -> bool {
        !self.dumps.is_empty()
    }

    /// Takes the names applied since the last call.
    pub(crate) fn take_applied(&mut self) -> Vec<AppliedName> {
        std::mem::take(&mut self.applied)
    }

    /// Returns the sum of the positions in all files.
    fn positions(&self) -> u64 {
        self.dumps.iter().map(GrowingFile::position).sum::<u64>() + self.map.position()
    }

    /// Applies the pending entries up to a time.
    fn apply_until(&mut self, time: u64) {
        while let Some(first) = self.pending.first_entry().filter(|first| first.key().0 <= time) {
            let (time_ns, _) = *first.key();
            let entry = first.remove();
            self.apply(entry, time_ns);
        }
    }

    /// Returns the function at an address, and the offset in it.
    pub(crate) fn find(&self, address: u64) -> Option<(&Rc<RuntimeFunction>, u64)> {
        self.regions.find(address)
    }

    /// Returns the first `limit` bytes of a function's code: from its jitdump, otherwise from the memory
    /// of a process. None if neither has it.
    pub(crate) fn code(
        &self,
        pid: u32,
        function: &Rc<RuntimeFunction>,
        limit: usize,
    ) -> Option<Vec<u8>> {
        let length = |size: u64| usize::try_from(size).map_or(limit, |size| size.min(limit));
        let dumped = function.dumped.filter(|place| place.size > 0).and_then(|place| {
            let dump = self.dumps.iter().find(|dump| dump.inode() == place.inode)?;
            dump.bytes_at(place.at, length(place.size))
        });
        dumped.or_else(|| {
            // Where another function begins by now, the memory has its code.
            let end = self.regions.end_of(function)?;
            let mut bytes = vec![0; length(end.saturating_sub(function.start))];
            let read = sys::read_memory(pid, function.start, &mut bytes);
            bytes.truncate(read);
            Some(bytes).filter(|bytes| !bytes.is_empty())
        })
    }

    /// Reads the new parts of all files.
    fn poll(
        &mut self,
        owner: ProcessId,
        now: u64,
        functions: &RuntimeFunctions,
        files: &OpenFileBudget,
    ) {
        let before = self.polled_ns;
        self.polls += 1;
        let (pending, entries, poll) = (&mut self.pending, &mut self.entries, self.polls);
        let mut add = |time: Option<u64>, change| {
            *entries += 1;
            let entry = PendingEntry { change, has_time: time.is_some(), poll };
            // An entry is not later than its read, unless its clock is wrong.
            pending.insert((time.map_or(before, |time| time.min(now)), *entries), entry);
        };
        let generated = |start, size, name: &[u8], eh_frame, dumped| {
            let unwinding = RuntimeUnwinding::new(eh_frame, size);
            let owner = Some(owner);
            let function = functions.create_from_dump(name, start, owner, unwinding, dumped)?;
            Some(CodeChange::Generated(function, size))
        };
        let (place, start_ns) = (&mut self.place, self.start_ns);
        let offset_ns = self.clock_offset_ns.saturating_neg();
        let open = |held| MapPlace::open(place, owner.pid, start_ns, held, files);
        self.map.read(files, open, |chunk, _, in_line| {
            let more = chunk.len() == CHUNK_BYTES;
            perf_map::read(chunk, more, in_line, |start, size, name| {
                let change = generated(start, size, name, None, None);
                change.into_iter().for_each(|change| add(None, change));
            }) as u64
        });
        for dump in &mut self.dumps {
            let inode = dump.inode();
            dump.read(
                files,
                |_| None,
                |chunk, available, dump| {
                    dump.read(chunk, available, |time, record| {
                        let time = time.map(|time: u64| time.saturating_add_signed(offset_ns));
                        let change = match record {
                            JitRecord::Load { start, size, name, eh_frame, code } => {
                                let (at, length) =
                                    (code.start, code.end.saturating_sub(code.start));
                                let dumped = Some(DumpedCode { inode, at, size: length });
                                generated(start, size, name, eh_frame, dumped)
                            }
                            JitRecord::Move { from, to, size } => {
                                Some(CodeChange::Moved { from, to, size })
                            }
                        };
                        change.into_iter().for_each(|change| add(time, change));
                    })
                },
            );
        }
    }

    /// Applies an entry.
    fn apply(&mut self, entry: PendingEntry, time_ns: u64) {
        let regions = CodeRegions::make_mut(&mut self.regions);
        let (function, size) = match entry.change {
            CodeChange::Generated(function, size) => (function, size),
            CodeChange::Moved { from, to, size } => {
                // Only a whole function moves: its start must be at `from`.
                let Some((function, 0)) = regions.find(from) else { return };
                let Some(moved) = function.moved(to) else { return };
                (moved, size)
            }
        };
        regions.insert(function.clone(), size);
        let time_ns = entry.has_time.then_some(time_ns);
        self.applied.push(AppliedName { function, size, time_ns, poll: entry.poll });
    }
}

/// True if a path is that of a jitdump file: `jit-PID.dump` in any directory.
fn is_dump(path: &[u8]) -> bool {
    let path = without_deleted(path);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let pid = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::task_serial::TaskSerial;

    const OWNER: ProcessId = ProcessId { pid: u32::MAX, serial: TaskSerial(1) };

    /// Returns a process with these changes: time, start, size, name (empty: moved by 0x100).
    fn with_changes(functions: &RuntimeFunctions, changes: &[(u64, u64, u64, &str)]) -> ProcessJit {
        let mut jit = ProcessJit { polled_ns: u64::MAX, ..ProcessJit::default() };
        for &(time, start, size, name) in changes {
            jit.entries += 1;
            let change = match name {
                "" => CodeChange::Moved { from: start, to: start + 0x100, size },
                _ => CodeChange::Generated(
                    functions.create(name.as_bytes(), start, Some(OWNER)).expect("room"),
                    size,
                ),
            };
            let entry = PendingEntry { change, has_time: true, poll: 1 };
            jit.pending.insert((time, jit.entries), entry);
        }
        jit
    }

    fn name(
        jit: &mut ProcessJit,
        functions: &RuntimeFunctions,
        time: u64,
        address: u64,
    ) -> Option<String> {
        jit.read_until(OWNER, time, functions, &OpenFileBudget::default());
        let (function, _) = jit.find(address)?;
        Some(String::from_utf8_lossy(&function.name).into_owned())
    }

    #[test]
    fn changes_are_valid_from_their_time_on() {
        let functions = RuntimeFunctions::default();
        let changes =
            [(20, 0x10, 8, "b"), (10, 0x10, 8, "a"), (30, 0x10, 8, ""), (30, 0x99, 8, "")];
        let mut jit = with_changes(&functions, &changes);
        let mut at = |time, address| name(&mut jit, &functions, time, address);
        assert_eq!(at(9, 0x10), None);
        assert_eq!(at(10, 0x17).as_deref(), Some("a"));
        assert_eq!(at(19, 0x18), None);
        assert_eq!(at(29, 0x10).as_deref(), Some("b"));
        assert_eq!(at(30, 0x117).as_deref(), Some("b"));
        assert_eq!(at(31, 0x199), None);
    }

    #[test]
    fn forked_child_has_code_of_parent() {
        let functions = RuntimeFunctions::default();
        let changes = [(10, 0x10, 8, "a"), (20, 0x10, 8, "b"), (30, 0x10, 8, "c")];
        let mut jit = with_changes(&functions, &changes);
        assert_eq!(name(&mut jit, &functions, 15, 0x10).as_deref(), Some("a"));
        let mut child = ProcessJit { polled_ns: u64::MAX, ..jit.forked(25) };
        assert!(Rc::ptr_eq(&child.regions, &jit.regions));
        assert_eq!(name(&mut child, &functions, 40, 0x10).as_deref(), Some("b"));
        assert_eq!(name(&mut jit, &functions, 40, 0x10).as_deref(), Some("c"));
        assert_eq!(child.start_ns, Some(25));
    }

    #[test]
    fn code_in_memory_is_that_of_the_function_that_begins_there() {
        let functions = RuntimeFunctions::default();
        let memory = std::hint::black_box([0x90u8; 64]);
        let start = memory.as_ptr().addr() as u64;
        let mut jit = with_changes(&functions, &[(10, start, 16, "old"), (20, start, 4, "new")]);
        let pid = std::process::id();
        jit.apply_until(10);
        let old = jit.find(start).expect("a function").0.clone();
        assert_eq!(jit.code(pid, &old, 8), Some(vec![0x90; 8]));
        assert_eq!(jit.code(pid, &old, 99), Some(vec![0x90; 16]));
        jit.apply_until(20);
        let new = jit.find(start).expect("a function").0.clone();
        assert_eq!((jit.code(pid, &old, 8), jit.code(pid, &new, 8)), (None, Some(vec![0x90; 4])));
        std::hint::black_box(&memory);
    }

    #[test]
    fn jitdump_is_recognized_by_name() {
        for (path, is) in [
            (&b"/tmp/jit-123.dump"[..], true),
            (b"jit-1.dump", true),
            (b"/a/jit-1.dump (deleted)", true),
            (b"/a/jit-.dump", false),
            (b"/a/jit-1x.dump", false),
            (b"/a/jit-1.dump/x", false),
            (b"//anon", false),
        ] {
            assert_eq!(is_dump(path), is);
        }
    }
}
