//! The instruction of a function at which a probe counts its calls, on 64-bit ARM. Pure over bytes.
//!
//! The kernel executes direct branches and `adr` itself when a probe is hit, and most others in a single step elsewhere,
//! which costs one more exception (`arm_probe_decode_insn` in arch/arm64/kernel/probes/decode-insn.c, Linux 6.1 to
//! 7.2). It also emulates calls and returns, which with a shadow stack (GCS) it does right since Linux 6.18 only: they
//! are not used here.

use super::entry::{Branch, End, Jumps, NoPlace};

/// What an instruction does to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The next one follows.
    Next,
    /// A direct jump, perhaps a conditional one, by a distance.
    Jump(i64),
    /// A direct call.
    Call(i64),
    /// A jump to an address in a register.
    Computed,
    /// An indirect call, a return or an exception.
    Other,
    /// No instruction.
    Invalid,
}

/// Reads the jumps of a function at the address `start`, and passes its branches on.
pub(super) fn jumps(code: &[u8], start: u64, mut visit: impl FnMut(Branch)) -> Jumps {
    let mut jumps = Jumps { is_code: true, ..Jumps::default() };
    for (at, instruction) in instructions(code, start) {
        let (distance, is_call) = match flow(instruction) {
            Flow::Jump(distance) => (distance, false),
            Flow::Call(distance) => (distance, true),
            Flow::Computed => {
                jumps.has_computed = true;
                continue;
            }
            Flow::Invalid => {
                jumps.is_code = false;
                break;
            }
            Flow::Next | Flow::Other => continue,
        };
        let target = at.wrapping_add_signed(distance);
        jumps.to_entry |= target == start && !is_call;
        visit(Branch { target, is_call });
    }
    jumps
}

/// Returns the returns and the direct jumps of code at the address `start`. None if no probe can be at one of
/// the returns.
///
/// The kernel refuses probes at returns that verify the address (`retaa`, `retab`). Before Linux 6.18 it
/// emulates the others with the stack alone, which ends a program that `has_shadow_stack`.
pub(super) fn ends(code: &[u8], start: u64, has_shadow_stack: bool) -> Option<Vec<End>> {
    let mut ends = Vec::new();
    for (address, instruction) in instructions(code, start) {
        let target = match instruction {
            RETAA | RETAB => return None,
            _ if instruction & 0xffff_fc1f == 0xd65f_0000 && has_shadow_stack => return None,
            _ if instruction & 0xffff_fc1f == 0xd65f_0000 => None,
            _ if instruction >> 26 == 0b00_0101 => match flow(instruction) {
                Flow::Jump(distance) => Some(address.wrapping_add_signed(distance)),
                _ => continue,
            },
            _ => continue,
        };
        ends.push(End { address, target });
    }
    Some(ends)
}

/// The returns that verify the address (Arm Architecture Reference Manual, C6.2).
const RETAA: u32 = 0xd65f_0bff;
const RETAB: u32 = 0xd65f_0fff;

/// Returns the address of the first instruction of a function's first block that the kernel emulates; if there is none,
/// that of the first instruction.
///
/// `limit` is the first address after `start` that a branch of any function leads to.
///
/// # Errors
///
/// If the kernel refuses a probe there, or the instruction may be executed more often than the function is called.
pub(super) fn place(code: &[u8], start: u64, limit: u64, jumps: Jumps) -> Result<u64, NoPlace> {
    if jumps.to_entry {
        return Err(NoPlace::JumpToEntry);
    }
    let mut is_prologue = true;
    for (at, instruction) in instructions(code, start).take_while(|(at, _)| *at < limit) {
        let flow = flow(instruction);
        if flow == Flow::Invalid {
            return Err(NoPlace::NotCode);
        }
        is_prologue &= is_of_prologue(instruction);
        let is_emulated = matches!(flow, Flow::Jump(_)) || is_address(instruction);
        // No jump leads into the instructions that set up the frame: they are executed once.
        if is_emulated && (is_prologue || !jumps.has_computed) {
            return Ok(at);
        }
        if flow != Flow::Next {
            break;
        }
    }
    match instructions(code, start).next() {
        Some((_, first)) if !is_stepped(first) => Err(NoPlace::NotExecuted),
        Some((_, first)) if !is_of_prologue(first) && jumps.has_computed => {
            Err(NoPlace::ComputedJump)
        }
        Some(_) => Ok(start),
        None => Err(NoPlace::NotCode),
    }
}

fn instructions(code: &[u8], start: u64) -> impl Iterator<Item = (u64, u32)> {
    let words = code.chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
    words
        .enumerate()
        .map(move |(index, word)| (start.wrapping_add(4 * index as u64), u32::from_le_bytes(word)))
}

/// Decodes the class of an instruction (Arm Architecture Reference Manual, C4.1).
fn flow(instruction: u32) -> Flow {
    let distance = |bit: u32, bits: u32| {
        // The sign is the highest bit of the field.
        let field = i64::from((instruction << (32 - bit - bits)) as i32 >> (32 - bits));
        4 * field
    };
    match instruction {
        _ if instruction >> 16 == 0 => Flow::Invalid,
        _ if matches!(instruction >> 25 & 15, 0b0001 | 0b0011) => Flow::Invalid,
        _ if instruction >> 26 == 0b00_0101 => Flow::Jump(distance(0, 26)),
        _ if instruction >> 26 == 0b10_0101 => Flow::Call(distance(0, 26)),
        // b.cond, bc.cond; cbz, cbnz; tbz, tbnz.
        _ if instruction & 0xff00_0000 == 0x5400_0000 => Flow::Jump(distance(5, 19)),
        _ if instruction & 0x7e00_0000 == 0x3400_0000 => Flow::Jump(distance(5, 19)),
        _ if instruction & 0x7e00_0000 == 0x3600_0000 => Flow::Jump(distance(5, 14)),
        // br; braaz, brabz; braa, brab.
        _ if instruction & 0xffff_fc1f == 0xd61f_0000 => Flow::Computed,
        _ if instruction & 0xfeff_f800 == 0xd61f_0800 => Flow::Computed,
        _ if is_branch_or_system(instruction) && !is_harmless_system(instruction) => Flow::Other,
        _ => Flow::Next,
    }
}

/// True for branches, exceptions and system instructions.
fn is_branch_or_system(instruction: u32) -> bool {
    instruction >> 26 & 7 == 0b101
}

/// True for `mrs`, `nop`, `bti`, `paciasp` and `pacibsp`, which the kernel executes in a single step.
fn is_harmless_system(instruction: u32) -> bool {
    let is_bti = instruction & 0xffff_ff3f == 0xd503_241f;
    is_bti
        || matches!(instruction, 0xd503_201f | 0xd503_233f | 0xd503_237f)
        || instruction & 0xfff0_0000 == 0xd530_0000
}

/// True for `adr` and `adrp`.
fn is_address(instruction: u32) -> bool {
    instruction & 0x1f00_0000 == 0x1000_0000
}

/// True if the kernel executes an instruction in a single step.
fn is_stepped(instruction: u32) -> bool {
    let is_literal = instruction & 0x3b00_0000 == 0x1800_0000;
    let is_exclusive = instruction & 0x3f00_0000 == 0x0800_0000;
    // cpyf*, cpy* and set*, which may be interrupted.
    let is_memory_copy = instruction & 0x3b20_0c00 == 0x1900_0400;
    let is_branch = is_branch_or_system(instruction) && !is_harmless_system(instruction);
    !is_literal && !is_exclusive && !is_memory_copy && !is_branch
}

/// True if an instruction sets up the frame of a function.
fn is_of_prologue(instruction: u32) -> bool {
    is_harmless_system(instruction)
        // sub sp, sp, #n; add x29, sp, #n.
        || instruction & 0xff80_03ff == 0xd100_03ff
        || instruction & 0xff80_03ff == 0x9100_03fd
        // stp of registers, and of the lower halves of vector registers, to the stack; str x, [sp, #-n]!.
        || instruction & 0xfe40_03e0 == 0xa800_03e0
        || instruction & 0xfe40_03e0 == 0x6c00_03e0
        || instruction & 0xffe0_0fe0 == 0xf800_0fe0
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;
    const RET: u32 = 0xd65f_03c0;
    const STP: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
    const MOV: u32 = 0xaa00_03e1; // mov x1, x0
    const BR: u32 = 0xd61f_0200; // br x16

    fn bytes(code: &[u32]) -> Vec<u8> {
        code.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns the offset of the place in a function that is alone in its image.
    fn place_in(code: &[u32]) -> Result<u64, NoPlace> {
        let code = bytes(code);
        let mut targets = Vec::new();
        let jumps = jumps(&code, START, |branch| targets.push(branch.target));
        let limit = targets.into_iter().filter(|&it| it > START).min().unwrap_or(u64::MAX);
        place(&code, START, limit, jumps).map(|at| at - START)
    }

    #[test]
    fn first_emulated_instruction_is_the_place() {
        // adrp x0, +0x2000; add.
        assert_eq!(place_in(&[STP, 0xb000_0000, 0x9100_0000, RET]), Ok(4));
        // cbz x0, +8; tbnz w0, #3, +8; b.eq +8; b +64.
        assert_eq!(place_in(&[MOV, 0xb400_0040, RET, RET]), Ok(4));
        assert_eq!(place_in(&[MOV, 0x3718_0040, RET, RET]), Ok(4));
        assert_eq!(place_in(&[MOV, 0x5400_0040, RET, RET]), Ok(4));
        assert_eq!(place_in(&[MOV, 0x1400_0010]), Ok(4));
    }

    #[test]
    fn first_instruction_is_the_place_without_an_emulated_one() {
        assert_eq!(place_in(&[MOV, RET]), Ok(0));
        // bti c; paciasp; a call ends the block.
        assert_eq!(place_in(&[0xd503_245f, MOV, RET]), Ok(0));
        assert_eq!(place_in(&[0xd503_233f, STP, 0x9400_0010, 0xb000_0000, RET]), Ok(0));
    }

    #[test]
    fn instructions_that_the_kernel_refuses_are_no_place() {
        // ldr x0, literal; ldxr x0, [x1]; ldar x0, [x1]; svc #0; msr tpidr_el0, x0; yield; bl; cpyfp; ret.
        for first in [
            0x5800_0080,
            0xc85f_7c20,
            0xc8df_fc20,
            0xd400_0001,
            0xd51b_d040,
            0xd503_203f,
            0x9400_0010,
            0x1901_0440,
            RET,
        ] {
            assert_eq!(place_in(&[first, MOV, RET]), Err(NoPlace::NotExecuted), "{first:#x}");
        }
        // A literal is no obstacle if an emulated instruction follows.
        assert_eq!(place_in(&[0x5800_0080, 0xb000_0000, RET]), Ok(4));
    }

    #[test]
    fn block_ends_at_the_target_of_a_jump() {
        // mov; add x0, x0, #1; cbnz x1, to add; ret.
        assert_eq!(place_in(&[MOV, 0x9100_0400, 0xb5ff_ffe1, RET]), Ok(0));
        // The loop begins at the entry.
        assert_eq!(place_in(&[0x9100_0400, 0xb5ff_ffe1, RET]), Err(NoPlace::JumpToEntry));
        // A recursive call is a call.
        assert_eq!(place_in(&[STP, 0x97ff_ffff, RET]), Ok(0));
    }

    #[test]
    fn computed_jump_leaves_only_the_prologue() {
        assert_eq!(place_in(&[MOV, BR]), Err(NoPlace::ComputedJump));
        assert_eq!(place_in(&[STP, MOV, 0xb000_0000, BR]), Ok(0));
        assert_eq!(place_in(&[MOV, 0xd71f_0a11]), Err(NoPlace::ComputedJump), "braa");
    }

    #[test]
    fn function_ends_with_returns_and_jumps() {
        // cbz x0, +8; ret; b +64; br x16.
        let code = bytes(&[0xb400_0040, RET, 0x1400_0010, BR]);
        let jump = End { address: START + 8, target: Some(START + 8 + 64) };
        let both = vec![End { address: START + 4, target: None }, jump];
        assert_eq!(ends(&code, START, false), Some(both));
        assert_eq!(ends(&code, START, true), None, "the return cannot be probed");
        assert_eq!(ends(&code[8..], START + 8, true), Some(vec![jump]), "it has no return");
        for verifying in [RETAA, RETAB] {
            assert_eq!(ends(&bytes(&[RET, verifying]), START, false), None);
        }
    }

    #[test]
    fn bytes_that_are_no_instructions_are_no_code() {
        assert_eq!(place_in(&[0]), Err(NoPlace::NotCode));
        assert_eq!(place_in(&[]), Err(NoPlace::NotCode));
        assert_eq!(place_in(&[MOV, RET, 0]), Ok(0));
    }
}
