//! From the registers and the copied stack of a sample to its chain of return addresses. Pure: the
//! unwind information comes from a [`CodeMap`].
//!
//! Every step that fails gives its reason, because a stack that was cut short must never pass for a
//! complete one. A stack is complete if its last frame has no caller: its unwind table says so, its
//! return address is 0, or it is the function at which the program starts. Addresses that no table
//! covers are handled by [`crate::unwind::no_table`].

use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::UnwindRule;
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::frame_state::FrameState;
use crate::unwind::frame_visitor::FrameVisitor;
use crate::unwind::no_table;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::{StackCopy, is_outside_copy};
use crate::unwind::step::{Step, caller_by_rule, step_by_rule, step_from_handler};

/// Walks a stack outwards from a frame and appends the addresses found, at most `depth` of them.
///
/// Returns the reason why there are no more: [`Mark::None`] if the stack is complete,
/// [`Mark::StackTruncated`] if the visitor stopped the walk.
pub fn unwind(
    frame: FrameState,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    visitor: &mut impl FrameVisitor,
) -> Mark {
    let FrameState { mut registers, mut address } = frame;
    let mut caller = Registers::default();
    // Frames after a guess may be wrong, so they are not visited: visitors watch frames.
    let mut is_guessed = false;
    loop {
        let info = code.unwind_info(address.address_for_lookup());
        if info == UnwindInfo::Unmapped {
            return Mark::Unmapped;
        }
        if addresses.len() >= depth {
            return Mark::MaxDepth;
        }
        addresses.push(address);
        let caller_address = match step(&registers, address, stack, &info, code, &mut caller) {
            Ok(Some(caller_address)) => caller_address,
            Ok(None) => return Mark::None,
            Err(mark) => {
                if is_outside_copy(mark) && !is_guessed {
                    visit_last(&registers, stack, &info, addresses.len(), visitor);
                }
                return mark;
            }
        };
        is_guessed |= info == UnwindInfo::NoTable;
        if !is_guessed && rule_of_call(&info).is_some() && visitor.visit(&caller, addresses.len()) {
            return Mark::StackTruncated;
        }
        registers = caller;
        address = caller_address;
    }
}

/// Returns the rule of a frame that was called: its return address lies in the word below its CFA.
#[inline]
fn rule_of_call(info: &UnwindInfo) -> Option<&UnwindRule> {
    let UnwindInfo::Rule(rule) = info else { return None };
    (!rule.signal && rule.return_address == arch::PUSHED_RETURN_ADDRESS).then_some(rule)
}

/// Visits the last frame of the copy: its CFA is known, its return address lies outside.
fn visit_last(
    registers: &Registers,
    stack: &StackCopy<'_>,
    info: &UnwindInfo,
    frames: usize,
    visitor: &mut impl FrameVisitor,
) {
    let mut caller = Registers::default();
    if let Some(rule) = rule_of_call(info)
        && caller_by_rule(registers, stack, rule, &mut caller).is_ok()
        && caller.get(arch::SP) > registers.get(arch::SP)
    {
        visitor.visit(&caller, frames);
    }
}

#[inline]
fn step(
    registers: &Registers,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    info: &UnwindInfo,
    code: &mut impl CodeMap,
    caller: &mut Registers,
) -> Step {
    match info {
        UnwindInfo::Rule(rule) => step_by_rule(registers, stack, rule, caller),
        UnwindInfo::Entry => Ok(None),
        UnwindInfo::SignalReturn => step_from_handler(registers, stack, caller),
        UnwindInfo::NoTable | UnwindInfo::Unmapped => {
            no_table::step(registers, address, stack, code, caller)
        }
    }
}

#[cfg(test)]
mod tests;
