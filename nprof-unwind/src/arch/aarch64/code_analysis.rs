//! Code analysis, as that of x86-64: follows the code of an address that no unwind table covers along every
//! jump with a known target to the ends of its function. There the place of the return address shows the
//! rule for the address; all ends must agree on it. Pure.
//!
//! Every call is assumed to return. If one never returns, the bytes after it are another function: its
//! return finds no return address of a caller, since the call changed the link register.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use nprof_object::ImageAddress;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::arch::aarch64::code_state::{SymbolicState, sign_extended};
use crate::arch::aarch64::registers::{LINK, PRESERVED};
use crate::arch::agreement::Agreement;
use crate::arch::code_bytes::CodeBytes;
use crate::arch::rule::UnwindRule;

/// The most instructions followed for one rule, and after its first end: further ends can only
/// contradict it.
const BUDGET: u32 = 2048;
const BUDGET_AFTER_END: u32 = 256;

/// The most instructions followed from the start of a function to a place in it.
const BUDGET_SINCE_ENTRY: u32 = 8192;

/// The code before an address that is searched for the start of its function, and the most starts
/// that are tried.
const PROLOGUE_SEARCH_BYTES: u64 = 8192;
const PROLOGUES_MAX: usize = 32;

/// The most paths that wait to be followed; more are dropped.
const PENDING_MAX: usize = 512;

/// Bytes of an instruction.
const INSTRUCTION: u64 = 4;

/// The most instructions from the return of a thread's function to the exit system call.
const EXIT_MAX: u64 = 8;

/// `mov x8, #93`: the number of exit(2), which ends a thread (include/uapi/asm-generic/unistd.h).
const EXIT_NUMBER: u32 = 0xd280_0ba8;
/// `mov w8, #93`.
const EXIT_NUMBER_32: u32 = 0x5280_0ba8;
/// `svc #0`.
const SYSTEM_CALL: u32 = 0xd400_0001;

/// The effect of an instruction on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Call,
    /// To the address in a register.
    Return(u32),
    Jump(ImageAddress),
    ConditionalJump(ImageAddress),
    /// To the address in a register.
    IndirectJump(u32),
    /// A trap, or no instruction that compilers use.
    End,
}

/// Returns the unwind rule for an address that no table covers. None if the code does not yield one.
/// With `returns` the address is a return address.
pub(crate) fn rule(
    program: &mut impl CodeBytes,
    start: ImageAddress,
    returns: bool,
) -> Option<UnwindRule> {
    PathSearch::new(program, start, SymbolicState::new(returns), None).rule(BUDGET)
}

/// Returns the unwind rules at an address by the code before it: one for each place that may be the
/// start of its function, the nearest first.
pub(crate) fn rules_since_prologues(
    program: &mut impl CodeBytes,
    at: ImageAddress,
) -> Vec<UnwindRule> {
    let first = at.wrapping_sub(PROLOGUE_SEARCH_BYTES.min(at.0));
    let mut place = at;
    let mut starts = Vec::new();
    // True until the first instructions of a function end.
    let mut is_prologue = false;
    while place > first && starts.len() < PROLOGUES_MAX {
        place = place.wrapping_sub(INSTRUCTION);
        let Some(instruction) = read(program, place) else { break };
        let is_start = creates_frame(instruction);
        is_prologue &= flow(instruction, place) == Flow::Next;
        // A function may lower the stack pointer twice.
        if is_start && is_prologue {
            starts.pop();
        }
        if is_start {
            starts.push(place);
            is_prologue = true;
        }
    }
    let rules = starts.into_iter().filter_map(|start| {
        let state = SymbolicState::new(false);
        PathSearch::new(program, start, state, Some(at)).rule(BUDGET_SINCE_ENTRY)
    });
    rules.collect()
}

/// True if an instruction lowers the stack pointer: compilers put none that matters before it.
fn creates_frame(instruction: u32) -> bool {
    // sub sp, sp, #N; stp xA, xB, [sp, #-N]!; str xA, [sp, #-N]!
    instruction & 0xff80_03ff == 0xd100_03ff
        || instruction & 0xffe0_03e0 == 0xa9a0_03e0
        || instruction & 0xfff0_0fe0 == 0xf810_0fe0
}

/// True if the code does nothing but end the thread. The start function of a thread returns to such
/// code, which has no caller.
pub(crate) fn is_thread_exit(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    let mut is_exit = false;
    for instructions in 0..EXIT_MAX {
        let Some(instruction) = read(program, at.wrapping_add(INSTRUCTION * instructions)) else {
            return false;
        };
        match instruction {
            SYSTEM_CALL => return is_exit,
            EXIT_NUMBER | EXIT_NUMBER_32 => is_exit = true,
            _ if flow(instruction, at) != Flow::Next => return false,
            _ => {}
        }
    }
    false
}

/// The search along all paths.
struct PathSearch<'a, T> {
    program: &'a mut T,
    /// The addresses and states at which paths continue.
    pending: VecDeque<(ImageAddress, SymbolicState)>,
    /// The visited addresses, each with the hash of the state there.
    visited: FxHashSet<(ImageAddress, u64)>,
    /// The number of instructions that may still be followed.
    budget: u32,
    agreement: Agreement,
    /// The place to which paths lead from the start of a function. None if they lead to its end.
    goal: Option<ImageAddress>,
    /// True if an unwind table covers that place: then one covers the whole function.
    is_covered: bool,
}

impl<'a, T: CodeBytes> PathSearch<'a, T> {
    fn new(
        program: &'a mut T,
        start: ImageAddress,
        state: SymbolicState,
        goal: Option<ImageAddress>,
    ) -> Self {
        let pending = VecDeque::from([(start, state)]);
        let visited = FxHashSet::default();
        let is_covered = goal.is_some_and(|goal| program.rule(goal).is_some());
        Self { program, pending, visited, budget: 0, agreement: Agreement::None, goal, is_covered }
    }

    /// Follows all paths, breadth first.
    fn rule(mut self, budget: u32) -> Option<UnwindRule> {
        self.budget = budget;
        while let Some((at, state)) = self.pending.pop_front()
            && !matches!(self.agreement, Agreement::Split)
        {
            self.follow(at, state);
        }
        match self.agreement {
            Agreement::Rule(row) => Some(row),
            _ => None,
        }
    }

    /// Follows one path to its end.
    fn follow(&mut self, mut at: ImageAddress, mut state: SymbolicState) {
        while self.budget > 0 && state.is_bounded() {
            self.budget -= 1;
            if self.goal == Some(at) {
                return self.end(state.rule_since_entry());
            }
            if !self.visited.insert((at, FxBuildHasher.hash_one(state.key()))) {
                return;
            }
            let Some(instruction) = read(self.program, at) else { return };
            let next = at.wrapping_add(INSTRUCTION);
            match flow(instruction, at) {
                Flow::Next => state.execute(instruction),
                Flow::Call => {
                    state.call();
                    // Code after the call that a table covers is another function, unless one covers all
                    // of it.
                    if !self.is_covered && self.program.rule(next).is_some() {
                        return;
                    }
                }
                Flow::ConditionalJump(target) => self.jump(target, state.clone()),
                Flow::Jump(target) => return self.jump(target, state),
                Flow::Return(register) if self.goal.is_none() => {
                    return self.end(state.rule_at_return(register));
                }
                Flow::IndirectJump(register)
                    if self.goal.is_none() && state.is_tail_call(register) =>
                {
                    return self.end(state.rule_at_return(u32::from(LINK)));
                }
                Flow::Return(_) | Flow::IndirectJump(_) | Flow::End => return,
            }
            at = next;
        }
    }

    /// Continues a path at a jump target. One that a table covers is another function, which returns to the
    /// address in the link register.
    fn jump(&mut self, target: ImageAddress, state: SymbolicState) {
        if !self.is_covered && self.program.rule(target).is_some() {
            if self.goal.is_none() {
                self.end(state.rule_at_return(u32::from(LINK)));
            }
        } else if self.pending.len() < PENDING_MAX {
            self.pending.push_back((target, state));
        }
    }

    /// Adds the rule that follows from the end of a path.
    fn end(&mut self, row: Option<UnwindRule>) {
        if let Some(row) = row {
            if matches!(self.agreement, Agreement::None) {
                self.budget = self.budget.min(BUDGET_AFTER_END);
            }
            self.agreement.add(row, &PRESERVED);
        }
    }
}

/// Returns the instruction at an address.
fn read(program: &mut impl CodeBytes, at: ImageAddress) -> Option<u32> {
    let code = program.code(at);
    let word = code.bytes[..code.length].first_chunk()?;
    at.0.is_multiple_of(INSTRUCTION).then(|| u32::from_le_bytes(*word))
}

/// Returns the effect of an instruction on the path (Arm Architecture Reference Manual, C4.1.66).
fn flow(instruction: u32, at: ImageAddress) -> Flow {
    let register = instruction >> 5 & 0x1f;
    let target = |bit: u32, bits: u32| {
        let distance = sign_extended(instruction >> bit, bits) * INSTRUCTION as i64;
        ImageAddress(at.0.wrapping_add_signed(distance))
    };
    match instruction {
        // bl, blr and its variants that check a signature.
        _ if instruction >> 26 == 0b10_0101 => Flow::Call,
        _ if instruction & 0xfeff_f000 == 0xd63f_0000 => Flow::Call,
        _ if instruction >> 26 == 0b00_0101 => Flow::Jump(target(0, 26)),
        // b.cond; cbz, cbnz; tbz, tbnz.
        _ if instruction >> 24 == 0b0101_0100 => Flow::ConditionalJump(target(5, 19)),
        _ if instruction >> 25 & 0x3f == 0b01_1010 => Flow::ConditionalJump(target(5, 19)),
        _ if instruction >> 25 & 0x3f == 0b01_1011 => Flow::ConditionalJump(target(5, 14)),
        // ret; retaa, retab return to the link register.
        _ if instruction & 0xffff_fc1f == 0xd65f_0000 => Flow::Return(register),
        0xd65f_0bff | 0xd65f_0fff => Flow::Return(u32::from(LINK)),
        // br and its variants that check a signature.
        _ if instruction & 0xfeff_f000 == 0xd61f_0000 => Flow::IndirectJump(register),
        // svc continues; brk, hlt and others do not.
        _ if instruction >> 24 == 0xd4 && instruction & 0xffe0_001f != SYSTEM_CALL => Flow::End,
        // eret, drps.
        _ if instruction >> 25 == 0b110_1011 => Flow::End,
        // No instruction, SME; SVE.
        _ if matches!(instruction >> 25 & 0xf, 0b0000..=0b0011) => Flow::End,
        _ => Flow::Next,
    }
}

#[cfg(test)]
mod tests;
