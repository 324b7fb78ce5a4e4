//! Looks up the addresses of kernel symbols by a BPF program.
//!
//! The kernel finds a name by binary search. Its list, /proc/kallsyms, takes 0.1 s to read. The program
//! needs CAP_BPF, CAP_PERFMON and CAP_SYSLOG, and Linux 5.16.

use std::fs::File;

use crate::perf::bpf::assembler::{AluOp, Assembler, Register};
use crate::sys::{self, BpfCode, ProgramKind};

use Register::{R0, R1, R2, R3, R4, R6, R10};

/// bpf_kallsyms_lookup_name of include/uapi/linux/bpf.h.
const KALLSYMS_LOOKUP_NAME: i32 = 179;

/// Bytes of a name with its terminating NUL. The result follows it in the context of the program.
const NAME_BYTES: usize = 32;

/// The loaded program.
#[derive(Debug)]
pub(crate) struct SymbolLookup(File);

impl SymbolLookup {
    /// Loads the program. None if it cannot be loaded.
    pub(crate) fn load() -> Option<Self> {
        let instructions = program();
        let code = BpfCode { instructions: &instructions, types: None, functions: &[] };
        sys::bpf_program(ProgramKind::Syscall, code).ok().map(Self)
    }

    /// Returns the address of a symbol. None if there is none, or if it is hidden.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        let mut context = [0; NAME_BYTES + 8];
        context[..NAME_BYTES - 1].get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        sys::bpf_run(&self.0, &mut context).ok()?;
        let address = u64::from_ne_bytes(*context.last_chunk()?);
        (address != 0).then_some(address)
    }
}

fn program() -> Vec<u64> {
    const NAME: i16 = -(NAME_BYTES as i16);
    const RESULT: i16 = NAME - 8;
    let mut code = Assembler::default();
    code.set(R6, R1);
    // The helper takes no pointer to the context.
    for at in (0..NAME_BYTES as i16).step_by(8) {
        code.load(R1, R6, at);
        code.store(R10, NAME + at, R1);
    }
    code.set(R1, 0);
    code.store(R10, RESULT, R1);
    code.set(R1, R10);
    code.compute(AluOp::Add, R1, i32::from(NAME));
    code.set(R2, NAME_BYTES as i32);
    // Flags.
    code.set(R3, 0);
    code.set(R4, R10);
    code.compute(AluOp::Add, R4, i32::from(RESULT));
    code.call(KALLSYMS_LOOKUP_NAME);
    code.load(R1, R10, RESULT);
    code.store(R6, NAME_BYTES as i16, R1);
    code.set(R0, 0);
    code.exit();
    code.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use nprof_object::kallsyms;

    #[test]
    fn addresses_are_those_of_kallsyms() {
        let Some(lookup) = SymbolLookup::load() else {
            return eprintln!("SKIPPED: no BPF here");
        };
        let Ok(symbols) = fs::read("/proc/kallsyms") else {
            return eprintln!("SKIPPED: the kernel has no list of symbols");
        };
        for name in ["__sched_text_start", "__sched_text_end"] {
            let listed = kallsyms::find(&symbols, name.as_bytes()).expect("each kernel has it");
            assert_eq!(lookup.address(name), Some(listed.0).filter(|&address| address != 0));
        }
        assert_eq!(lookup.address("no_such_symbol"), None);
        assert_eq!(lookup.address(&"x".repeat(NAME_BYTES)), None, "too long");
    }
}
