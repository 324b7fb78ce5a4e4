//! Loads the programs of `bpf/calls.bpf.c` with their maps.

use std::collections::HashMap;
use std::fs::File;

use crate::perf::bpf::object::{BpfObject, ObjectBytes};
use crate::sys::{BpfMap, ProgramKind};

/// The compiled programs.
const OBJECT: &[u8] = &ObjectBytes(*include_bytes!("../../../bpf/calls.bpf.o")).0;

/// The structures of the kernel that the programs read.
const USED_TYPES: [&str; 1] = ["task_struct"];

/// The most threads at a time, and the most pairs of a thread and a function. Memory is used for
/// those that exist.
const THREADS_MAX: u32 = 1 << 17;
const COUNTERS_MAX: u32 = 1 << 19;

/// The loaded programs by name, and their maps.
#[derive(Debug)]
pub(super) struct LoadedCalls {
    pub(super) programs: HashMap<&'static str, File>,
    pub(super) settings: File,
    pub(super) points: File,
    pub(super) samples: File,
    pub(super) threads: BpfMap,
    pub(super) counters: BpfMap,
}

/// Loads the programs with these names, for `points` words and CPUs up to `last_cpu`.
///
/// # Errors
///
/// If the kernel's types cannot be read, or the kernel refuses a program or a map.
pub(super) fn load(
    points: u32,
    last_cpu: u32,
    names: &[(&'static str, ProgramKind)],
) -> anyhow::Result<LoadedCalls> {
    let entries = [
        ("points", points),
        ("samples", last_cpu + 1),
        ("threads", THREADS_MAX),
        ("counters", COUNTERS_MAX),
    ];
    let mut object = BpfObject::read(OBJECT, &[], &entries, &USED_TYPES)?;
    let load = |&(name, kind): &(&'static str, ProgramKind)| Ok((name, object.load(name, kind)?));
    let programs = names.iter().map(load).collect::<anyhow::Result<_>>()?;
    Ok(LoadedCalls {
        programs,
        settings: object.take_map("settings")?.file,
        points: object.take_map("points")?.file,
        samples: object.take_map("samples")?.file,
        threads: object.take_map("threads")?,
        counters: object.take_map("counters")?,
    })
}
