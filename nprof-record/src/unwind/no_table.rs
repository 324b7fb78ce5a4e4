//! Steps from code that no unwind table covers: by what follows from the code itself, else to the
//! base of the stack if nothing can lie between, else by the frame pointer, which code made at run
//! time may keep. A walk that came through here passes for a guess: its frames are good enough to
//! be shown, but nothing is watched or completed by them.

use nprof_stream::Mark;

use crate::arch;
use crate::unwind::stack_copy::StackCopy;
use crate::unwind::step::{Step, step_by_row};
use crate::unwind::{AnalyzedRule, CodeMap, FrameAddress, Registers, UnwindInfo};

/// How far above the stack pointer the return address into the base of a stack is looked for, in
/// words.
const BASE_MAX: u64 = 64;

/// Goes by what the code itself says. That is less certain than a table, so it must lead behind a
/// call; else it does not count.
pub(super) fn step(
    registers: &Registers,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
) -> Step {
    match code.analyze(address) {
        // Where a thread begins, the frame pointer is 0, if it is not lost.
        AnalyzedRule::ThreadStart if registers.get(arch::FP).unwrap_or(0) == 0 => return Ok(None),
        AnalyzedRule::Rule(row) => match step_by_row(registers, stack, &row) {
            Ok(Some((caller, returns))) if may_return_to(caller.get(arch::IP)?, code) => {
                return Ok(Some((caller, returns)));
            }
            Err(Mark::Copy) => return Err(Mark::Copy),
            _ => {}
        },
        _ => {}
    }
    match step_to_base(registers, stack, code) {
        Some(caller) => Ok(Some((caller, true))),
        None => step_by_frame_pointer(registers, stack, code),
    }
}

/// Whether a function may return to an address: code is mapped there, and a call ends, as far as
/// it can be read.
fn may_return_to(ip: u64, code: &mut impl CodeMap) -> bool {
    code.unwind_info(ip.wrapping_sub(1)) != UnwindInfo::Unmapped
        && code.is_after_call(ip) != Some(false)
}

/// Leaves a function that does not return, if it was called by where the process or the thread
/// begins: no return address lies between the stack pointer and the one into the beginning.
fn step_to_base(
    registers: &Registers,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
) -> Option<Registers> {
    let sp = registers.get(arch::SP).ok()?;
    for slot in (0..BASE_MAX).map(|word| sp.wrapping_add(arch::WORD * word)) {
        let ip = stack.read(slot).ok()?;
        if !may_return_to(ip, code) {
            continue;
        }
        let address = FrameAddress { value: ip, returns: true };
        let is_base = match code.unwind_info(address.inside()) {
            UnwindInfo::Entry => true,
            UnwindInfo::NoTable => code.analyze(address) == AnalyzedRule::ThreadStart,
            _ => false,
        };
        let mut caller = Registers::default();
        caller.set(arch::SP, slot.wrapping_add(arch::WORD));
        caller.set(arch::IP, ip);
        return is_base.then_some(caller);
    }
    None
}

/// Tries the frame pointer: a guess, so it must lead to where a function may return.
fn step_by_frame_pointer(
    registers: &Registers,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap,
) -> Step {
    let fp = registers.get(arch::FP).map_err(|_| Mark::Table)?;
    if fp < registers.get(arch::SP)? {
        return Err(Mark::Table);
    }
    let read = |address| stack.read(address).map_err(|_| Mark::Table);
    let (above, ip) = (read(fp)?, read(fp.wrapping_add(arch::FRAME_RECORD_RETURN_ADDRESS))?);
    if !may_return_to(ip, code) {
        return Err(Mark::Table);
    }
    let mut caller = Registers::default();
    caller.set(arch::FP, above);
    caller.set(arch::SP, fp.wrapping_add(arch::FRAME_RECORD));
    caller.set(arch::IP, ip);
    Ok(Some((caller, true)))
}
