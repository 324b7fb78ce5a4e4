//! The code a process makes while it runs, as it tells of it: in a perf map, in a jitdump, or in
//! both. They are read as they grow, and what they tell holds from when it was told, so that a
//! sample finds the function that was there when it was taken.
//!
//! A jitdump has times. A perf map has none: what is new in it was told after it was last looked
//! at, and holds from then on. It is looked at whenever a sample in generated code is younger
//! than the last look, which is once in each round of records. So where a range of addresses is
//! used again, samples between two looks may get the later name.

use std::collections::BTreeMap;
use std::rc::Rc;

use nprof_object::path::without_deleted;

use crate::image::jit::growing_file::{CHUNK_BYTES, GrowingFile, OpenFileBudget};
use crate::image::jit::jitdump::{self, JitRecord, JitdumpReader};
use crate::image::jit::map_file;
use crate::image::jit::perf_map;
use crate::image::jit::runtime_code::{CodeRegions, RuntimeFunction, RuntimeFunctions};
use crate::image::mapped_file;
use crate::os::task_serial::ProcessId;
use crate::perf::record::Mmap;
use crate::sys;

/// The most dumps of a process.
const DUMPS_MAX: usize = 4;

const _: () = assert!(CHUNK_BYTES >= jitdump::FRONT_MAX);

/// What was told, until its time has come.
#[derive(Debug)]
enum CodeChange {
    /// A function and its size.
    Made(Rc<RuntimeFunction>, u64),
    Moved {
        from: u64,
        to: u64,
        size: u64,
    },
}

/// What a process told of the code it made.
#[derive(Debug, Default)]
pub(crate) struct ProcessJit {
    /// When the process executed its image or was forked, ns; `None` when that was before the
    /// recording.
    began: Option<u64>,
    /// The state is whether it was read up to the middle of a line.
    map: GrowingFile<bool>,
    dumps: Vec<GrowingFile<JitdumpReader>>,
    /// When the files were last looked at, ns.
    looked: u64,
    /// By the time it holds from, ns, and in the order it was told.
    pending: BTreeMap<(u64, u64), CodeChange>,
    told: u64,
    regions: Rc<CodeRegions>,
}

impl ProcessJit {
    /// Of a process that executed an image at `time`, ns.
    pub(crate) fn executed(time: u64) -> Self {
        Self { began: Some(time), ..Self::default() }
    }

    /// Of a child that was forked at `time`, ns: it has the code its parent had by then, as far
    /// as that is known. From then on it has to tell by itself. The two share what they have
    /// until one of them changes it.
    pub(crate) fn forked(&mut self, time: u64) -> Self {
        self.apply_until(time);
        Self { began: Some(time), regions: self.regions.clone(), ..Self::default() }
    }

    /// Executable memory was mapped. If that is the mark by which a process shows its dump, the
    /// dump will be read.
    pub(crate) fn mapped(&mut self, mmap: &Mmap<'_>, files: &OpenFileBudget) {
        let inode = mmap.identity.inode;
        if is_dump(mmap.path)
            && self.dumps.len() < DUMPS_MAX
            && self.dumps.iter().all(|dump| dump.inode() != inode)
            && let Some(file) = mapped_file::open(mmap)
        {
            self.dumps.extend(GrowingFile::of(file, files));
        }
    }

    /// Reads what the process `owner` told up to now, unless it was read since `time`; and puts
    /// the functions where they were at that time, ns, which does not go back.
    pub(crate) fn read_until(
        &mut self,
        owner: ProcessId,
        time: u64,
        functions: &RuntimeFunctions,
        files: &OpenFileBudget,
    ) {
        if self.looked <= time {
            let now = sys::monotonic_ns();
            self.look(owner, now, functions, files);
            self.looked = now;
        }
        self.apply_until(time);
    }

    fn apply_until(&mut self, time: u64) {
        while let Some(first) = self.pending.first_entry().filter(|first| first.key().0 <= time) {
            let change = first.remove();
            self.apply(change);
        }
    }

    /// The function an address is in, and the offset in it.
    pub(crate) fn find(&self, address: u64) -> Option<(&Rc<RuntimeFunction>, u64)> {
        self.regions.find(address)
    }

    fn look(
        &mut self,
        owner: ProcessId,
        now: u64,
        functions: &RuntimeFunctions,
        files: &OpenFileBudget,
    ) {
        let before = self.looked;
        let (pending, told) = (&mut self.pending, &mut self.told);
        let mut tell = |time: u64, change| {
            *told += 1;
            pending.insert((time, *told), change);
        };
        let make = |start, size, name: &[u8]| {
            Some(CodeChange::Made(functions.make(name, start, Some(owner))?, size))
        };
        let open = || map_file::open(owner.pid, self.began);
        self.map.read(files, open, |piece, _, in_line| {
            let more = piece.len() == CHUNK_BYTES;
            perf_map::read(piece, more, in_line, |start, size, name| {
                make(start, size, name).into_iter().for_each(|change| tell(before, change));
            }) as u64
        });
        for dump in &mut self.dumps {
            dump.read(
                files,
                || None,
                |piece, available, dump| {
                    dump.read(piece, available, |time, told| {
                        let change = match told {
                            JitRecord::Load { start, size, name } => make(start, size, name),
                            JitRecord::Move { from, to, size } => {
                                Some(CodeChange::Moved { from, to, size })
                            }
                        };
                        // Nothing can have been written before it happened.
                        let time = time.map_or(before, |time| time.min(now));
                        change.into_iter().for_each(|change| tell(time, change));
                    })
                },
            );
        }
    }

    fn apply(&mut self, change: CodeChange) {
        let regions = CodeRegions::make_mut(&mut self.regions);
        match change {
            CodeChange::Made(function, size) => regions.insert(function, size),
            CodeChange::Moved { from, to, size } => {
                let Some((function, 0)) = regions.find(from) else { return };
                let moved = function.moved(to);
                moved.into_iter().for_each(|moved| regions.insert(moved, size));
            }
        }
    }
}

/// Whether a path is that of a dump: `jit-PID.dump` in any directory.
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

    /// What was told at each time: start, size, name.
    fn told(functions: &RuntimeFunctions, changes: &[(u64, u64, u64, &str)]) -> ProcessJit {
        let mut jit = ProcessJit { looked: u64::MAX, ..ProcessJit::default() };
        for &(time, start, size, name) in changes {
            jit.told += 1;
            let change = match name {
                "" => CodeChange::Moved { from: start, to: start + 0x100, size },
                _ => CodeChange::Made(
                    functions.make(name.as_bytes(), start, Some(OWNER)).expect("room"),
                    size,
                ),
            };
            jit.pending.insert((time, jit.told), change);
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
    fn what_was_told_holds_from_its_time_on() {
        let functions = RuntimeFunctions::default();
        let changes =
            [(20, 0x10, 8, "b"), (10, 0x10, 8, "a"), (30, 0x10, 8, ""), (30, 0x99, 8, "")];
        let mut jit = told(&functions, &changes);
        let mut at = |time, address| name(&mut jit, &functions, time, address);
        assert_eq!(at(9, 0x10), None);
        assert_eq!(at(10, 0x17).as_deref(), Some("a"));
        assert_eq!(at(19, 0x18), None);
        assert_eq!(at(29, 0x10).as_deref(), Some("b"));
        assert_eq!(at(30, 0x117).as_deref(), Some("b"));
        assert_eq!(at(31, 0x199), None);
    }

    #[test]
    fn a_child_has_what_its_parent_had_when_it_was_forked() {
        let functions = RuntimeFunctions::default();
        let changes = [(10, 0x10, 8, "a"), (20, 0x10, 8, "b"), (30, 0x10, 8, "c")];
        let mut jit = told(&functions, &changes);
        assert_eq!(name(&mut jit, &functions, 15, 0x10).as_deref(), Some("a"));
        let mut child = ProcessJit { looked: u64::MAX, ..jit.forked(25) };
        assert!(Rc::ptr_eq(&child.regions, &jit.regions));
        assert_eq!(name(&mut child, &functions, 40, 0x10).as_deref(), Some("b"));
        assert_eq!(name(&mut jit, &functions, 40, 0x10).as_deref(), Some("c"));
        assert_eq!(child.began, Some(25));
    }

    #[test]
    fn a_dump_is_known_by_its_name() {
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
