//! From the registers and the copied stack of a sample to its chain of return addresses. Pure: the
//! unwind information comes from a [`CodeMap`].
//!
//! Every step that fails gives its reason, because a stack that was cut short must never pass for a
//! complete one. A stack is complete if its last frame has no caller: its unwind table says so, or it
//! is a function at which the program or a thread starts, or its return address is 0 and tables
//! alone lead there. Addresses that no table covers are handled by [`crate::unwind::no_table`].

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
    loop {
        if addresses.len() < depth
            && let Some(rule) = code.compact_rule(address.address_for_lookup())
            && let Some(return_address) = rule.step(&mut registers, stack)
        {
            addresses.push(address);
            if certainty == Certainty::Tables && visitor.visit(&registers, addresses.len()) {
                return Mark::StackTruncated;
            }
            address = FrameAddress::Return(return_address);
            continue;
        }
        let info = code.unwind_info(address.address_for_lookup());
        if info == UnwindInfo::Unmapped {
            return Mark::Unmapped;
        }
        if addresses.len() >= depth {
            return Mark::MaxDepth;
        }
        // No call precedes the code that signal handlers return to.
        if is_signal_return(&info) {
            address = FrameAddress::Instruction(address.value());
        }
        addresses.push(address);
        let step = step(&registers, address, stack, &info, code, &mut caller, &mut certainty);
        let caller_address = match step {
            Ok(Caller::At(caller_address)) => caller_address,
            Ok(Caller::None | Caller::Bottom) => {
                if step == Ok(Caller::Bottom)
                    && let Some(last) = addresses.last_mut()
                {
                    *last = FrameAddress::Instruction(address.value());
                }
                return if certainty == Certainty::Guessed {
                    Mark::NoUnwindInfo
                } else {
                    Mark::None
                };
            }
            Ok(Caller::Zero) if certainty == Certainty::Tables => return Mark::None,
            Ok(_) => return Mark::NoUnwindInfo,
            Err(mark) => {
                if is_outside_copy(mark) && certainty == Certainty::Tables {
                    visit_last(&registers, stack, &info, addresses.len(), visitor);
                }
                return mark;
            }
        };
        // Other frames may be wrong, so they are not visited: visitors watch frames.
        if certainty == Certainty::Tables
            && rule_of_call(&info).is_some()
            && visitor.visit(&caller, addresses.len())
        {
            return Mark::StackTruncated;
        }
        registers = caller;
        address = caller_address;
    }
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
