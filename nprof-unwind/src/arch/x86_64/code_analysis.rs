//! Code analysis: finds an unwind rule from the instructions, for code that no unwind table covers,
//! as csprof and HPCToolkit do. The changes to the stack pointer before a function returns show the
//! place of its return address. Pure.
//!
//! The analysis follows the code forward from the address of the frame, along every jump with a known
//! target, until it returns or jumps into another function. All ends must agree on the place of the
//! return address; a register on which they disagree is lost. A path that cannot be followed, such as
//! a jump table, ends without a result.
//!
//! Every call is assumed to return. If a call never returns, the bytes after it are another function.
//! That function's return seems to pop the return address from the wrong place, one where no function
//! has it; the analysis discards such an end.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind};
use nprof_object::ImageAddress;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::arch::agreement::Agreement;
use crate::arch::code_bytes::{Call, CodeBytes};
use crate::arch::rule::{AnalyzedRule, RegisterRule, UnwindRule};
use crate::arch::x86_64::registers::PRESERVED;

use crate::arch::x86_64::code_state::{SymbolicState, decode};
use crate::arch::x86_64::generated_code::{rule_in_prologue, rule_of_fixed_frame};

/// The most instructions followed for one rule, and after its first end: further ends can only
/// contradict it.
const BUDGET: u32 = 1024;
const BUDGET_AFTER_END: u32 = 256;
/// The same for code generated at run time.
const BUDGET_GENERATED: u32 = 128;

/// Jumps that are longer lead from code generated at run time to stubs: those of HotSpot take the frame
/// of their caller apart in their own way.
const FUNCTION_MAX_BYTES_GENERATED: u64 = 64 << 10;

/// The most instructions followed from the start of a function to a place in it.
const BUDGET_SINCE_ENTRY: u32 = 8192;

/// The code before an address that is searched for the start of its function, and the most starts
/// that are tried.
const PROLOGUE_SEARCH_BYTES: u64 = 8192;
const PROLOGUES_MAX: usize = 32;

/// The most instructions of code that may never return.
const NO_RETURN_MAX: u32 = 64;

/// The most paths that wait to be followed; more are dropped.
const PENDING_MAX: usize = 512;

/// Bytes of a direct call (`e8`), and of the longest call without prefixes (`ff /2` with an SIB byte and four
/// bytes of displacement).
const CALL_BYTES: u64 = 5;
pub(crate) const CALL_MAX_BYTES: usize = 7;

/// The alignment of functions by compilers.
const FUNCTION_ALIGNMENT: u64 = 16;

/// The most instructions from the return of a thread's function to the exit system call.
const EXIT_MAX: u32 = 8;

/// The number of exit(2), which ends a thread (arch/x86/entry/syscalls).
const SYS_EXIT: u64 = 60;

/// Returns the unwind rule for an address that no table covers. None if the code does not yield one.
/// With `returns` the address is a return address.
pub(crate) fn rule(
    program: &mut impl CodeBytes,
    start: ImageAddress,
    returns: bool,
) -> Option<UnwindRule> {
    let state = SymbolicState::new(returns, program.keeps_frame_pointer_only());
    let budget = if program.is_generated() { BUDGET_GENERATED } else { BUDGET };
    let mut paths = PathSearch {
        program,
        factory: InstructionInfoFactory::new(),
        pending: VecDeque::from([(start, state)]),
        visited: FxHashSet::default(),
        doubtful: VecDeque::new(),
        budget,
        agreement: Agreement::None,
        goal: None,
        is_covered: false,
    };
    paths.follow_all();
    if matches!(paths.agreement, Agreement::None) {
        paths.pending = std::mem::take(&mut paths.doubtful);
        paths.follow_all();
    }
    let agreement = paths.agreement;
    match agreement {
        Agreement::Rule(row) => Some(row),
        Agreement::None if !returns && is_thunk(program, start) => {
            SymbolicState::new(false, false).rule_at_return()
        }
        _ if program.is_generated() => {
            let in_prologue = if returns { None } else { rule_in_prologue(program, start) };
            in_prologue.or_else(|| rule_of_fixed_frame(program, start))
        }
        _ => None,
    }
}

/// Returns the unwind rule at an address, by the code from the start of its function to there. None
/// if that code does not lead there.
pub(crate) fn rule_since_entry(
    program: &mut impl CodeBytes,
    entry: ImageAddress,
    at: ImageAddress,
) -> Option<UnwindRule> {
    let state = SymbolicState::new(false, program.keeps_frame_pointer_only());
    let is_covered = program.rule(at).is_some();
    let mut paths = PathSearch {
        program,
        factory: InstructionInfoFactory::new(),
        pending: VecDeque::from([(entry, state)]),
        visited: FxHashSet::default(),
        doubtful: VecDeque::new(),
        budget: BUDGET_SINCE_ENTRY,
        agreement: Agreement::None,
        goal: Some(at),
        is_covered,
    };
    paths.follow_all();
    match paths.agreement {
        Agreement::Rule(row) => Some(row),
        _ => None,
    }
}

/// Returns the unwind rules at an address by the code before it: one for each place that may be the
/// start of its function, the last one after int3 first, then the nearest.
pub(crate) fn rules_since_prologues(
    program: &mut impl CodeBytes,
    at: ImageAddress,
) -> Vec<UnwindRule> {
    let mut starts = Vec::new();
    let first = at.wrapping_sub(PROLOGUE_SEARCH_BYTES.min(at.0));
    let mut next = first;
    // V8 fills the space between its builtins with int3, and aligns targets of jumps inside of them
    // without it. So the last start directly after int3 is that of the builtin; nearer starts are inside.
    // Linkers fill with int3, too, and the other starts are tried after it.
    let mut after_int3 = None;
    let mut is_int3 = false;
    let mut is_end = true;
    // An instruction at the end of the address space leads to its start.
    while (first..at).contains(&next) {
        let code = program.code(next);
        // Linkers fill the space between two sections with zeros.
        if is_end && code.length > 0 && code.bytes[0] == 0 {
            next = next.wrapping_add(1);
            continue;
        }
        // Decoding that begins inside of an instruction meets the true instructions soon.
        let Some(instruction) = decode(&code, next) else {
            next = next.wrapping_add(1);
            continue;
        };
        let is_padding =
            matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt);
        let is_aligned = next.0.is_multiple_of(FUNCTION_ALIGNMENT);
        if is_end && !is_padding && (is_aligned || is_prologue(&instruction)) {
            starts.push(next);
            after_int3 = if is_int3 { Some(next) } else { after_int3 };
        }
        is_int3 = instruction.mnemonic() == Mnemonic::Int3;
        is_end = is_padding && is_end
            || !matches!(
                instruction.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            );
        next = ImageAddress(instruction.next_ip());
    }
    let mut rules = Vec::new();
    let nearest = starts.into_iter().rev().filter(|&start| Some(start) != after_int3);
    for start in after_int3.into_iter().chain(nearest.take(PROLOGUES_MAX)) {
        rules.extend(rule_since_entry(program, start, at));
    }
    rules
}

/// True if a function that is not aligned may begin with this instruction.
fn is_prologue(instruction: &Instruction) -> bool {
    use iced_x86::Register::RSP;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Endbr64 => true,
        Mnemonic::Sub => instruction.op0_register() == RSP,
        Mnemonic::Lea => instruction.memory_base() == RSP,
        _ => false,
    }
}

/// The search along all paths.
struct PathSearch<'a, T> {
    program: &'a mut T,
    factory: InstructionInfoFactory,
    /// The addresses and states at which paths continue.
    pending: VecDeque<(ImageAddress, SymbolicState)>,
    /// The same after calls that may never return, since padding follows them.
    doubtful: VecDeque<(ImageAddress, SymbolicState)>,
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

impl<T: CodeBytes> PathSearch<'_, T> {
    /// Follows all pending paths, breadth first.
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
            if self.goal == Some(at) {
                return self.end(state.rule_since_entry());
            }
            if !self.visited.insert((at, FxBuildHasher.hash_one(state.key()))) {
                return;
            }
            if let Some(known) = self.program.known(at).filter(|_| self.goal.is_none()) {
                let AnalyzedRule::Rule(row) = known else { return };
                if state.can_end_by(&row) {
                    return self.end(state.rule_via_table(&row));
                }
            }
            let Some(instruction) = decode(&self.program.code(at), at) else { return };
            let next = ImageAddress(instruction.next_ip());
            at = match instruction.flow_control() {
                // `hlt` traps in user code; it follows calls that never return.
                FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => return,
                FlowControl::Next => {
                    state.execute(&instruction, &mut self.factory);
                    next
                }
                // The kernel changes only rax, rcx and r11.
                FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => {
                    state.execute(&instruction, &mut self.factory);
                    next
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    state.call();
                    // `call` of the next instruction only reads the instruction pointer. Code
                    // after the call that a table covers is another function, unless one covers
                    // all of it.
                    let is_end = target(&instruction) == Some(next);
                    if is_end || !self.is_covered && self.program.rule(next).is_some() {
                        return;
                    }
                    if self.goal != Some(next) && is_padding(self.program, next) {
                        return self.doubtful.push_back((next, state));
                    }
                    next
                }
                FlowControl::ConditionalBranch => {
                    let is_taken = state.is_taken(&instruction);
                    if let Some(target) = target(&instruction).filter(|_| is_taken != Some(false)) {
                        self.jump(target, at, state.clone());
                    }
                    if is_taken == Some(true) {
                        return;
                    }
                    next
                }
                FlowControl::UnconditionalBranch => {
                    let Some(target) = target(&instruction) else { return };
                    return self.jump(target, at, state);
                }
                _ if self.goal.is_some() => return,
                FlowControl::Return if instruction.code() == iced_x86::Code::Retnq => {
                    return self.end(state.rule_at_return());
                }
                FlowControl::IndirectBranch => {
                    let returns = state.rule_at_jump(&instruction);
                    if returns.is_some() && self.program.is_generated() {
                        return self.end(returns);
                    }
                    let end = state.rule_at_return();
                    let is_generated = self.program.is_generated();
                    let is_end = |row: &UnwindRule| is_tail_call(&instruction, row, is_generated);
                    return self.end(end.filter(is_end));
                }
                _ => return,
            };
        }
    }

    /// Continues a path at a jump target, by its unwind table if it has one.
    fn jump(&mut self, target: ImageAddress, from: ImageAddress, state: SymbolicState) {
        let distance = target.0.abs_diff(from.0);
        if self.program.is_generated() && distance > FUNCTION_MAX_BYTES_GENERATED {
            return;
        }
        match self.program.rule(target).filter(|_| !self.is_covered) {
            Some(_) if self.goal.is_some() => {}
            Some(row) => self.end(state.rule_via_table(&row)),
            None if self.pending.len() < PENDING_MAX => self.pending.push_back((target, state)),
            None => {}
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

/// True if an indirect jump in a place with this rule is a tail call and not a jump table: it goes
/// through a pointer at a fixed address, or registers were restored before it. Stubs generated at run
/// time for virtual calls jump through a pointer in an object; tables have an index.
fn is_tail_call(jump: &Instruction, row: &UnwindRule, is_generated: bool) -> bool {
    let is_restored = |(_, saved): &(u16, RegisterRule)| {
        matches!(saved, RegisterRule::AtCfaOffset(_) | RegisterRule::AtExpression(_))
    };
    let is_virtual = is_generated
        && jump.op0_kind() == OpKind::Memory
        && jump.memory_base() != iced_x86::Register::None
        && jump.memory_index() == iced_x86::Register::None;
    jump.is_ip_rel_memory_operand() || is_virtual || row.registers.iter().any(is_restored)
}

/// True if a function starts at an address and is only a jump to another: it is aligned, and padding
/// or the end of another function precedes it.
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

/// Returns the target of a direct jump or call.
fn target(instruction: &Instruction) -> Option<ImageAddress> {
    let is_near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| ImageAddress(instruction.near_branch_target()))
}

/// Returns the target of the direct call that ends at an address. None if there is none.
pub(crate) fn call_target(
    program: &mut impl CodeBytes,
    call_end: ImageAddress,
) -> Option<ImageAddress> {
    let at = call_end.wrapping_sub(CALL_BYTES);
    let call = decode(&program.code(at), at)?;
    let is_call = call.flow_control() == FlowControl::Call && call.next_ip() == call_end.0;
    target(&call).filter(|_| is_call)
}

/// True if all paths from an address end in a call that never returns: padding or a trap follows it.
pub(crate) fn never_returns(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    let mut pending = vec![at];
    let mut visited = FxHashSet::default();
    while let Some(at) = pending.pop() {
        if !visited.insert(at) {
            continue;
        }
        let Some(instruction) = decode(&program.code(at), at) else { return false };
        let next = ImageAddress(instruction.next_ip());
        let is_call =
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        match instruction.flow_control() {
            _ if visited.len() > NO_RETURN_MAX as usize => return false,
            FlowControl::Next => pending.push(next),
            _ if instruction.mnemonic() == Mnemonic::Syscall => pending.push(next),
            _ if is_call && is_trap_or_padding(program, next) => {}
            _ if is_call => pending.push(next),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                let Some(target) = target(&instruction) else { return false };
                pending.push(target);
                if instruction.flow_control() == FlowControl::ConditionalBranch {
                    pending.push(next);
                }
            }
            _ => return false,
        }
    }
    true
}

/// True if the code after a call shows that the call never returns.
fn is_trap_or_padding(program: &mut impl CodeBytes, at: ImageAddress) -> bool {
    is_padding(program, at)
        || decode(&program.code(at), at).is_some_and(|instruction| {
            matches!(instruction.mnemonic(), Mnemonic::Hlt | Mnemonic::Ud2)
        })
}

/// Returns the call that ends at the end of these bytes. Prefixes change no length, so a call is one
/// without them too. Not decoded: every stack needs this, and the decoder builds its tables first, which
/// takes a millisecond.
pub(crate) fn call_before(bytes: &[u8]) -> Option<Call> {
    (2..=bytes.len().min(CALL_MAX_BYTES)).find_map(|length| match bytes[bytes.len() - length..] {
        [0xe8, ..] if length as u64 == CALL_BYTES => Some(Call::Direct),
        [0xff, modrm, ref rest @ ..] if length == indirect_call_bytes(modrm, rest) => {
            Some(Call::Indirect)
        }
        _ => None,
    })
}

/// Returns the bytes of a call (`ff /2`) with a ModRM byte and what follows it; 0 if it is no call. Intel SDM,
/// volume 2, 2.1.5, tables 2-2 and 2-3.
fn indirect_call_bytes(modrm: u8, rest: &[u8]) -> usize {
    let (mode, operation, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    if operation != 2 {
        return 0;
    }
    // In memory, base 4 stands for an SIB byte, which names the base then.
    let has_sib = mode != 3 && base == 4;
    let base = if has_sib { rest.first().map_or(base, |sib| sib & 7) } else { base };
    let displacement = match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    2 + usize::from(has_sib) + displacement
}

/// True if the code does nothing but end the thread. The start function of a thread returns to such
/// code, which has no caller.
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

/// Returns the value of rax after an instruction, if it is a small constant.
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
