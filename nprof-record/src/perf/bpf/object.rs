//! Loads an object file of BPF programs into the kernel.
//!
//! aya-obj reads the file and adapts it to the kernel. The loader of aya would read all types of the
//! kernel, with every member, twice: 0.15 s and 40 MiB.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, anyhow};
use aya_obj::btf::{Btf, BtfFeatures};
use aya_obj::generated::bpf_insn;
use aya_obj::{EbpfSectionKind, Function, Object};

use crate::os::lockdown;
use crate::perf::bpf::kernel_types::{self, Reduced};
use crate::sys::{self, BpfCode, BpfMap, KernelTypes, MapLayout, ProgramKind};

/// The bytes of `struct bpf_func_info`.
const FUNCTION_INFO_BYTES: usize = 8;

/// The operation of an instruction that calls, and the source register of one that calls a function of
/// the kernel: BPF_JMP | BPF_CALL and BPF_PSEUDO_KFUNC_CALL in include/uapi/linux/bpf.h.
const CALL: u8 = 0x85;
const FUNCTION_OF_KERNEL: u8 = 2;

/// The number by which programs call a function of the kernel that gives an address the type of a pointer,
/// and its name: `rdonly_cast` in bpf/waits.bpf.c. aya-obj has no calls of functions of the kernel.
const RDONLY_CAST: i32 = 1 << 30;
pub(crate) const RDONLY_CAST_NAME: &str = "bpf_rdonly_cast";

/// The bytes of an object file, aligned as aya-obj reads them in place.
#[repr(align(8))]
pub(crate) struct ObjectBytes<const N: usize>(pub(crate) [u8; N]);

/// A program that the verifier of the kernel rejects.
#[derive(Debug, thiserror::Error)]
#[error("the verifier of this kernel refuses {program}: {reason}")]
pub(crate) struct VerifierRefusal {
    program: String,
    reason: String,
}

/// An object file that is being loaded.
#[derive(Debug)]
pub(crate) struct BpfObject {
    object: Object,
    /// The types of the programs in the kernel.
    types: File,
    kernel_types: Reduced,
    maps: HashMap<String, BpfMap>,
}

impl BpfObject {
    /// Reads an object file, sets its constants, adapts it to the types of the kernel, and creates its
    /// maps. `entries` has the numbers of values of maps, where they differ from the file.
    ///
    /// # Errors
    ///
    /// If the file and the kernel do not fit, or bpf(2).
    pub(crate) fn read(
        file: &[u8],
        constants: &[(&str, &[u8])],
        entries: &[(&str, u32)],
        kernel_types: Reduced,
    ) -> anyhow::Result<Self> {
        let mut object = Object::parse(file)?;
        let constants = constants.iter().map(|&(name, value)| (name, (value, true)));
        object.patch_map_data(constants.collect())?;
        // Kernels with the tracepoints of the programs have all of these.
        let features = BtfFeatures::new(true, true, true, true, true, true, true, true);
        let types = object.fixup_and_sanitize_btf(&features)?;
        let types = types.context("the object file has no types")?.to_bytes();
        let types = sys::bpf_types(&types).context("the kernel refuses the types")?;
        object.relocate_btf(&Btf::parse(&kernel_types.types, object.endianness)?)?;
        let mut maps = HashMap::new();
        let mut definitions = std::mem::take(&mut object.maps);
        for (name, definition) in &mut definitions {
            if let Some((_, entries)) = entries.iter().find(|(map, _)| map == name) {
                definition.set_max_entries(*entries);
            }
            let map = BpfMap::create(MapLayout {
                kind: definition.map_type(),
                key_bytes: definition.key_size(),
                value_bytes: definition.value_size(),
                entries: definition.max_entries(),
                flags: definition.map_flags(),
            })?;
            let section = definition.section_kind();
            if matches!(section, EbpfSectionKind::Rodata | EbpfSectionKind::Data) {
                map.set(&0_u32.to_ne_bytes(), definition.data())?;
            }
            if section == EbpfSectionKind::Rodata {
                map.freeze()?;
            }
            maps.insert(name.clone(), map);
        }
        let text = object.functions.keys().map(|(section, _)| *section).collect();
        let descriptors =
            definitions.iter().map(|(name, it)| (&name[..], maps[name].file.as_raw_fd(), it));
        object.relocate_maps(descriptors, &text)?;
        object.relocate_calls(&text)?;
        Ok(Self { object, types, kernel_types, maps })
    }

    /// Removes a map from the others.
    ///
    /// # Errors
    ///
    /// If the file has no such map.
    pub(crate) fn take_map(&mut self, name: &str) -> anyhow::Result<BpfMap> {
        self.maps.remove(name).with_context(|| format!("no map {name}"))
    }

    /// Returns the number in the kernel of one of its functions.
    ///
    /// # Errors
    ///
    /// If the kernel has no such function.
    pub(crate) fn kernel_function(&self, name: &str) -> anyhow::Result<u32> {
        self.kernel_types.number(name)
    }

    /// Returns an instruction as the kernel reads it, with the number of the kernel's function that it
    /// calls.
    fn encoded(&self, instruction: &bpf_insn) -> anyhow::Result<u64> {
        let mut instruction = *instruction;
        let is_call = (instruction.code, instruction.src_reg()) == (CALL, 0);
        if is_call && instruction.imm == RDONLY_CAST {
            instruction.set_src_reg(FUNCTION_OF_KERNEL);
            instruction.imm = self.kernel_types.number(RDONLY_CAST_NAME)? as i32;
        }
        Ok(encoded(&instruction))
    }

    /// Loads a program of the file.
    ///
    /// # Errors
    ///
    /// If the file has no such program, or bpf(2).
    pub(crate) fn load(&self, name: &str, kind: ProgramKind) -> anyhow::Result<File> {
        let program = self.object.programs.get(name);
        let function = program.and_then(|it| self.object.functions.get(&it.function_key()));
        let function = function.ok_or_else(|| anyhow!("no program {name}"))?;
        let encode = |instruction| self.encoded(instruction);
        let instructions = function.instructions.iter().map(encode);
        let instructions = instructions.collect::<anyhow::Result<Vec<u64>>>()?;
        let functions = function_types(function);
        let types = Some(&self.types);
        let code = BpfCode { instructions: &instructions, types, functions: &functions };
        let refusal = match sys::bpf_program(kind, code) {
            Ok(program) => return Ok(program),
            Err(refusal) => refusal,
        };
        if lockdown::hides_memory() {
            let cause = "it is locked down, boot without lockdown";
            return Err(refusal).context(format!("the kernel refuses {name}: {cause}"));
        }
        if let Some(reason) = sys::verifier_refusal(kind, code) {
            return Err(VerifierRefusal { program: name.to_owned(), reason }.into());
        }
        Err(refusal).context(format!("the kernel refuses {name}"))
    }
}

/// Reads the types of the kernel: the structures and functions that programs use.
///
/// # Errors
///
/// If the kernel has no types, or in an unknown format.
pub(crate) fn read_types(used: &[&str]) -> anyhow::Result<Reduced> {
    let whole = KernelTypes::read().with_context(|| {
        let file = KernelTypes::FILE;
        format!("cannot read {file}, which needs a kernel with CONFIG_DEBUG_INFO_BTF")
    })?;
    kernel_types::reduced(&whole, used).context("the kernel's types are in an unknown format")
}

/// Returns the types of a program and of the functions in it.
fn function_types(function: &Function) -> Vec<u8> {
    if function.func_info_rec_size == FUNCTION_INFO_BYTES {
        function.func_info.func_info_bytes()
    } else {
        Vec::new()
    }
}

/// Returns an instruction as the kernel reads it: see `Assembler::push`.
fn encoded(instruction: &bpf_insn) -> u64 {
    let registers = u64::from(instruction.dst_reg() | instruction.src_reg() << 4);
    let offset = u64::from(instruction.off as u16);
    u64::from(instruction.code)
        | registers << 8
        | offset << 16
        | u64::from(instruction.imm as u32) << 32
}
