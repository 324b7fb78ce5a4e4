//! The instruction of a function at which a probe counts its calls, on x86-64. Pure over bytes.
//!
//! The kernel executes a few instructions itself when a probe is hit: `push` of a register, the
//! one-byte `nop`, and direct `call`, `jmp` and conditional jumps (`branch_setup_xol_ops` and
//! `push_setup_xol_ops` in arch/x86/kernel/uprobes.c, Linux 3.16 to 6.18). Most others are executed
//! out of line in a single step, which costs some 15 times as much in a virtual machine. All
//! instructions from the entry of a function to the end of its first basic block are executed as often
//! as it is called, so a probe may be at any of them.

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, Register,
};

use super::entry::{Branch, End, Jumps, NoPlace, Place};

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

/// Returns the first instruction of a function's first block that the kernel emulates; if there is none,
/// the first one that it executes in a single step.
///
/// `limit` is the first address after `start` that a branch of any function leads to. Calls are
/// emulated with the stack alone: with `has_shadow_stack`, a return from an emulated call would end
/// the program.
///
/// # Errors
///
/// If there is neither.
pub(super) fn place(
    code: &[u8],
    start: u64,
    limit: u64,
    jumps: Jumps,
    has_shadow_stack: bool,
) -> Result<Place, NoPlace> {
    if jumps.to_entry {
        return Err(NoPlace::JumpToEntry);
    }
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let (mut is_prologue, mut has_unsafe) = (true, false);
    // A sample of a step has no other way to the caller than the return address at the top of the stack.
    let mut is_stack_unchanged = true;
    let mut stepped = None;
    while decoder.can_decode() && decoder.ip() < limit {
        let address = decoder.ip();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(NoPlace::NotCode);
        }
        let bytes = &code[(address - start) as usize..][..instruction.len()];
        is_prologue &= is_of_prologue(&instruction);
        let is_emulated = is_emulated(&instruction, bytes, has_shadow_stack);
        is_stack_unchanged &= !changes_stack(&instruction);
        let can_be_probed = is_emulated || is_stack_unchanged && is_stepped(&instruction, bytes);
        // No jump leads into the instructions that set up the frame: they are executed once.
        let is_safe = is_prologue || !jumps.has_computed;
        if is_emulated && is_safe {
            return Ok(Place { address, is_slow: false });
        }
        if can_be_probed && is_safe {
            stepped = stepped.or(Some(Place { address, is_slow: true }));
        }
        has_unsafe |= can_be_probed && !is_safe;
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    stepped.ok_or(match () {
        () if !jumps.is_code => NoPlace::NotCode,
        () if has_unsafe => NoPlace::ComputedJump,
        () => NoPlace::NotExecuted,
    })
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

/// True if an instruction changes the stack pointer, and is no return.
fn changes_stack(instruction: &Instruction) -> bool {
    let is_return = instruction.flow_control() == FlowControl::Return;
    let is_comparison = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    let is_stack_pointer = instruction.op0_register() == Register::RSP;
    (instruction.is_stack_instruction() || is_stack_pointer && !is_comparison) && !is_return
}

/// True if the kernel executes an instruction in a single step, once: it has its opcode in
/// `good_insns_64` or `good_2byte_insns` since Linux 3.5, and it changes no flags of the single step.
fn is_stepped(instruction: &Instruction, bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x64..=0x67 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let prefixes = bytes.iter().take_while(|byte| is_prefix(byte)).count();
    let is_known = match &bytes[prefixes..] {
        // Moves, arithmetic and comparisons of registers and memory, of vector registers, too; endbr64.
        [0x0f, code, ..] => matches!(
            code,
            0x10..=0x17 | 0x1e | 0x1f | 0x28..=0x2f | 0x40..=0x76 | 0x7e | 0x7f | 0x90..=0x9f
                | 0xa3..=0xa5 | 0xab..=0xad | 0xaf | 0xb6 | 0xb7 | 0xba..=0xbf | 0xc6
                | 0xc8..=0xcf | 0xd1..=0xdf | 0xe1..=0xfe
        ),
        [code @ ..=0x3f, ..] => code % 8 < 6,
        // Not those that repeat: each round would hit the probe.
        [code, ..] => matches!(
            code,
            0x50..=0x5f | 0x63 | 0x68..=0x6b | 0x80 | 0x81 | 0x83..=0x8b | 0x8d | 0x90..=0x99
                | 0xa8 | 0xa9 | 0xb0..=0xc3 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe | 0xff
        ),
        [] => false,
    };
    let flow = instruction.flow_control();
    is_known
        && instruction.encoding() == EncodingKind::Legacy
        && matches!(flow, FlowControl::Next | FlowControl::Return)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// The distance of a place from the start of the function.
    #[derive(Debug, PartialEq)]
    enum At {
        Emulated(u64),
        Stepped(u64),
    }
    use At::{Emulated, Stepped};

    /// Returns the place in a function that is alone in its image.
    fn place_in(code: &[u8]) -> Result<At, NoPlace> {
        place_with(code, false)
    }

    fn place_with(code: &[u8], has_shadow_stack: bool) -> Result<At, NoPlace> {
        let mut targets = Vec::new();
        let jumps = jumps(code, START, |branch| targets.push(branch.target));
        let limit = targets.into_iter().filter(|&it| it > START).min().unwrap_or(u64::MAX);
        let place = place(code, START, limit, jumps, has_shadow_stack)?;
        let distance = place.address - START;
        Ok(if place.is_slow { Stepped(distance) } else { Emulated(distance) })
    }

    #[test]
    fn first_emulated_instruction_is_the_place() {
        // push rbp; push r15
        assert_eq!(place_in(&[0x55, 0x41, 0x57, 0xc3]), Ok(Emulated(0)));
        // endbr64; push r12
        assert_eq!(place_in(&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54, 0xc3]), Ok(Emulated(4)));
        // sub rsp, 8; call +0
        assert_eq!(place_in(&[0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0xc3]), Ok(Emulated(4)));
        // test edi, edi; je +1; ret; ret
        assert_eq!(place_in(&[0x85, 0xff, 0x74, 1, 0xc3, 0xc3]), Ok(Emulated(2)));
        // test edi, edi; jne near
        assert_eq!(place_in(&[0x85, 0xff, 0x0f, 0x85, 0, 0, 0, 0, 0xc3]), Ok(Emulated(2)));
        // jmp elsewhere; nop
        assert_eq!(place_in(&[0xe9, 0, 1, 0, 0]), Ok(Emulated(0)));
        assert_eq!(place_in(&[0x90, 0xc3]), Ok(Emulated(0)));
    }

    #[test]
    fn first_stepped_instruction_is_the_place_without_an_emulated_one() {
        for code in [
            // lea eax, [rdi+1]; ret; endbr64; mov eax, [rip+8]; movss xmm0, [rdi]; xor eax, eax
            &[0x8d, 0x47, 1, 0xc3][..],
            &[0xc3],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xc3],
            &[0x8b, 0x05, 8, 0, 0, 0, 0xc3],
            &[0xf3, 0x0f, 0x10, 0x07, 0xc3],
            &[0x31, 0xc0, 0xc3],
            // xchg r8, rax has the opcode of nop; pause
            &[0x49, 0x90, 0xc3],
            &[0xf3, 0x90, 0xc3],
            // nop of two and of five bytes
            &[0x66, 0x90, 0xc3],
            &[0x0f, 0x1f, 0x44, 0, 0, 0xc3],
        ] {
            assert_eq!(place_in(code), Ok(Stepped(0)), "{code:x?}");
        }
    }

    #[test]
    fn instructions_without_probes_are_passed_over() {
        for first in [
            // lock inc [rdi]; vmovd xmm0, edi; rep movsb; rdtsc; crc32 eax, dil; mov ax, cs:[rdi]
            &[0xf0, 0xff, 0x07][..],
            &[0xc5, 0xf9, 0x6e, 0xc7],
            &[0xf3, 0xa4],
            &[0x0f, 0x31],
            &[0xf2, 0x40, 0x0f, 0x38, 0xf0, 0xc7],
            &[0x2e, 0x66, 0x8b, 0x07],
        ] {
            let code = [first, &[0x31, 0xc0, 0xc3]].concat();
            assert_eq!(place_in(&code), Ok(Stepped(first.len() as u64)), "{code:x?}");
        }
        // sub rsp, 8 and push word change the stack pointer, also for the instructions after them.
        assert_eq!(place_in(&[0x48, 0x83, 0xec, 8, 0x31, 0xc0, 0xc3]), Err(NoPlace::NotExecuted));
        assert_eq!(place_in(&[0x66, 0x50, 0x31, 0xc0, 0xc3]), Err(NoPlace::NotExecuted));
        assert_eq!(place_in(&[0x48, 0x39, 0xe7, 0x48, 0x83, 0xec, 8, 0xc3]), Ok(Stepped(0)));
        // call rax ends the block: the push after it may never be executed. hlt and a system call are refused.
        assert_eq!(place_in(&[0xff, 0xd0, 0x55, 0xc3]), Err(NoPlace::NotExecuted));
        assert_eq!(place_in(&[0xf4, 0x55, 0xc3]), Ok(Emulated(1)));
        assert_eq!(place_in(&[0x0f, 0x05, 0xc3]), Err(NoPlace::NotExecuted));
        assert_eq!(place_in(&[]), Err(NoPlace::NotExecuted));
    }

    #[test]
    fn block_ends_at_the_target_of_a_jump() {
        // xor eax, eax; inc eax; cmp eax, edi; jl to inc
        let code = [0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf8, 0x7c, 0xfa, 0xc3];
        assert_eq!(place_in(&code), Ok(Stepped(0)));
        // The only instruction before the loop is the system call.
        assert_eq!(place_in(&[&[0x0f, 0x05], &code[2..]].concat()), Err(NoPlace::NotExecuted));
        // push rbx before the loop
        assert_eq!(place_in(&[&[0x53], &code[..]].concat()), Ok(Emulated(0)));
    }

    #[test]
    fn jump_to_the_entry_is_a_loop_or_a_call() {
        // test edi, edi; je +2; jmp to the entry; ret
        let code = [0x85, 0xff, 0x74, 2, 0xeb, 0xfa, 0xc3];
        assert_eq!(place_in(&code), Err(NoPlace::JumpToEntry));
        // A recursive call is a call.
        assert_eq!(place_in(&[0x55, 0xe8, 0xfa, 0xff, 0xff, 0xff, 0xc3]), Ok(Emulated(0)));
    }

    #[test]
    fn computed_jump_leaves_only_the_prologue() {
        // test edi, edi; je +2; jmp rax; ret
        let code = [0x85, 0xff, 0x74, 2, 0xff, 0xe0, 0xc3];
        assert_eq!(place_in(&code), Err(NoPlace::ComputedJump));
        assert_eq!(place_in(&[&[0x48, 0x83, 0xec, 8, 0x55], &code[..]].concat()), Ok(Emulated(4)));
        assert_eq!(place_in(&[&[0xf3, 0x0f, 0x1e, 0xfa], &code[..]].concat()), Ok(Stepped(0)));
    }

    #[test]
    fn call_is_no_place_with_a_shadow_stack() {
        let code = [0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0, 0xc3];
        assert_eq!(place_with(&code, true), Err(NoPlace::NotExecuted));
        assert_eq!(place_with(&[0x55, 0xe8, 0, 0, 0, 0, 0xc3], true), Ok(Emulated(0)));
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
        assert_eq!(place_in(&[0x55, 0xc3, 0x06]), Ok(Emulated(0)));
    }
}
