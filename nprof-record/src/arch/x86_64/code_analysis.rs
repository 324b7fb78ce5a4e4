//! Finds the rule of a place no unwind table covers from the code itself, as csprof and HPCToolkit
//! do for code without tables: what a function still does to the stack pointer before it returns
//! tells where its return address is. Pure.
//!
//! The code is followed forward from where it will go on, along every jump whose target is known,
//! to where it returns or jumps into another function. All ends that are found must agree on where
//! the return address is; a register they do not agree on is lost. Where the code cannot be
//! followed, as through a table of jumps, a path ends and has no say.
//!
//! Every call is taken to return. Behind one that never does stands another function, which has
//! its own return address where the call's was: no function keeps it there, so that such an end is
//! told from a true one.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind,
};
use nprof_object::ImageAddress;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::arch::code_bytes::{Bytes, Call, CodeBytes};
use crate::arch::rule::{AnalyzedRule, RegisterRule, UnwindRule};
use crate::arch::x86_64::registers::PRESERVED;

use crate::arch::x86_64::code_state::SymbolicState;

/// The most instructions followed for one rule, and of those behind its first end, which can only
/// contradict it.
const BUDGET: u32 = 1024;
const BUDGET_BEHIND: u32 = 256;

/// The most paths that wait to be followed; beyond that there is no room for more.
const PENDING_MAX: usize = 512;

/// Where compilers let functions begin.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The most instructions between a thread's return from its function and its end.
const EXIT_MAX: u32 = 8;

/// The number of the system call by which a thread ends, of arch/x86/entry/syscalls.
const SYS_EXIT: u64 = 60;

/// The rule of a place in the code no table covers; `None` when it does not tell. `returns` says
/// that a function called just before the place is to return to it.
pub(crate) fn rule(
    program: &mut impl CodeBytes,
    start: ImageAddress,
    returns: bool,
) -> Option<UnwindRule> {
    let mut paths = PathSearch {
        program,
        factory: InstructionInfoFactory::new(),
        pending: VecDeque::from([(start, SymbolicState::new(returns))]),
        visited: FxHashSet::default(),
        doubtful: VecDeque::new(),
        budget: BUDGET,
        agreement: Agreement::None,
    };
    paths.follow_all();
    if matches!(paths.agreement, Agreement::None) {
        paths.pending = std::mem::take(&mut paths.doubtful);
        paths.follow_all();
    }
    match paths.agreement {
        Agreement::Rule(row) => Some(row),
        Agreement::None if !returns && is_thunk(program, start) => {
            SymbolicState::new(false).rule_at_return()
        }
        _ => None,
    }
}

/// What the ends that were found say.
#[derive(Debug)]
enum Agreement {
    None,
    Rule(UnwindRule),
    /// They do not agree.
    Split,
}

impl Agreement {
    fn add(&mut self, row: UnwindRule) {
        *self = match std::mem::replace(self, Self::Split) {
            Self::None => Self::Rule(row),
            Self::Rule(other) if other.cfa == row.cfa => Self::Rule(common(&other, &row)),
            _ => Self::Split,
        };
    }
}

/// Two rules with the same CFA as one.
fn common(one: &UnwindRule, other: &UnwindRule) -> UnwindRule {
    let saved = |row: &UnwindRule, register| {
        let found = row.registers.iter().find(|(other, _)| *other == register);
        found.map_or(RegisterRule::SameValue, |(_, saved)| saved.clone())
    };
    let both = |&register: &u16| {
        let (one, other) = (saved(one, register), saved(other, register));
        let saved = if one == other { one } else { RegisterRule::Undefined };
        (saved != RegisterRule::SameValue).then_some((register, saved))
    };
    let registers = PRESERVED.iter().filter_map(both).collect();
    UnwindRule { registers, ..one.clone() }
}

/// The paths that are followed.
struct PathSearch<'a, T> {
    program: &'a mut T,
    factory: InstructionInfoFactory,
    /// Where paths go on.
    pending: VecDeque<(ImageAddress, SymbolicState)>,
    /// The same behind calls that may never return, as padding follows them.
    doubtful: VecDeque<(ImageAddress, SymbolicState)>,
    /// Where paths have been, and the hash of what was known there.
    visited: FxHashSet<(ImageAddress, u64)>,
    /// Instructions that may still be followed.
    budget: u32,
    agreement: Agreement,
}

impl<T: CodeBytes> PathSearch<'_, T> {
    /// Follows all that are pending, those that came first before those they led to.
    fn follow_all(&mut self) {
        while let Some((at, state)) = self.pending.pop_front()
            && !matches!(self.agreement, Agreement::Split)
        {
            self.analyze(at, state);
        }
    }

    /// Follows one path to its end.
    fn analyze(&mut self, mut at: ImageAddress, mut state: SymbolicState) {
        while self.budget > 0 && state.is_bounded() {
            self.budget -= 1;
            if !self.visited.insert((at, FxBuildHasher.hash_one(state.key()))) {
                return;
            }
            if let Some(known) = self.program.known(at) {
                let AnalyzedRule::Rule(row) = known else { return };
                return self.end(state.rule_via_table(&row));
            }
            let Some(instruction) = decode(&self.program.code(at), at) else { return };
            let next = ImageAddress(instruction.next_ip());
            at = match instruction.flow_control() {
                FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => return,
                FlowControl::Next => {
                    state.execute(&instruction, &mut self.factory);
                    next
                }
                FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => {
                    state.execute(&instruction, &mut self.factory);
                    next
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    state.call();
                    // A call of the next instruction is not returned from; and what a table
                    // covers behind one is another function.
                    let is_end = target(&instruction) == Some(next);
                    if is_end || self.program.rule(next).is_some() {
                        return;
                    }
                    if is_padding(self.program, next) {
                        return self.doubtful.push_back((next, state));
                    }
                    next
                }
                FlowControl::ConditionalBranch => {
                    if let Some(target) = target(&instruction) {
                        self.jump(target, state.clone());
                    }
                    next
                }
                FlowControl::UnconditionalBranch => {
                    let Some(target) = target(&instruction) else { return };
                    return self.jump(target, state);
                }
                FlowControl::Return if instruction.code() == iced_x86::Code::Retnq => {
                    return self.end(state.rule_at_return());
                }
                FlowControl::IndirectBranch => {
                    let end = state.rule_at_return();
                    return self.end(end.filter(|row| is_tail_call(&instruction, row)));
                }
                _ => return,
            };
        }
    }

    /// A path jumps. Where there is a table, it tells the rest.
    fn jump(&mut self, target: ImageAddress, state: SymbolicState) {
        match self.program.rule(target) {
            Some(row) => self.end(state.rule_via_table(&row)),
            None if self.pending.len() < PENDING_MAX => self.pending.push_back((target, state)),
            None => {}
        }
    }

    fn end(&mut self, row: Option<UnwindRule>) {
        if let Some(row) = row {
            if matches!(self.agreement, Agreement::None) {
                self.budget = self.budget.min(BUDGET_BEHIND);
            }
            self.agreement.add(row);
        }
    }
}

fn decode(code: &Bytes, at: ImageAddress) -> Option<Instruction> {
    let bytes = code.bytes.get(..code.length)?;
    let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether an indirect jump, where there is this rule, goes to another function, and is not a table
/// of jumps: by way of a pointer at a fixed place, or after registers were given back.
fn is_tail_call(jump: &Instruction, row: &UnwindRule) -> bool {
    let is_restored =
        |(_, saved): &(u16, RegisterRule)| matches!(saved, RegisterRule::AtCfaOffset(_));
    jump.is_ip_rel_memory_operand() || row.registers.iter().any(is_restored)
}

/// Whether a function begins at a place and is nothing but a jump to another: it is aligned, and
/// padding or another's end stands before it.
fn is_thunk(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    let jumps = decode(&program.code(at), at)
        .is_some_and(|instruction| instruction.flow_control() == FlowControl::IndirectBranch);
    let before = program.code(at.wrapping_sub(1));
    // The end of a long nop; nop; int3; ret.
    let is_end = before.length > 0 && matches!(before.bytes[0], 0x00 | 0x90 | 0xcc | 0xc3);
    jumps && is_end && at.0.is_multiple_of(FUNCTION_ALIGNMENT)
}

fn is_padding(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    decode(&program.code(at), at)
        .is_none_or(|padding| matches!(padding.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
}

/// Where a jump or a call goes, if the instruction tells.
fn target(instruction: &Instruction) -> Option<ImageAddress> {
    let is_near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| ImageAddress(instruction.near_branch_target()))
}

/// The call that ends where these bytes end, if one does.
pub(crate) fn call_before(bytes: &[u8]) -> Option<Call> {
    // The shortest is `call *%rax`; prefixes make none longer than 8 bytes.
    (2..=bytes.len().min(8)).find_map(|length| {
        let code = &bytes[bytes.len() - length..];
        let instruction = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
        match instruction.flow_control() {
            _ if instruction.is_invalid() || instruction.len() != length => None,
            FlowControl::IndirectCall => Some(Call::Indirect),
            FlowControl::Call => target(&instruction).map(|_| Call::Direct),
            _ => None,
        }
    })
}

/// Whether the code does nothing but end the thread, as where the function a thread was made for
/// returns to: there is nothing it could return to itself.
pub(crate) fn is_thread_exit(program: &mut impl CodeBytes, mut at: ImageAddress) -> bool {
    let mut rax = None;
    for _ in 0..EXIT_MAX {
        let Some(instruction) = decode(&program.code(at), at) else { return false };
        if instruction.mnemonic() == Mnemonic::Syscall {
            return rax == Some(SYS_EXIT);
        }
        if instruction.flow_control() != FlowControl::Next {
            return false;
        }
        rax = rax_after(rax, &instruction);
        at = ImageAddress(instruction.next_ip());
    }
    false
}

/// What is in rax after an instruction, as far as it is a small number.
fn rax_after(rax: Option<u64>, instruction: &Instruction) -> Option<u64> {
    use iced_x86::Register::{AL, EAX, RAX};
    let to = instruction.op0_register();
    if to.full_register() != RAX || instruction.op0_kind() != OpKind::Register {
        return rax;
    }
    let is_number = instruction.op1_kind() != OpKind::Register
        && instruction.try_immediate(1).is_ok_and(|number| number < 0x80);
    match (instruction.mnemonic(), to) {
        (Mnemonic::Xor, EAX | RAX) if instruction.op1_register() == to => Some(0),
        (Mnemonic::Mov, EAX | RAX) if is_number => instruction.try_immediate(1).ok(),
        (Mnemonic::Mov, AL) if is_number && rax == Some(0) => instruction.try_immediate(1).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
