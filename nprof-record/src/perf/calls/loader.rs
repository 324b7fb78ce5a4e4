//! Loads the programs of `bpf/calls.bpf.c`. aya cannot load a program for many places of a file, so
//! that its parser and its relocations are used here, and the kernel is called directly.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, anyhow};
use aya_obj::Object;
use aya_obj::btf::Btf;
use aya_obj::generated::bpf_insn;

use crate::perf::calls::data::{COUNTER_BYTES, SETTINGS, THREAD_BYTES};
use crate::sys::{self, BpfHash, MapKind, ProgramKind};

/// The compiled programs.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/calls.bpf.o");

/// The most threads at a time, and the most pairs of a thread and a function. Memory is used for
/// those that exist.
const THREADS_MAX: u32 = 1 << 17;
const COUNTERS_MAX: u32 = 1 << 19;

/// The maps of the programs.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) settings: File,
    pub(super) points: File,
    pub(super) samples: File,
    pub(super) threads: BpfHash,
    pub(super) counters: BpfHash,
}

impl Maps {
    /// Creates the maps, for `points` words and CPUs up to `last_cpu`.
    ///
    /// # Errors
    ///
    /// bpf(2).
    pub(super) fn new(points: u32, last_cpu: u32) -> std::io::Result<Self> {
        let mapped = MapKind::Array { mapped: true };
        Ok(Self {
            settings: sys::bpf_map(mapped, 8, SETTINGS)?,
            points: sys::bpf_map(mapped, 8, points)?,
            samples: sys::bpf_map(MapKind::PerfEvents, 4, last_cpu + 1)?,
            threads: BpfHash::new(4, THREAD_BYTES, THREADS_MAX)?,
            counters: BpfHash::new(8, COUNTER_BYTES, COUNTERS_MAX)?,
        })
    }

    fn file(&self, name: &str) -> Option<&File> {
        Some(match name {
            "settings" => &self.settings,
            "points" => &self.points,
            "samples" => &self.samples,
            "threads" => &self.threads.file,
            "counters" => &self.counters.file,
            _ => return None,
        })
    }
}

/// Loads the programs with these names. They refer to the maps.
///
/// # Errors
///
/// If the kernel's types cannot be read, or the kernel refuses a program.
pub(super) fn load(
    maps: &Maps,
    names: &[(&'static str, ProgramKind)],
) -> anyhow::Result<HashMap<&'static str, File>> {
    let mut object = Object::parse(OBJECT)?;
    let types = Btf::from_sys_fs().context("it needs a kernel with CONFIG_DEBUG_INFO_BTF")?;
    object.relocate_btf(&types)?;
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let declared = object.maps.clone();
    let known = declared.iter().map(|(name, map)| {
        let file = maps.file(name).with_context(|| format!("an unknown map {name}"))?;
        Ok((name.as_str(), file.as_raw_fd(), map))
    });
    let known: Vec<_> = known.collect::<anyhow::Result<_>>()?;
    object.relocate_maps(known.into_iter(), &sections)?;
    object.relocate_calls(&sections)?;
    let mut loaded = HashMap::new();
    for &(name, kind) in names {
        let program = object.programs.get(name).with_context(|| format!("no program {name}"))?;
        let function = object.functions.get(&program.function_key());
        let function = function.ok_or_else(|| anyhow!("no function {name}"))?;
        let words: Vec<u64> = function.instructions.iter().map(word).collect();
        loaded.insert(name, sys::bpf_program(kind, &words)?);
    }
    Ok(loaded)
}

/// Returns an instruction as the kernel reads it.
fn word(instruction: &bpf_insn) -> u64 {
    let registers = instruction.dst_reg() | instruction.src_reg() << 4;
    let [low, high] = instruction.off.to_le_bytes();
    let [a, b, c, d] = instruction.imm.to_le_bytes();
    u64::from_le_bytes([instruction.code, registers, low, high, a, b, c, d])
}
