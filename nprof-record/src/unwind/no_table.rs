//! Steps from code that no unwind table covers, in this order: by the analysis of the code itself;
//! to the function at which the thread starts, if the first return address on the stack leads there;
//! along the frame pointer, which code generated at run time may keep. Frames after such a step are guesses: good enough to be shown,
//! but no frame is watched or completed by them.

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch;
use crate::arch::rule::AnalyzedRule;
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::{StackCopy, is_outside_copy};
use crate::unwind::step::{Step, step_by_rule};

/// The most words above the stack pointer that are searched for the return address into the
/// function at which the program or the thread starts.
const START_SEARCH_WORDS: u64 = 64;

/// Returns the caller of a frame that no unwind table covers.
pub(super) fn step(
    registers: &Registers,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
    caller: &mut Registers,
) -> Step {
    match code.analyze(address) {
        // A thread starts with a frame pointer of 0; a function may have lost it since.
        AnalyzedRule::ThreadStart if registers.get(arch::FP).unwrap_or(0) == 0 => return Ok(None),
        // The analysis is less certain than a table, so its result must follow a call.
        AnalyzedRule::Rule(rule) => match step_by_rule(registers, stack, &rule, caller) {
            Ok(Some(address)) if address.is_return() && may_return_to(address.value(), code) => {
                return Ok(Some(address));
            }
            Err(mark) if is_outside_copy(mark) => return Err(mark),
            _ => {}
        },
        _ => {}
    }
    match step_to_start(registers, stack, code, caller) {
        Some(start) => Ok(Some(start)),
        None => step_by_frame_pointer(registers, stack, code, caller),
    }
}

/// True if a function may return to an address: code is mapped before it, and a call ends there as
/// far as the code can be read.
fn may_return_to(ip: RuntimeAddress, code: &mut impl CodeMap) -> bool {
    code.unwind_info(ip.wrapping_sub(1)) != UnwindInfo::Unmapped
        && code.is_after_call(ip) != Some(false)
}

/// Returns the frame of the function at which the process or the thread starts, if it called this
/// one: then the first return address above the stack pointer leads there. Finds the callers of
/// functions that never return, such as exit(3), which the analysis cannot follow to a return.
fn step_to_start(
    registers: &Registers,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
    caller: &mut Registers,
) -> Option<FrameAddress> {
    let sp = registers.get(arch::SP).ok()?;
    for slot in (0..START_SEARCH_WORDS).map(|word| sp.wrapping_add(arch::WORD * word)) {
        let ip = stack.read(slot).ok()?;
        if !may_return_to(RuntimeAddress(ip), code) {
            continue;
        }
        let address = FrameAddress::Return(RuntimeAddress(ip));
        let is_start = match code.unwind_info(address.address_for_lookup()) {
            UnwindInfo::Entry => true,
            UnwindInfo::NoTable => code.analyze(address) == AnalyzedRule::ThreadStart,
            _ => false,
        };
        *caller = Registers::default();
        caller.set(arch::SP, slot.wrapping_add(arch::WORD));
        caller.set(arch::IP, ip);
        return is_start.then_some(address);
    }
    None
}

/// Returns the caller by the frame pointer. That is a guess, so it must lead to an address to which
/// a function may return.
fn step_by_frame_pointer(
    registers: &Registers,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
    caller: &mut Registers,
) -> Step {
    let fp = registers.get(arch::FP).map_err(|_| Mark::NoUnwindInfo)?;
    if fp < registers.get(arch::SP)? {
        return Err(Mark::NoUnwindInfo);
    }
    let read = |address| stack.read(address).map_err(|_| Mark::NoUnwindInfo);
    let caller_fp = read(fp)?;
    let ip = read(fp.wrapping_add(arch::FRAME_RECORD_RETURN_ADDRESS))?;
    if !may_return_to(RuntimeAddress(ip), code) {
        return Err(Mark::NoUnwindInfo);
    }
    *caller = Registers::default();
    caller.set(arch::FP, caller_fp);
    caller.set(arch::SP, fp.wrapping_add(arch::FRAME_RECORD));
    caller.set(arch::IP, ip);
    Ok(Some(FrameAddress::Return(RuntimeAddress(ip))))
}
