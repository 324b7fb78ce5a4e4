//! The instruction of a function at which a probe counts its calls, on x86-64. Pure over bytes.
//!
//! The kernel executes a few instructions itself when a probe is hit: `push` of a register, the
//! one-byte `nop`, and direct `call`, `jmp` and conditional jumps (`branch_setup_xol_ops` and
//! `push_setup_xol_ops` in arch/x86/kernel/uprobes.c, Linux 3.16 to 6.18). Every other instruction
//! is executed out of line in a single step, which costs some 15 times as much. All instructions
//! from the entry of a function to the end of its first basic block are executed as often as it is
//! called, so a probe may be at any of them.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use super::entry::{Branch, End, Jumps, NoPlace};

/// Reads the jumps of a function at the address `start`, and passes its branches on.
pub(super) fn jumps(code: &[u8], start: u64, mut visit: impl FnMut(Branch)) -> Jumps {
    let mut jumps = Jumps { is_code: true, ..Jumps::default() };
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            jumps.is_code = false;
            break;
        }
        let is_call = match instruction.flow_control() {
            FlowControl::Call => true,
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::XbeginXabortXend => false,
            FlowControl::IndirectBranch => {
                jumps.has_computed = true;
                continue;
            }
            _ => continue,
        };
        let target = instruction.near_branch_target();
        if target == start && !is_call {
            jumps.to_entry = true;
        }
        if target != 0 {
            visit(Branch { target, is_call });
        }
    }
    jumps
}

/// Returns the offsets of the instructions of a function.
pub(super) fn instructions(code: &[u8]) -> impl Iterator<Item = u64> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        let at = decoder.can_decode().then(|| decoder.ip())?;
        let _ = decoder.decode();
        Some(at)
    })
}

/// Returns the returns and the direct jumps of code at the address `start`.
///
/// A conditional jump to another function is none: a probe there is also hit when it is not taken.
pub(super) fn ends(code: &[u8], start: u64) -> Vec<End> {
    let mut ends = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let target = match instruction.flow_control() {
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => None,
            FlowControl::UnconditionalBranch => Some(instruction.near_branch_target()),
            _ => continue,
        };
        ends.push(End { address: instruction.ip(), target });
    }
    ends
}

/// Returns the address of the first instruction of a function's first block that the kernel emulates.
///
/// `limit` is the first address after `start` that a branch of any function leads to. Calls are
/// emulated with the stack alone: with `has_shadow_stack`, a return from an emulated call would end
/// the program.
///
/// # Errors
///
/// If there is none.
pub(super) fn place(
    code: &[u8],
    start: u64,
    limit: u64,
    jumps: Jumps,
    has_shadow_stack: bool,
) -> Result<u64, NoPlace> {
    if jumps.to_entry {
        return Err(NoPlace::JumpToEntry);
    }
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut is_prologue = true;
    while decoder.can_decode() && decoder.ip() < limit {
        let at = decoder.ip();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(NoPlace::NotCode);
        }
        let bytes = &code[(at - start) as usize..][..instruction.len()];
        is_prologue &= is_of_prologue(&instruction);
        if is_emulated(&instruction, bytes, has_shadow_stack) {
            // No jump leads into the instructions that set up the frame: they are executed once.
            let is_safe = is_prologue || !jumps.has_computed;
            return if is_safe { Ok(at) } else { Err(NoPlace::ComputedJump) };
        }
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    if jumps.is_code { Err(NoPlace::NotEmulated) } else { Err(NoPlace::NotCode) }
}

/// True if an instruction sets up the frame of a function.
fn is_of_prologue(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Push => true,
        Mnemonic::Sub => instruction.op0_register() == Register::RSP,
        Mnemonic::Mov => instruction.op0_register() == Register::RBP,
        _ => false,
    }
}

/// True if the kernel emulates an instruction in every version that has the links for many probes.
fn is_emulated(instruction: &Instruction, bytes: &[u8], has_shadow_stack: bool) -> bool {
    // Prefixes decide: the kernel refuses a branch with 0x66.
    match (instruction.code(), bytes) {
        (Code::Push_r64, [_] | [0x41, _]) | (Code::Nopd, [0x90]) => true,
        (Code::Jmp_rel8_64, [0xeb, ..]) | (Code::Jmp_rel32_64, [0xe9, ..]) => true,
        (Code::Call_rel32_64, [0xe8, ..]) => !has_shadow_stack,
        (_, [0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..]) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// Returns the offset of the place in a function that is alone in its image.
    fn place_in(code: &[u8]) -> Result<u64, NoPlace> {
        place_with(code, false)
    }

    fn place_with(code: &[u8], has_shadow_stack: bool) -> Result<u64, NoPlace> {
        let mut targets = Vec::new();
        let jumps = jumps(code, START, |branch| targets.push(branch.target));
        let limit = targets.into_iter().filter(|&it| it > START).min().unwrap_or(u64::MAX);
        place(code, START, limit, jumps, has_shadow_stack).map(|at| at - START)
    }

    #[test]
    fn first_emulated_instruction_is_the_place() {
        // push rbp; push r15
        assert_eq!(place_in(&[0x55, 0x41, 0x57, 0xc3]), Ok(0));
        // endbr64; push r12
        assert_eq!(place_in(&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54, 0xc3]), Ok(4));
        // sub rsp, 8; call +0
        assert_eq!(place_in(&[0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0xc3]), Ok(4));
        // test edi, edi; je +1; ret; ret
        assert_eq!(place_in(&[0x85, 0xff, 0x74, 1, 0xc3, 0xc3]), Ok(2));
        // test edi, edi; jne near
        assert_eq!(place_in(&[0x85, 0xff, 0x0f, 0x85, 0, 0, 0, 0, 0xc3]), Ok(2));
        // jmp elsewhere; nop
        assert_eq!(place_in(&[0xe9, 0, 1, 0, 0]), Ok(0));
        assert_eq!(place_in(&[0x90, 0xc3]), Ok(0));
    }

    #[test]
    fn instructions_that_the_kernel_executes_out_of_line_are_no_place() {
        // lea eax, [rdi+1]; ret
        assert_eq!(place_in(&[0x8d, 0x47, 1, 0xc3]), Err(NoPlace::NotEmulated));
        // xchg r8, rax has the opcode of nop; push word; pause
        assert_eq!(place_in(&[0x49, 0x90, 0xc3]), Err(NoPlace::NotEmulated));
        assert_eq!(place_in(&[0x66, 0x50, 0xc3]), Err(NoPlace::NotEmulated));
        assert_eq!(place_in(&[0xf3, 0x90, 0xc3]), Err(NoPlace::NotEmulated));
        // nop of two and of five bytes
        assert_eq!(place_in(&[0x66, 0x90, 0xc3]), Err(NoPlace::NotEmulated));
        assert_eq!(place_in(&[0x0f, 0x1f, 0x44, 0, 0, 0xc3]), Err(NoPlace::NotEmulated));
        // call rax ends the block: the push after it may never be executed
        assert_eq!(place_in(&[0xff, 0xd0, 0x55, 0xc3]), Err(NoPlace::NotEmulated));
        assert_eq!(place_in(&[]), Err(NoPlace::NotEmulated));
    }

    #[test]
    fn block_ends_at_the_target_of_a_jump() {
        // xor eax, eax; inc eax; cmp eax, edi; jl to inc
        let code = [0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf8, 0x7c, 0xfa, 0xc3];
        assert_eq!(place_in(&code), Err(NoPlace::NotEmulated));
        // push rbx before the loop
        assert_eq!(place_in(&[&[0x53], &code[..]].concat()), Ok(0));
    }

    #[test]
    fn jump_to_the_entry_is_a_loop_or_a_call() {
        // test edi, edi; je +2; jmp to the entry; ret
        let code = [0x85, 0xff, 0x74, 2, 0xeb, 0xfa, 0xc3];
        assert_eq!(place_in(&code), Err(NoPlace::JumpToEntry));
        // A recursive call is a call.
        assert_eq!(place_in(&[0x55, 0xe8, 0xfa, 0xff, 0xff, 0xff, 0xc3]), Ok(0));
    }

    #[test]
    fn computed_jump_leaves_only_the_prologue() {
        // test edi, edi; je +2; jmp rax; ret
        let code = [0x85, 0xff, 0x74, 2, 0xff, 0xe0, 0xc3];
        assert_eq!(place_in(&code), Err(NoPlace::ComputedJump));
        assert_eq!(place_in(&[&[0x48, 0x83, 0xec, 8, 0x55], &code[..]].concat()), Ok(4));
    }

    #[test]
    fn call_is_no_place_with_a_shadow_stack() {
        let code = [0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(place_with(&code, true), Err(NoPlace::NotEmulated));
        assert_eq!(place_with(&[0x55, 0xe8, 0, 0, 0, 0, 0xc3], true), Ok(0));
    }

    #[test]
    fn function_ends_with_returns_and_jumps() {
        // je +3; repz ret; jmp +16; ret 8; jmp rax; iretq
        let code = [0x74, 3, 0xf3, 0xc3, 0xeb, 0x10, 0xc2, 8, 0, 0xff, 0xe0, 0x48, 0xcf];
        let found = ends(&code, START).into_iter().map(|end| (end.address - START, end.target));
        assert_eq!(found.collect::<Vec<_>>(), [(2, None), (4, Some(START + 6 + 0x10)), (6, None)]);
    }

    #[test]
    fn bytes_that_are_no_instructions_are_no_code() {
        assert_eq!(place_in(&[0x06, 0x06]), Err(NoPlace::NotCode));
        // A place before them is one: only a part of the function is data.
        assert_eq!(place_in(&[0x55, 0xc3, 0x06]), Ok(0));
    }
}
