//! One step of a walk: from the registers of a frame to those of its caller.

use gimli::{EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};
use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackCopy;

/// The most operations of one DWARF expression.
const OPERATIONS_MAX: u32 = 1000;

/// The caller's registers, and whether its instruction pointer is a return address; `None` at
/// the end of the stack.
pub(super) type Step = Result<Option<(Registers, bool)>, Mark>;

pub(super) fn step_by_row(registers: &Registers, stack: &StackCopy<'_>, row: &UnwindRule) -> Step {
    if row.is_end_of_stack() {
        return Ok(None);
    }
    let mut caller = caller_by_row(registers, stack, row)?;
    let cfa = cfa(registers, stack, row)?;
    let ip = restore(arch::IP, &row.return_address, cfa, row.signal, registers, stack)?;
    if ip == 0 {
        return Ok(None);
    }
    // The stack of an interrupted program may be anywhere, that of a caller is above; or just
    // there, where the return address is in a register (vfork in glibc).
    let (above, here) = (caller.get(arch::SP)?, registers.get(arch::SP)?);
    let advanced = above > here || above == here && ip != registers.get(arch::IP)?;
    if !row.signal && !advanced {
        return Err(Mark::Frame);
    }
    caller.set(arch::IP, ip);
    Ok(Some((caller, !row.signal)))
}

fn cfa(registers: &Registers, stack: &StackCopy<'_>, row: &UnwindRule) -> Result<u64, Mark> {
    match &row.cfa {
        Cfa::Register(register, offset) => {
            Ok(registers.get(*register)?.wrapping_add_signed(*offset))
        }
        Cfa::Expression(code) => evaluate(code, None, registers, stack),
    }
}

/// The caller's registers without the instruction pointer.
pub(super) fn caller_by_row(
    registers: &Registers,
    stack: &StackCopy<'_>,
    row: &UnwindRule,
) -> Result<Registers, Mark> {
    let cfa = cfa(registers, stack, row)?;
    let mut caller = Registers::default();
    for register in arch::PRESERVED {
        if let Ok(value) = registers.get(register) {
            caller.set(register, value);
        }
    }
    caller.set(arch::SP, cfa);
    for (register, saved) in &row.registers {
        match restore(*register, saved, cfa, row.signal, registers, stack) {
            Ok(value) => caller.set(*register, value),
            // Without the register the walk may well go on: most rules need the stack pointer
            // only.
            Err(_) if *register != arch::SP => caller.forget(*register),
            Err(mark) => return Err(mark),
        }
    }
    Ok(caller)
}

fn restore(
    register: u16,
    saved: &RegisterRule,
    cfa: u64,
    signal: bool,
    registers: &Registers,
    stack: &StackCopy<'_>,
) -> Result<u64, Mark> {
    match saved {
        RegisterRule::Undefined => Err(Mark::Frame),
        RegisterRule::SameValue => registers.get(register),
        RegisterRule::AtCfaOffset(offset) => stack.read(cfa.wrapping_add_signed(*offset)),
        RegisterRule::CfaPlus(offset) => Ok(cfa.wrapping_add_signed(*offset)),
        RegisterRule::Register(other) => registers.get(*other),
        RegisterRule::AtExpression(code) => {
            let slot = evaluate(code, Some(cfa), registers, stack)?;
            // In the epilogue of a realigned frame gcc's rule goes by a register that was popped
            // already, and so leads into the caller's frame, where only what a signal's frame
            // saved may be.
            if !signal && slot >= cfa {
                return Err(Mark::Frame);
            }
            stack.read(slot)
        }
        RegisterRule::ValueExpression(code) => evaluate(code, Some(cfa), registers, stack),
    }
}

/// What a DWARF expression gives, from an initial value on its stack.
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
        result = match result.map_err(|_| Mark::Frame)? {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register.0)?))
            }
            EvaluationResult::RequiresMemory { address, size, space: None, .. } => {
                let word = stack.read(address)?;
                let bits = u32::from(size.clamp(1, 8)) * 8;
                evaluation.resume_with_memory(Value::Generic(word & (u64::MAX >> (64 - bits))))
            }
            _ => return Err(Mark::Frame),
        };
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(&Location::Address { address }) => Ok(address),
        _ => Err(Mark::Frame),
    }
}

/// Leaves a signal handler by what the kernel saved on the stack before it called it.
pub(super) fn step_from_handler(registers: &Registers, stack: &StackCopy<'_>) -> Step {
    let sp = registers.get(arch::SP)?;
    let mut caller = Registers::default();
    for (register, offset) in arch::SIGNAL_SAVED {
        caller.set(register, stack.read(sp.wrapping_add_signed(offset))?);
    }
    Ok(Some((caller, false)))
}
