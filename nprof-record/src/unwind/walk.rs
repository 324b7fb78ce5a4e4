//! From the registers and the copied stack of a sample to its chain of return addresses. Pure:
//! what stands at an address is asked of a [`CodeMap`].
//!
//! Every step says why it could not be made, because a stack that is cut short must never pass
//! for a complete one. A stack is complete when its last frame is known to have no caller: its
//! unwind table says so, its return address is 0, or it is the function the program starts in.
//! Where no table covers an address see [`crate::unwind::no_table`].

use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::UnwindRule;
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::frame_visitor::FrameVisitor;
use crate::unwind::no_table;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::StackCopy;
use crate::unwind::step::{Step, caller_by_row, step_by_row, step_from_handler};

/// Walks a stack from the frame that has these registers, and appends the addresses found to
/// `addresses`, leaf first and up to `depth` of them. Gives why there are no more: [`Mark::None`]
/// when the stack is complete, [`Mark::Copy`] when the passage stopped the walk. `returns` says
/// whether the instruction pointer is a return address.
pub fn unwind(
    (mut registers, returns): (Registers, bool),
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
    depth: usize,
    addresses: &mut Vec<FrameAddress>,
    visitor: &mut impl FrameVisitor,
) -> Mark {
    let Ok(ip) = registers.get(arch::IP) else { return Mark::Unread };
    let mut address = FrameAddress { value: ip, returns };
    let mut guessed = false;
    loop {
        let unwind_info = code.unwind_info(address.inside());
        if unwind_info == UnwindInfo::Unmapped {
            return Mark::Mapping;
        }
        if addresses.len() >= depth {
            return Mark::Depth;
        }
        addresses.push(address);
        let (caller, returns) = match step(&registers, address, stack, &unwind_info, code) {
            Ok(Some(caller)) => caller,
            Ok(None) => return Mark::None,
            Err(mark) => {
                if mark == Mark::Copy && !guessed {
                    visit_last(&registers, stack, &unwind_info, addresses.len(), visitor);
                }
                return mark;
            }
        };
        guessed |= matches!(unwind_info, UnwindInfo::NoTable);
        if !guessed
            && return_address_on_stack(&unwind_info).is_some()
            && visitor.visit(&caller, addresses.len())
        {
            return Mark::Copy;
        }
        let Ok(ip) = caller.get(arch::IP) else { return Mark::Frame };
        registers = caller;
        address = FrameAddress { value: ip, returns };
    }
}

/// The rule of a frame that returns through the word below its CFA, which a call has pushed.
fn return_address_on_stack(unwind_info: &UnwindInfo) -> Option<&UnwindRule> {
    let UnwindInfo::Rule(row) = unwind_info else { return None };
    (!row.signal && row.return_address == arch::PUSHED_RETURN_ADDRESS).then_some(row)
}

/// Tells of a frame whose CFA is known but whose return address lies beyond the copy.
fn visit_last(
    registers: &Registers,
    stack: &StackCopy<'_>,
    unwind_info: &UnwindInfo,
    frames: usize,
    visitor: &mut impl FrameVisitor,
) {
    if let Some(row) = return_address_on_stack(unwind_info)
        && let Ok(caller) = caller_by_row(registers, stack, row)
        && caller.get(arch::SP) > registers.get(arch::SP)
    {
        visitor.visit(&caller, frames);
    }
}

fn step(
    registers: &Registers,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    unwind_info: &UnwindInfo,
    code: &mut impl CodeMap,
) -> Step {
    match unwind_info {
        UnwindInfo::Rule(row) => step_by_row(registers, stack, row),
        UnwindInfo::Entry => Ok(None),
        UnwindInfo::SignalReturn => step_from_handler(registers, stack),
        UnwindInfo::NoTable | UnwindInfo::Unmapped => {
            no_table::step(registers, address, stack, code)
        }
    }
}

#[cfg(test)]
mod tests;
