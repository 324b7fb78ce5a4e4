//! Steps from code that no unwind table covers. They are tried in this order:
//!
//! 1. by the analysis of the code up to its return;
//! 2. along the frame pointer, if no other word can be the return address, or in a builtin of V8;
//! 3. by a call on the stack, if the code of the called function leads to the address of the frame;
//! 4. by the code before the address, from a place at which its function may begin;
//! 5. to the function at which the thread starts, if the first return address on the stack leads there;
//! 6. along the frame pointer. Code generated at run time must show that it keeps it.
//!
//! No frame is watched or completed by such a step.

use nprof_object::RuntimeAddress;
use nprof_stream::Mark;

use crate::arch::Architecture;
use crate::arch::rule::{AnalyzedRule, GeneratedFrame, RegisterRule, UnwindRule};
use crate::arch::stack::{FRAME_RECORD, FRAME_RECORD_RETURN_ADDRESS, WORD, return_address_slot};
use crate::unwind::certainty::Certainty;
use crate::unwind::code_map::{CodeMap, UnwindInfo};
use crate::unwind::frame_address::FrameAddress;
use crate::unwind::registers::Registers;
use crate::unwind::stack_copy::{StackCopy, is_outside_copy};
use crate::unwind::step::{Caller, Step, caller_by_rule, step_by_rule};

/// The most words above the stack pointer that are searched for the return address into the
/// function at which the program or the thread starts.
const START_SEARCH_WORDS: u64 = 64;

/// The addresses from 0 on that no program can map, at least (vm.mmap_min_addr).
const NULL_BYTES: u64 = 4096;

/// The most words above the stack pointer that are searched for the call of a function.
const CALL_SEARCH_WORDS: u64 = 1024;

/// The most calls on the stack that are compared with the code of a function: each may take the
/// analysis of thousands of instructions.
const CALLS_MAX: usize = 16;

/// The largest alignment of a stack that is expected: a page.
const ALIGNMENT_MAX: u64 = 4096;

/// The alignment of the largest vectors, bytes.
const ALIGNMENT_OF_VECTORS: u64 = 64;

/// Returns the caller of a frame that no unwind table covers, and lowers the certainty of the walk.
pub(super) fn step<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
    certainty: &mut Certainty,
) -> Step {
    let before = *certainty;
    let step = try_step(registers, address, stack, code, caller, certainty);
    let is_certain = step != Err(Mark::NoUnwindInfo) && *certainty != Certainty::Guessed;
    // The function may be newer than the code that was read.
    if is_certain || before == Certainty::Guessed || !code.has_changed(address.address_for_lookup())
    {
        return step;
    }
    *certainty = before;
    try_step(registers, address, stack, code, caller, certainty)
}

fn try_step<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
    certainty: &mut Certainty,
) -> Step {
    *certainty = (*certainty).min(Certainty::Analyzed);
    match code.analyze(address) {
        // A thread starts with a frame pointer of 0; a function may have lost it since.
        AnalyzedRule::ThreadStart if registers.get(A::FP).unwrap_or(0) == 0 => {
            return Ok(Caller::None);
        }
        AnalyzedRule::StackBottom => return Ok(Caller::Bottom),
        // The analysis is less certain than a table, so its result must follow a call.
        AnalyzedRule::Rule(rule) => match step_by_rule(registers, stack, &rule, caller) {
            Ok(Caller::At(address))
                if address.is_return()
                    && is_in_copy(caller, &rule, stack)
                    && is_caller(address, code) =>
            {
                return Ok(Caller::At(address));
            }
            Ok(Caller::Zero) if is_root(caller) => return Ok(Caller::None),
            Err(mark) if is_outside_copy(mark) => return Err(mark),
            _ => {}
        },
        _ => {}
    }
    let is_generated = code.is_generated(address.address_for_lookup());
    // The searches below take hundreds of times as long: they look up each word of the stack.
    if !is_generated
        && let Ok(found) = step_by_frame_pointer(registers, stack, code, caller)
        && (code.generated_frame(address.value()) == GeneratedFrame::FramePointer
            || is_only_return_address(caller, registers, stack, code))
    {
        return Ok(found);
    }
    if !is_generated && let Some(found) = step_to_call(registers, address, stack, code, caller) {
        return Ok(Caller::At(found));
    }
    if !is_generated && let Some(found) = step_by_prologue(registers, address, stack, code, caller)
    {
        return Ok(found);
    }
    if let Some(start) = step_to_start(registers, stack, code, caller) {
        return Ok(Caller::At(start));
    }
    let step = step_by_frame_pointer(registers, stack, code, caller)?;
    let is_certain = if is_generated {
        is_frame_of_generated_code(registers, address, stack, code, caller)
    } else {
        // Compilers omit the frame pointer. A function that does not keep it is left out, and its
        // return address is below; code generated at run time leaves others there.
        !has_return_address_below(caller, registers, stack, code)
            && !may_be_in_link(caller, registers)
    };
    if !is_certain {
        *certainty = Certainty::Guessed;
    }
    Ok(step)
}

/// True if the code of a generated function shows that its caller was found by the frame pointer.
/// Corrects the stack pointer of the caller of HotSpot's interpreter.
fn is_frame_of_generated_code<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> bool {
    match code.generated_frame(address.value()) {
        GeneratedFrame::FramePointer => true,
        GeneratedFrame::Unknown => false,
        GeneratedFrame::Interpreter => {
            let (Ok(fp), Ok(sp)) = (registers.get(A::FP), registers.get(A::SP)) else {
                return false;
            };
            let cfa = A::interpreter_cfa(fp, sp, |slot| stack.read(slot).ok());
            if let Some(cfa) = cfa {
                caller.set(A::SP, cfa);
            }
            cfa.is_some()
        }
    }
}

/// True if the return address is in a register, or if the word below the stack pointer of a caller was copied. A
/// rule may take the return address from elsewhere.
fn is_in_copy<A: Architecture>(
    caller: &Registers<A>,
    rule: &UnwindRule,
    stack: &StackCopy<'_>,
) -> bool {
    if matches!(rule.return_address, RegisterRule::Register(_)) {
        return true;
    }
    let slot = caller.get(A::SP).ok().and_then(return_address_slot);
    slot.is_some_and(|slot| stack.read(slot).is_ok())
}

/// True if a caller, to which the return address 0 leads, is none: where calls leave their return address in a register,
/// C libraries and their threads start with that and the frame pointer set to 0.
fn is_root<A: Architecture>(caller: &Registers<A>) -> bool {
    A::LINK.is_some() && caller.get(A::FP) == Ok(0)
}

/// True if an address follows a call, or code that is reached by a return without one.
fn is_caller<A: Architecture>(address: FrameAddress, code: &mut impl CodeMap<A>) -> bool {
    follows_call(address, code)
        || code.unwind_info(address.address_for_lookup()) == UnwindInfo::NoTable
            && code.analyze(address) == AnalyzedRule::StackBottom
}

/// True if an address follows a call, or signal handlers return there.
fn follows_call<A: Architecture>(address: FrameAddress, code: &mut impl CodeMap<A>) -> bool {
    if may_return_to(address.value(), code) {
        return true;
    }
    match code.unwind_info(address.address_for_lookup()) {
        UnwindInfo::Rule(rule) => rule.signal,
        UnwindInfo::SignalReturn => true,
        UnwindInfo::NoTable | UnwindInfo::Unmapped | UnwindInfo::Entry => false,
    }
}

/// Returns the caller of a function by a call on the stack: the code of the function that it calls
/// leads to the address of the frame, and there the return address is in that place. Finds the
/// callers of functions that cannot be followed to a return.
fn step_to_call<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    // Such a call leaves no word in a known place.
    if A::LINK.is_some() {
        return None;
    }
    let sp = registers.get(A::SP).ok()?;
    let mut calls = 0;
    for slot in (0..CALL_SEARCH_WORDS).map(|word| sp.wrapping_add(WORD * word)) {
        let ip = A::code_address(stack.read(slot).ok()?);
        if !may_return_to(RuntimeAddress(ip), code) {
            continue;
        }
        calls += 1;
        if let Some(rule) = code.rule_since_call(RuntimeAddress(ip), address)
            && caller_by_rule(registers, stack, &rule, caller).ok().and_then(return_address_slot)
                == Some(slot)
        {
            caller.set(A::IP, ip);
            return Some(FrameAddress::Return(RuntimeAddress(ip)));
        }
        if calls == CALLS_MAX {
            return None;
        }
    }
    None
}

/// Returns the caller of a frame by the code of its function, and not by its table: up to its return, or
/// from a call of it on the stack to its address.
pub(super) fn step_by_own_code<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    if let AnalyzedRule::Rule(rule) = code.analyze(address)
        && let Ok(Caller::At(found)) = step_by_rule(registers, stack, &rule, caller)
        && found.is_return()
        && is_in_copy(caller, &rule, stack)
        && may_return_to(found.value(), code)
    {
        return Some(found);
    }
    step_to_call(registers, address, stack, code, caller)
}

/// Returns the caller of a frame of which the frame pointer is needed and unknown, by the code of its
/// function up to its address.
pub(super) fn step_by_code<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<Caller> {
    step_by_own_code(registers, address, stack, code, caller)
        .map(Caller::At)
        .or_else(|| step_by_prologue(registers, address, stack, code, caller))
}

/// Returns the caller by the code before the address of a frame: where that leads from the start of a
/// function to the address, its return address follows a call. Finds the callers of functions that
/// never return and are called through pointers.
fn step_by_prologue<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<Caller> {
    for rule in code.rules_since_prologues(address).iter() {
        match step_by_rule(registers, stack, rule, caller) {
            // A guess at the start of the function: a pointer to another function, which never returns, would
            // be taken for the end of the stack.
            Ok(Caller::At(found)) if follows_call(found, code) => return Some(Caller::At(found)),
            Ok(Caller::Zero) if is_root(caller) => return Some(Caller::None),
            _ => {}
        }
    }
    None
}

/// True if the return address found by the frame pointer is the only one up to it, and no copy of
/// another.
fn is_only_return_address<A: Architecture>(
    caller: &Registers<A>,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
) -> bool {
    let (Ok(ip), Some(above)) = (caller.get(A::IP), record_end(caller, registers)) else {
        return false;
    };
    // Generated code keeps the frame pointer, and may be too new to be read.
    (code.is_after_call(RuntimeAddress(ip)) == Some(true)
        || code.is_generated(RuntimeAddress(ip.wrapping_sub(1))))
        && is_outer_record(caller, above)
        && !may_be_in_link(caller, registers)
        && !has_return_address_below(caller, registers, stack, code)
        && !is_copied(ip, above, registers, stack)
}

/// True if the frame pointer of a caller leads to an outer frame, or to none. A register that serves
/// another purpose rarely points to such a word.
fn is_outer_record<A: Architecture>(caller: &Registers<A>, above: u64) -> bool {
    caller.get(A::FP).is_ok_and(|fp| fp == 0 || fp >= above)
}

/// Returns the address after the frame record by which a caller was found.
fn record_end<A: Architecture>(caller: &Registers<A>, registers: &Registers<A>) -> Option<u64> {
    let after_record = || Some(registers.get(A::FP).ok()?.wrapping_add(FRAME_RECORD));
    caller.get(A::SP).ok().or_else(after_record)
}

/// True if the frame may have been interrupted before it saved its return address: the link register has
/// another than the frame record. It keeps the address of the last call, too.
fn may_be_in_link<A: Architecture>(caller: &Registers<A>, registers: &Registers<A>) -> bool {
    let link = A::LINK.and_then(|link| registers.get(link).ok());
    link.is_some_and(|link| caller.get(A::IP) != Ok(A::code_address(link)))
}

/// True if a return address may be a copy of the true one further above. Functions of gcc that realign
/// their stack push a copy of their return address to the aligned stack, and the frame pointer after
/// it; then they push the address after the true one. `above` is the address after the copy.
fn is_copied<A: Architecture>(
    ip: u64,
    above: u64,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
) -> bool {
    let alignment = 1_u64 << above.trailing_zeros().min(ALIGNMENT_MAX.trailing_zeros());
    let slots = (0..alignment / WORD).map(|word| above.wrapping_add(WORD * word));
    let is_same = |slot: &u64| stack.read(*slot).is_ok_and(|word| word == ip);
    // A recursive function without such an address has the same word in each frame.
    slots.filter(is_same).any(|slot| {
        slot < above.wrapping_add(ALIGNMENT_OF_VECTORS)
            || is_in_frame(slot.wrapping_add(WORD), above, registers, stack)
    })
}

/// True if a register that functions preserve has a value, or a word from the stack pointer up to an
/// address.
fn is_in_frame<A: Architecture>(
    value: u64,
    end: u64,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
) -> bool {
    let Ok(sp) = registers.get(A::SP) else { return true };
    A::PRESERVED.iter().any(|&register| registers.get(register) == Ok(value))
        || (sp..end).step_by(WORD as usize).any(|slot| stack.read(slot) == Ok(value))
}

/// True if a word between the stack pointers of a frame and of its caller, except for the return
/// address itself, may be a return address.
fn has_return_address_below<A: Architecture>(
    caller: &Registers<A>,
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
) -> bool {
    let (Ok(here), Some(above)) = (registers.get(A::SP), record_end(caller, registers)) else {
        return true;
    };
    let words = above.saturating_sub(here) / WORD;
    if words > CALL_SEARCH_WORDS {
        return true;
    }
    (0..words.saturating_sub(1)).any(|word| {
        let ip = stack.read(here.wrapping_add(WORD * word));
        ip.is_ok_and(|ip| may_return_to(RuntimeAddress(A::code_address(ip)), code))
    })
}

/// True if a function may return to an address: code is mapped before it, and a call ends there as
/// far as the code can be read.
fn may_return_to<A: Architecture>(ip: RuntimeAddress, code: &mut impl CodeMap<A>) -> bool {
    // The call first: it is cached, and few words follow one.
    match code.is_after_call(ip) {
        Some(is_after_call) => is_after_call,
        None => code.unwind_info(ip.wrapping_sub(1)) != UnwindInfo::Unmapped,
    }
}

/// Returns the caller of a call through a null pointer, of which nothing but the call itself has run. None if no
/// call has led to the address: it is not near 0, or no call ends at the return address.
pub(super) fn step_from_null<A: Architecture>(
    registers: &Registers<A>,
    address: FrameAddress,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    if address.is_return() || address.value().0 >= NULL_BYTES {
        return None;
    }
    *caller = *registers;
    let ip = match A::LINK {
        Some(link) => registers.get(link).ok()?,
        None => {
            let sp = registers.get(A::SP).ok()?;
            caller.set(A::SP, sp.wrapping_add(WORD));
            stack.read(sp).ok()?
        }
    };
    let ip = A::code_address(ip);
    caller.set(A::IP, ip);
    let ip = RuntimeAddress(ip);
    (code.is_after_call(ip) == Some(true)).then_some(FrameAddress::Return(ip))
}

/// Finds a caller of a function that has saved nothing, in a thread that waits in a system call: the link register
/// and the frame pointer are unknown. The stack pointer is that of its caller, which has its frame record
/// there, as gcc lays out frames: the record leads to the caller of that one, and so a frame is missing.
pub(super) fn step_without_link<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    if registers.get(A::LINK?).is_ok() || registers.get(A::FP).is_ok() {
        return None;
    }
    let sp = registers.get(A::SP).ok()?;
    let fp = stack.read(sp).ok()?;
    let ip = A::code_address(stack.read(sp.wrapping_add(FRAME_RECORD_RETURN_ADDRESS)).ok()?);
    if fp <= sp || !may_return_to(RuntimeAddress(ip), code) {
        return None;
    }
    *caller = Registers::default();
    caller.set(A::FP, fp);
    caller.set(A::IP, ip);
    Some(FrameAddress::Return(RuntimeAddress(ip)))
}

/// Returns the frame of the function at which the process or the thread starts, if it called this
/// one: then the first return address above the stack pointer leads there. Finds the callers of
/// functions that never return, such as exit(3), which the analysis cannot follow to a return.
fn step_to_start<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Option<FrameAddress> {
    let sp = registers.get(A::SP).ok()?;
    for slot in (0..START_SEARCH_WORDS).map(|word| sp.wrapping_add(WORD * word)) {
        let ip = A::code_address(stack.read(slot).ok()?);
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
        caller.set(A::SP, slot.wrapping_add(WORD));
        caller.set(A::IP, ip);
        return is_start.then_some(address);
    }
    None
}

/// Returns the caller by the frame pointer. That is a guess, so it must lead to an address to which
/// a function may return.
fn step_by_frame_pointer<A: Architecture>(
    registers: &Registers<A>,
    stack: &StackCopy<'_>,
    code: &mut impl CodeMap<A>,
    caller: &mut Registers<A>,
) -> Step {
    let fp = registers.get(A::FP).map_err(|_| Mark::NoUnwindInfo)?;
    if registers.get(A::SP).is_ok_and(|sp| fp < sp) {
        return Err(Mark::NoUnwindInfo);
    }
    let read = |address| stack.read(address).map_err(|_| Mark::NoUnwindInfo);
    let caller_fp = read(fp)?;
    let ip = A::code_address(read(fp.wrapping_add(FRAME_RECORD_RETURN_ADDRESS))?);
    let ip_address = RuntimeAddress(ip);
    if !may_return_to(ip_address, code) && !code.is_generated(ip_address.wrapping_sub(1)) {
        return Err(Mark::NoUnwindInfo);
    }
    *caller = Registers::default();
    if A::LINK.is_none() {
        caller.set(A::SP, fp.wrapping_add(FRAME_RECORD));
    } else if caller_fp != 0 && caller_fp <= fp {
        // The record may be anywhere in its frame, so that the stack pointer stays unknown. Only the records
        // themselves show that the walk proceeds.
        return Err(Mark::NoUnwindInfo);
    }
    caller.set(A::FP, caller_fp);
    caller.set(A::IP, ip);
    Ok(Caller::At(FrameAddress::Return(RuntimeAddress(ip))))
}
