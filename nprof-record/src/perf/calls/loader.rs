//! Loads the programs of `bpf/calls.bpf.c` with their maps.

use std::collections::HashMap;
use std::fs::File;

use crate::perf::bpf::object::{self, BpfObject, ObjectBytes};
use crate::sys::{BpfMap, ProgramKind};

/// The compiled programs.
const OBJECT: &[u8] = &ObjectBytes(*include_bytes!("../../../bpf/calls.bpf.o")).0;

/// The structures of the kernel that the programs read.
const USED_TYPES: [&str; 1] = ["task_struct"];

/// The most threads at a time, and the most pairs of a thread and a function. Memory is used for
/// those that exist.
const THREADS_MAX: u32 = 1 << 17;
const COUNTERS_MAX: u32 = 1 << 19;

/// The most threads with routines at a time, 2 KiB each; the most paths, and pairs of a thread and a path.
const WALKS_MAX: u32 = 1 << 14;
const PATHS_MAX: u32 = 1 << 16;
const CHARGES_MAX: u32 = 1 << 18;

/// The loaded programs by name, and their maps.
#[derive(Debug)]
pub(super) struct LoadedCalls {
    pub(super) programs: HashMap<&'static str, File>,
    pub(super) settings: File,
    pub(super) points: File,
    pub(super) samples: File,
    pub(super) threads: BpfMap,
    pub(super) counters: BpfMap,
    /// The event of each CPU that is counted by routine.
    pub(super) counted: File,
    pub(super) walks: BpfMap,
    pub(super) paths: BpfMap,
    pub(super) charges: BpfMap,
}

/// Loads the programs with these names, for `points` words and CPUs up to `last_cpu`. `counts_switches`:
/// the event that is counted by routine is that of context switches.
///
/// # Errors
///
/// If the kernel's types cannot be read, or the kernel refuses a program or a map.
pub(super) fn load(
    points: u32,
    last_cpu: u32,
    counts_switches: bool,
    names: &[(&'static str, ProgramKind)],
) -> anyhow::Result<LoadedCalls> {
    let entries = [
        ("points", points),
        ("samples", last_cpu + 1),
        ("threads", THREADS_MAX),
        ("counters", COUNTERS_MAX),
        ("counted", last_cpu + 1),
        ("walks", WALKS_MAX),
        ("paths", PATHS_MAX),
        ("charges", CHARGES_MAX),
    ];
    let counts_switches = u32::from(counts_switches).to_ne_bytes();
    let is_arm = u32::from(cfg!(target_arch = "aarch64")).to_ne_bytes();
    let constants: [(&str, &[u8]); 2] =
        [("counts_switches", &counts_switches), ("is_arm", &is_arm)];
    let types = object::read_types(&USED_TYPES)?;
    let mut object = BpfObject::read(OBJECT, &constants, &entries, types)?;
    let load = |&(name, kind): &(&'static str, ProgramKind)| Ok((name, object.load(name, kind)?));
    let programs = names.iter().map(load).collect::<anyhow::Result<_>>()?;
    Ok(LoadedCalls {
        programs,
        settings: object.take_map("settings")?.file,
        points: object.take_map("points")?.file,
        samples: object.take_map("samples")?.file,
        threads: object.take_map("threads")?,
        counters: object.take_map("counters")?,
        counted: object.take_map("counted")?.file,
        walks: object.take_map("walks")?,
        paths: object.take_map("paths")?,
        charges: object.take_map("charges")?,
    })
}
