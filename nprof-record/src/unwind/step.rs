//! One step of a walk: from the registers of a frame to those of its caller.

use gimli::{EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};
use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::frame_state::FrameState;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackCopy;

/// The most operations of one DWARF expression: a loop in a damaged table must end.
const OPERATIONS_MAX: u32 = 1000;

/// The caller, or none at the end of the stack.
pub(super) type Step = Result<Option<FrameState>, Mark>;

/// Returns the caller by the rule of an unwind table.
#[inline]
pub(super) fn step_by_rule(
    registers: &Registers,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
) -> Step {
    // The table marks the outermost function by an undefined return address.
    if rule.is_end_of_stack() {
        return Ok(None);
    }
    let mut caller = caller_by_rule(registers, stack, rule)?;
    let cfa = cfa(registers, stack, rule)?;
    let ip = restore(arch::IP, &rule.return_address, cfa, rule.signal, registers, stack)?;
    // No function returns to 0: stacks that are set up by hand end so.
    if ip == 0 {
        return Ok(None);
    }
    caller.set(arch::IP, ip);
    // The stack of an interrupted program may be anywhere (sigaltstack(2)).
    let ip = RuntimeAddress(ip);
    if rule.signal {
        return Ok(Some(FrameState { registers: caller, address: FrameAddress::Instruction(ip) }));
    }
    // The stack of a caller is above; or in the same place if the return address is in a register
    // (vfork in glibc), but then the code differs. Anything else would loop.
    let (above, here) = (caller.get(arch::SP)?, registers.get(arch::SP)?);
    if above > here || above == here && ip.0 != registers.get(arch::IP)? {
        Ok(Some(FrameState { registers: caller, address: FrameAddress::Return(ip) }))
    } else {
        Err(Mark::UnwindFailed)
    }
}

#[inline]
fn cfa(registers: &Registers, stack: &StackCopy<'_>, rule: &UnwindRule) -> Result<u64, Mark> {
    match &rule.cfa {
        Cfa::Register(register, offset) => {
            Ok(registers.get(*register)?.wrapping_add_signed(*offset))
        }
        Cfa::Expression(expression) => evaluate(expression, None, registers, stack),
    }
}

/// Returns the registers of the caller, except for the instruction pointer.
#[inline]
pub(super) fn caller_by_rule(
    registers: &Registers,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
) -> Result<Registers, Mark> {
    let cfa = cfa(registers, stack, rule)?;
    let mut caller = Registers::default();
    for register in arch::PRESERVED {
        if let Ok(value) = registers.get(register) {
            caller.set(register, value);
        }
    }
    caller.set(arch::SP, cfa);
    for (register, saved) in &rule.registers {
        match restore(*register, saved, cfa, rule.signal, registers, stack) {
            Ok(value) => caller.set(*register, value),
            // Most rules only need the stack pointer, so the walk may succeed without another
            // register.
            Err(_) if *register != arch::SP => caller.forget(*register),
            Err(mark) => return Err(mark),
        }
    }
    Ok(caller)
}

/// Returns the value of a register in the caller.
#[inline]
fn restore(
    register: u16,
    saved: &RegisterRule,
    cfa: u64,
    signal: bool,
    registers: &Registers,
    stack: &StackCopy<'_>,
) -> Result<u64, Mark> {
    match saved {
        RegisterRule::Undefined => Err(Mark::UnwindFailed),
        RegisterRule::SameValue => registers.get(register),
        RegisterRule::AtCfaOffset(offset) => stack.read(cfa.wrapping_add_signed(*offset)),
        RegisterRule::CfaPlus(offset) => Ok(cfa.wrapping_add_signed(*offset)),
        RegisterRule::Register(other) => registers.get(*other),
        RegisterRule::AtExpression(code) => {
            let slot = evaluate(code, Some(cfa), registers, stack)?;
            // In the epilogue of a realigned frame, gcc's expression uses a register that was
            // popped already, and so leads into the frame of the caller. Only the kernel's signal
            // frame saves registers there.
            if !signal && slot >= cfa {
                return Err(Mark::UnwindFailed);
            }
            stack.read(slot)
        }
        RegisterRule::ValueExpression(code) => evaluate(code, Some(cfa), registers, stack),
    }
}

/// Evaluates a DWARF expression, with an initial value on its stack.
fn evaluate(
    code: &Expression,
    initial: Option<u64>,
    registers: &Registers,
    stack: &StackCopy<'_>,
) -> Result<u64, Mark> {
    let slice = EndianSlice::new(&code.code, LittleEndian);
    let mut evaluation = Evaluation::new(slice, code.encoding);
    evaluation.set_max_iterations(OPERATIONS_MAX);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate();
    loop {
        result = match result.map_err(|_| Mark::UnwindFailed)? {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register.0)?))
            }
            EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                let word = stack.read(address)?;
                let bits = u32::from(size.clamp(1, 8)) * 8;
                evaluation.resume_with_memory(Value::Generic(word & (u64::MAX >> (64 - bits))))
            }
            _ => return Err(Mark::UnwindFailed),
        };
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(&Location::Address { address }) => Ok(address),
        _ => Err(Mark::UnwindFailed),
    }
}

/// Returns the frame that a signal interrupted, by the registers that the kernel saved on the stack
/// before it called the handler.
pub(super) fn step_from_handler(registers: &Registers, stack: &StackCopy<'_>) -> Step {
    let sp = registers.get(arch::SP)?;
    let mut caller = Registers::default();
    for (register, offset) in arch::SIGNAL_SAVED {
        caller.set(register, stack.read(sp.wrapping_add_signed(offset))?);
    }
    FrameState::interrupted(caller).map(Some)
}
