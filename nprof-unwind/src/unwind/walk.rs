//! From the registers and the copied stack of a sample to its chain of return addresses. Pure: the
//! unwind information comes from a [`CodeMap`].
//!
//! Every step that fails gives its reason, because a stack that was cut short must never pass for a
//! complete one. A stack is complete if its last frame has no caller: its unwind table says so, or it
//! is a function at which the program or a thread starts, or its return address is 0 and tables
//! alone lead there. Addresses that no table covers are handled by [`crate::unwind::no_table`].
//!
//! Tables of code that is written by hand may be wrong: one of LuaJIT's covers its whole interpreter, also
//! functions in it that have another frame. An address that no call precedes, or 0, is therefore compared
//! with the code of the function that returns there.

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch::Architecture;
use crate::arch::rule::{Cfa, UnwindRule};
use crate::arch::stack::RETURN_ADDRESS_BELOW_CFA;
use crate::unwind::certainty::Certainty;
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::frame_state::FrameState;
use crate::unwind::frame_visitor::FrameVisitor;
use crate::unwind::no_table;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::{StackCopy, is_outside_copy};
use crate::unwind::step::{
    Caller, Step, caller_by_rule, step_by_frame_record, step_by_rule, step_from_handler,
};

/// Walks a stack outwards from a frame and appends the addresses found, at most `depth` of them.
///
/// Returns the reason why there are no more: [`Mark::None`] if the stack is complete,
/// [`Mark::StackTruncated`] if the visitor stopped the walk.
pub fn unwind<A: Architecture>(
    frame: FrameState<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    visitor: &mut impl FrameVisitor<A>,
) -> Mark {
    let FrameState { mut registers, mut address } = frame;
    let mut caller = Registers::default();
    let mut certainty = Certainty::Tables;
    // The last frame to which no table led, and the number of addresses before it.
    let first = addresses.len();
    let mut start = (frame, first);
    // True if a table led to the frame, and if the visitor is to see it.
    let (mut is_by_table, mut is_new) = (false, false);
    loop {
        if addresses.len() < depth
            && let Some(rule) = code.compact_rule(address)
        {
            if std::mem::take(&mut is_new) && visitor.visit(&registers, addresses.len()) {
                return Mark::StackTruncated;
            }
            is_by_table = false;
            if let Some(return_address) = rule.step(&mut registers, stack) {
                addresses.push(address);
                address = FrameAddress::Return(return_address);
                (is_by_table, is_new) = (true, certainty == Certainty::Tables);
                continue;
            }
        }
        let mut info = code.unwind_info(address.address_for_lookup());
        if std::mem::take(&mut is_by_table)
            && certainty != Certainty::Guessed
            && address.is_return()
            && code.is_after_call(address.value()) == Some(false)
            && !is_signal_return(&info)
            && let Some(found) =
                step_by_code_after(start.0, addresses.len() - start.1 - 1, stack, code, &mut caller)
        {
            (registers, address, is_new) = (caller, found, false);
            certainty = certainty.min(Certainty::Analyzed);
            start = (FrameState { registers, address }, addresses.len());
            info = code.unwind_info(address.address_for_lookup());
        }
        // Other frames may be wrong, so they are not visited: visitors watch frames.
        if std::mem::take(&mut is_new) && visitor.visit(&registers, addresses.len()) {
            return Mark::StackTruncated;
        }
        if info == UnwindInfo::Unmapped {
            // Address 0 has no frame of its own.
            let Some(found) =
                no_table::step_from_null(&registers, address, stack, code, &mut caller)
            else {
                return Mark::Unmapped;
            };
            (registers, address) = (caller, found);
            certainty = certainty.min(Certainty::Analyzed);
            start = (FrameState { registers, address }, addresses.len());
            continue;
        }
        if addresses.len() >= depth {
            return Mark::MaxDepth;
        }
        // No call precedes the code that signal handlers return to.
        if is_signal_return(&info) {
            address = FrameAddress::Instruction(address.value());
        }
        addresses.push(address);
        let is_rule = matches!(&info, UnwindInfo::Rule(rule) if !is_unknown(rule, &registers));
        let is_first_caller = addresses.len() == first + 2;
        let mut step = match &info {
            UnwindInfo::Rule(rule) if !is_rule && is_first_caller => {
                let kept =
                    step_by_kept(&frame.registers, &registers, stack, rule, code, &mut caller);
                certainty = kept.map_or(certainty, |_| certainty.min(Certainty::Analyzed));
                kept.map(|found| Ok(Caller::At(found)))
            }
            _ => None,
        }
        .unwrap_or_else(|| {
            step(&registers, address, stack, &info, code, &mut caller, &mut certainty)
        });
        if step == Ok(Caller::Zero)
            && is_rule
            && !is_signal_return(&info)
            && certainty != Certainty::Guessed
            && let Some(found) =
                no_table::step_by_own_code(&registers, address, stack, code, &mut caller)
        {
            certainty = certainty.min(Certainty::Analyzed);
            step = Ok(Caller::At(found));
        }
        let caller_address = match step {
            Ok(Caller::At(caller_address)) => caller_address,
            // The signal of a call through a null pointer.
            Ok(Caller::Zero) if is_signal_return(&info) => {
                FrameAddress::Instruction(RuntimeAddress(0))
            }
            Ok(end) => {
                if end == Caller::Bottom
                    && let Some(last) = addresses.last_mut()
                {
                    *last = FrameAddress::Instruction(address.value());
                }
                return mark_of_end(end, certainty);
            }
            Err(mark) => {
                if is_outside_copy(mark) && certainty == Certainty::Tables {
                    visit_last(&registers, stack, &info, addresses.len(), visitor);
                }
                return mark;
            }
        };
        is_by_table = is_rule && certainty != Certainty::Guessed;
        is_new = certainty == Certainty::Tables && rule_of_call(&info).is_some();
        (registers, address) = (caller, caller_address);
        if !is_by_table {
            start = (FrameState { registers, address }, addresses.len());
        }
    }
}

/// Finds the caller of the frame that has called the interrupted function, by a register that functions need
/// not preserve. Code that is written by hand does so where its callee leaves the register alone, as that of
/// AES-GCM in OpenSSL, which finds its frame by rax. None if the rule needs no such register, or no call ends at
/// the address that is found.
fn step_by_kept<A: Architecture>(
    interrupted: &Registers<A>,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    rule: &UnwindRule,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    let Cfa::Register(register, _) = rule.cfa else { return None };
    if register == A::SP || A::PRESERVED.contains(&register) {
        return None;
    }
    let mut registers = *registers;
    registers.set(register, interrupted.get(register).ok()?);
    let step = step_by_rule(&registers, stack, rule, caller);
    let Ok(Caller::At(found)) = step else { return None };
    (code.is_after_call(found.value()) == Some(true)).then_some(found)
}

/// Returns the mark of a stack that ends with a frame without a caller.
fn mark_of_end(end: Caller, certainty: Certainty) -> Mark {
    let is_complete = match end {
        Caller::Zero => certainty == Certainty::Tables,
        _ => certainty != Certainty::Guessed,
    };
    if is_complete { Mark::None } else { Mark::NoUnwindInfo }
}

/// Finds the caller of the frame to which a number of steps by tables lead, by the code of its function.
fn step_by_code_after<A: Architecture>(
    frame: FrameState<A>,
    steps: usize,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    let frame = frame_after(frame, steps, stack, code)?;
    no_table::step_by_own_code(&frame.registers, frame.address, stack, code, caller)
}

/// Returns the frame to which a number of steps lead, all by tables. None if they do not.
fn frame_after<A: Architecture>(
    frame: FrameState<A>,
    steps: usize,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
) -> Option<FrameState<A>> {
    let FrameState { mut registers, mut address } = frame;
    let mut caller = Registers::default();
    for _ in 0..steps {
        let info = code.unwind_info(address.address_for_lookup());
        let UnwindInfo::Rule(rule) = info else { return None };
        let step = step_by_rule(&registers, stack, &rule, &mut caller);
        let Ok(Caller::At(caller_address)) = step else { return None };
        (registers, address) = (caller, caller_address);
    }
    Some(FrameState { registers, address })
}

/// True if signal handlers return to this code.
#[inline]
fn is_signal_return(info: &UnwindInfo) -> bool {
    match info {
        UnwindInfo::Rule(rule) => rule.signal,
        info => *info == UnwindInfo::SignalReturn,
    }
}

/// Returns the rule of a frame that was called: its return address lies in the word below its CFA.
#[inline]
fn rule_of_call(info: &UnwindInfo) -> Option<&UnwindRule> {
    let UnwindInfo::Rule(rule) = info else { return None };
    (!rule.signal && rule.return_address == RETURN_ADDRESS_BELOW_CFA).then_some(rule)
}

/// True if the frame lies at a distance from a register of which the value is unknown.
#[inline]
fn is_unknown<A: Architecture>(rule: &UnwindRule, registers: &Registers<A>) -> bool {
    // The outermost frame needs none.
    !rule.is_end_of_stack()
        && matches!(&rule.cfa, Cfa::Register(register, _) if registers.get(*register).is_err())
}

/// Visits the last frame of the copy: its CFA is known, its return address lies outside.
fn visit_last<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    info: &UnwindInfo,
    frames: usize,
    visitor: &mut impl FrameVisitor<A>,
) {
    let mut caller = Registers::default();
    if let Some(rule) = rule_of_call(info)
        && caller_by_rule(registers, stack, rule, &mut caller).is_ok()
        && caller.get(A::SP) > registers.get(A::SP)
    {
        visitor.visit(&caller, frames);
    }
}

#[inline]
fn step<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    info: &UnwindInfo,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
    certainty: &mut Certainty,
) -> Step {
    match info {
        // The frame pointer of a thread that waits in a system call is unknown, until a function on
        // its stack has saved it. The code shows the distance of the stack pointer from the frame.
        UnwindInfo::Rule(rule) if is_unknown(rule, registers) => {
            if let Some(step) = step_by_frame_record(registers, stack, rule, caller) {
                *certainty = Certainty::Guessed;
                return step;
            }
            *certainty = (*certainty).min(Certainty::Analyzed);
            let found = no_table::step_by_code(registers, address, stack, code, caller);
            found.ok_or(Mark::UnwindFailed)
        }
        UnwindInfo::Rule(rule) => step_by_rule(registers, stack, rule, caller).or_else(|mark| {
            let is_interrupted = matches!(address, FrameAddress::Instruction(_));
            let found = is_interrupted
                .then(|| no_table::step_without_link(registers, stack, code, caller))
                .flatten();
            *certainty = found.as_ref().map_or(*certainty, |_| Certainty::Guessed);
            found.map(Caller::At).ok_or(mark)
        }),
        UnwindInfo::Entry => Ok(Caller::None),
        UnwindInfo::SignalReturn => step_from_handler(registers, stack, caller),
        UnwindInfo::NoTable | UnwindInfo::Unmapped => {
            no_table::step(registers, address, stack, code, caller, certainty)
        }
    }
}

#[cfg(test)]
mod aarch64_tests;
#[cfg(test)]
mod tests;
