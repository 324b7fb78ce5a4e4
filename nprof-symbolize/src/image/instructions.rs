//! The instructions of code, as far as the symbolizer needs them: their starts and direct targets. Pure.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use nprof_object::ImageAddress;
use object::elf;

/// An architecture with a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86.
    X86,
}

impl Arch {
    /// Returns the architecture of a machine, `EM_*`. None if there is no decoder for it.
    pub(crate) fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            machine if machine == elf::EM_X86_64.0 => Some(Self::X86_64),
            machine if machine == elf::EM_386.0 => Some(Self::X86),
            _ => None,
        }
    }

    /// Returns the architecture of this program. None if there is no decoder for it.
    pub(crate) fn of_this_program() -> Option<Self> {
        cfg!(target_arch = "x86_64").then_some(Self::X86_64)
    }

    /// Returns its name in the stream.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::X86 => "x86",
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::X86_64 => 64,
            Self::X86 => 32,
        }
    }
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The distance of its first byte from the start of the code.
    pub(crate) offset: usize,
    /// The distance of the byte after its last one.
    pub(crate) end: usize,
    /// The address that it jumps to or calls, if that does not depend on registers or memory.
    pub(crate) target: Option<ImageAddress>,
}

/// Returns the instructions of code that begins at an address. Bytes that are none are decoded as
/// instructions of one byte.
pub(crate) fn instructions(
    arch: Arch,
    code: &[u8],
    start: ImageAddress,
) -> impl Iterator<Item = Step> + '_ {
    let mut decoder = Decoder::with_ip(arch.bits(), code, start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    std::iter::from_fn(move || {
        if !decoder.can_decode() {
            return None;
        }
        let offset = decoder.position();
        decoder.decode_out(&mut instruction);
        let target = match instruction.flow_control() {
            FlowControl::Call
            | FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch => {
                Some(ImageAddress(instruction.near_branch_target()))
            }
            _ => None,
        };
        Some(Step { offset, end: decoder.position(), target })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_jumps_and_calls_have_targets() {
        // nop; jmp +2; call -8; jmp *%rax; an instruction that is cut off.
        let code = [0x90, 0xeb, 2, 0xe8, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xe0, 0xe8, 1];
        let steps = instructions(Arch::X86_64, &code, ImageAddress(0x1000));
        let steps: Vec<_> = steps.map(|step| (step.offset, step.target.map(|at| at.0))).collect();
        let expected = [(0, None), (1, Some(0x1005)), (3, Some(0x1000)), (8, None), (10, None)];
        assert_eq!(steps[..5], expected);
    }

    #[test]
    fn any_bytes_are_covered_by_instructions() {
        let code: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        let mut end = 0;
        for step in instructions(Arch::X86, &code, ImageAddress(u64::MAX - 9)) {
            assert!(step.offset == end && step.end > end, "{step:?}");
            end = step.end;
        }
        assert_eq!(end, code.len());
    }
}
