//! One step of a walk: from the registers of a frame to those of its caller.

use gimli::{EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};
use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch::Architecture;
use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};
use crate::arch::stack::FRAME_RECORD_RETURN_ADDRESS;
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackCopy;

/// The most operations of one DWARF expression: a loop in a damaged table must end.
const OPERATIONS_MAX: u32 = 1000;

/// The caller of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// It was executing this address.
    At(FrameAddress),
    /// There is none: the frame is that of the function at which the program or a thread starts.
    None,
    /// There is none, and no call led to the frame: its address was put at the end of a new stack.
    Bottom,
    /// The return address is 0. Stacks that are set up by hand end so, but a walk that went wrong
    /// finds zeros, too.
    Zero,
}

/// The caller, or the reason why it was not found. Steps write the registers of the caller to a
/// parameter: returned by value they are copied several times, which takes a third of the time of a
/// walk.
pub(super) type Step = Result<Caller, Mark>;

/// Finds the caller by the rule of an unwind table.
#[inline]
pub(super) fn step_by_rule<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
    caller: &mut Registers<A>,
) -> Step {
    // The table marks the outermost function by an undefined return address.
    if rule.is_end_of_stack() {
        return Ok(Caller::None);
    }
    let cfa = caller_by_rule(registers, stack, rule, caller)?;
    let ip = match &rule.return_address {
        RegisterRule::AtCfaOffset(offset) => stack.read(cfa.wrapping_add_signed(*offset))?,
        saved => restore(A::IP, saved, cfa, rule.signal, registers, stack)?,
    };
    let ip = A::code_address(ip);
    if ip == 0 {
        return Ok(Caller::Zero);
    }
    caller.set(A::IP, ip);
    // The stack of an interrupted program may be anywhere (sigaltstack(2)).
    if rule.signal {
        return Ok(Caller::At(FrameAddress::Instruction(RuntimeAddress(ip))));
    }
    // The stack of a caller is above; or in the same place if the return address is in a register
    // (vfork in glibc), but then the code differs. Anything else would loop.
    let (above, here) = (caller.get(A::SP)?, registers.get(A::SP)?);
    if above > here || above == here && ip != registers.get(A::IP)? {
        Ok(Caller::At(FrameAddress::Return(RuntimeAddress(ip))))
    } else {
        Err(Mark::UnwindFailed)
    }
}

/// Finds the caller of a frame of which the stack pointer is unknown: functions that save the frame pointer
/// next to the return address set it to this place, unless they were compiled without frame pointers. None
/// if the rule does not have this form.
pub(super) fn step_by_frame_record<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
    caller: &mut Registers<A>,
) -> Option<Step> {
    A::LINK?;
    let fp = registers.get(A::FP).ok()?;
    let is_fp = |(register, _): &&(u16, RegisterRule)| *register == A::FP;
    let saved = rule.registers.iter().find(is_fp).map(|(_, place)| place);
    let (Some(RegisterRule::AtCfaOffset(record)), RegisterRule::AtCfaOffset(return_address)) =
        (saved, &rule.return_address)
    else {
        return None;
    };
    if record.checked_add(FRAME_RECORD_RETURN_ADDRESS as i64) != Some(*return_address) {
        return None;
    }
    let mut registers = *registers;
    // At most: enough to see that the caller is above.
    registers.set(A::SP, fp);
    let rule = UnwindRule { cfa: Cfa::Register(A::FP, record.checked_neg()?), ..rule.clone() };
    Some(step_by_rule(&registers, stack, &rule, caller))
}

#[inline]
fn cfa<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
) -> Result<u64, Mark> {
    match &rule.cfa {
        Cfa::Register(register, offset) => {
            Ok(registers.get(*register)?.wrapping_add_signed(*offset))
        }
        Cfa::Expression(expression) => evaluate(expression, None, registers, stack),
    }
}

/// Finds the registers of the caller, except for the instruction pointer. Returns the CFA.
#[inline]
pub(super) fn caller_by_rule<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
    caller: &mut Registers<A>,
) -> Result<u64, Mark> {
    let cfa = cfa(registers, stack, rule)?;
    *caller = Registers::default();
    for &register in A::PRESERVED {
        if let Ok(value) = registers.get(register) {
            caller.set(register, value);
        }
    }
    caller.set(A::SP, cfa);
    for (register, saved) in &rule.registers {
        let value = match saved {
            // Nearly all rules, without the call.
            RegisterRule::AtCfaOffset(offset) => stack.read(cfa.wrapping_add_signed(*offset)),
            saved => restore(*register, saved, cfa, rule.signal, registers, stack),
        };
        match value {
            Ok(value) => caller.set(*register, value),
            // Most rules only need the stack pointer, so the walk may succeed without another
            // register.
            Err(_) if *register != A::SP => caller.forget(*register),
            Err(mark) => return Err(mark),
        }
    }
    Ok(cfa)
}

/// Returns the value of a register in the caller.
fn restore<A: Architecture>(
    register: u16,
    saved: &RegisterRule,
    cfa: u64,
    signal: bool,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
) -> Result<u64, Mark> {
    match saved {
        RegisterRule::Undefined => Err(Mark::UnwindFailed),
        RegisterRule::OnOtherStack => Err(Mark::OtherStack),
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
fn evaluate<A: Architecture>(
    code: &Expression,
    initial: Option<u64>,
    registers: &Registers<A>,
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

/// Finds the frame that a signal interrupted, by the registers that the kernel saved on the stack
/// before it called the handler.
pub(super) fn step_from_handler<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    caller: &mut Registers<A>,
) -> Step {
    let sp = registers.get(A::SP)?;
    *caller = Registers::default();
    for &(register, offset) in A::SIGNAL_SAVED {
        caller.set(register, stack.read(sp.wrapping_add_signed(offset))?);
    }
    Ok(Caller::At(FrameAddress::Instruction(RuntimeAddress(caller.get(A::IP)?))))
}
