//! From the registers and the copied stack of a sample to its chain of return addresses. Pure:
//! what stands at an address is asked of a [`Code`].
//!
//! Every step says why it could not be made, because a stack that is cut short must never pass
//! for a complete one. A stack is complete when its last frame is known to have no caller: its
//! unwind table says so, its return address is 0, or it is the function the program starts in.
//! Where no table covers an address see [`crate::unwind::no_table`].

use nprof_stream::Mark;

use crate::arch;
use crate::unwind::code_map::{Code, Look};
use crate::unwind::frame_address::Address;
use crate::unwind::frame_visitor::Passage;
use crate::unwind::no_table;
use crate::unwind::registers::Registers;
use crate::unwind::rule::{Row, Saved};
use crate::unwind::stack_copy::Stack;
use crate::unwind::step::{Step, caller_by_row, step_by_row, step_from_handler};

/// Walks a stack from the frame that has these registers, and appends the addresses found to
/// `addresses`, leaf first and up to `depth` of them. Gives why there are no more: [`Mark::None`]
/// when the stack is complete, [`Mark::Copy`] when the passage stopped the walk. `returns` says
/// whether the instruction pointer is a return address.
pub fn unwind(
    (mut registers, returns): (Registers, bool),
    stack: &Stack<'_>,
    code: &mut impl Code,
    depth: usize,
    addresses: &mut Vec<Address>,
    passage: &mut impl Passage,
) -> Mark {
    let Ok(ip) = registers.get(arch::IP) else { return Mark::Unread };
    let mut address = Address { value: ip, returns };
    let mut guessed = false;
    loop {
        let look = code.look(address.inside());
        if look == Look::Unmapped {
            return Mark::Mapping;
        }
        if addresses.len() >= depth {
            return Mark::Depth;
        }
        addresses.push(address);
        let (caller, returns) = match step(&registers, address, stack, &look, code) {
            Ok(Some(caller)) => caller,
            Ok(None) => return Mark::None,
            Err(mark) => {
                if mark == Mark::Copy && !guessed {
                    pass_beyond(&registers, stack, &look, addresses.len(), passage);
                }
                return mark;
            }
        };
        guessed |= matches!(look, Look::NoTable);
        if !guessed && pushed(&look).is_some() && passage.pass(&caller, addresses.len()) {
            return Mark::Copy;
        }
        let Ok(ip) = caller.get(arch::IP) else { return Mark::Frame };
        registers = caller;
        address = Address { value: ip, returns };
    }
}

/// The rule of a frame that returns through the word below its CFA, which a call has pushed.
fn pushed(look: &Look) -> Option<&Row> {
    let Look::Row(row) = look else { return None };
    (!row.signal && row.return_address == Saved::At(-8)).then_some(row)
}

/// Tells of a frame whose CFA is known but whose return address lies beyond the copy.
fn pass_beyond(
    registers: &Registers,
    stack: &Stack<'_>,
    look: &Look,
    frames: usize,
    passage: &mut impl Passage,
) {
    if let Some(row) = pushed(look)
        && let Ok(caller) = caller_by_row(registers, stack, row)
        && caller.get(arch::SP) > registers.get(arch::SP)
    {
        passage.pass(&caller, frames);
    }
}

fn step(
    registers: &Registers,
    address: Address,
    stack: &Stack<'_>,
    look: &Look,
    code: &mut impl Code,
) -> Step {
    match look {
        Look::Row(row) => step_by_row(registers, stack, row),
        Look::Entry => Ok(None),
        Look::SignalReturn => step_from_handler(registers, stack),
        Look::NoTable | Look::Unmapped => no_table::step(registers, address, stack, code),
    }
}

#[cfg(test)]
mod tests;
