//! From the registers and the copied stack of a sample to its chain of return addresses. Pure:
//! what stands at an address is asked of a [`Code`].
//!
//! Every step says why it could not be made, because a stack that is cut short must never pass
//! for a complete one. A stack is complete when its last frame is known to have no caller: its
//! unwind table says so, its return address is 0, or it is the function the program starts in.
//! Where no table covers an address see [`bare`].

use std::rc::Rc;

use gimli::{EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location, Value};
use nprof_stream::Mark;

use crate::arch;
use crate::unwind::no_table;
use crate::unwind::rule::{Cfa, Expression, Row, Saved};
use crate::unwind::stack_copy::{Seen, Stack};

/// The most operations of one DWARF expression.
const OPERATIONS_MAX: u32 = 1000;

/// What is known of the code at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// No executable memory is mapped there.
    Unmapped,
    /// No unwind table covers it.
    NoTable,
    /// The table's rule.
    Row(Rc<Row>),
    /// It is the function the program starts in, and no table covers it.
    Entry,
    /// It is what signal handlers return to, and no table covers it.
    SignalReturn,
}

/// What code that no unwind table covers says of its caller, see [`crate::unwind::code_analysis`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    Rule(Rc<Row>),
    /// There is none: it ends the thread that was made to call what it called.
    Base,
    Nothing,
}

/// The code of a process.
pub trait Code {
    /// What is known of the code at an address.
    fn look(&mut self, address: u64) -> Look;

    /// What the code itself says where there is no table.
    fn follow(&mut self, _address: Address) -> Followed {
        Followed::Nothing
    }

    /// Whether a call ends at an address; `None` where that cannot be read.
    fn is_behind_call(&mut self, _address: u64) -> Option<bool> {
        None
    }
}

/// Is told of the frames a walk leaves.
pub trait Passage {
    /// A frame was left by its unwind table and returns through the word below its CFA. `caller`
    /// are its caller's registers: the stack pointer is the CFA, and the instruction pointer is
    /// not known when the return address lies beyond the copy. `frames` addresses are known so
    /// far. Whether to stop here.
    fn pass(&mut self, caller: &Registers, frames: usize) -> bool;

    /// The walk is over; this much of the stack was read.
    fn end(&mut self, _seen: Seen) {}
}

/// Nobody wants to know.
impl Passage for () {
    fn pass(&mut self, _caller: &Registers, _frames: usize) -> bool {
        false
    }
}

/// The registers of a frame, by DWARF's numbers; some may not be known any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [u64; arch::COUNT],
    known: u32,
}

impl Registers {
    /// A register's value, if it is known.
    pub fn get(&self, register: u16) -> Result<u64, Mark> {
        let known = register < 32 && self.known >> register & 1 != 0;
        self.values.get(usize::from(register)).copied().filter(|_| known).ok_or(Mark::Frame)
    }

    /// Sets a register's value.
    pub fn set(&mut self, register: u16, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(register)) {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    /// Whether everything known here is known there, too, and the same.
    pub fn agrees_with(&self, other: &Self) -> bool {
        let same = |at: usize| self.known >> at & 1 == 0 || self.values[at] == other.values[at];
        self.known & !other.known == 0 && (0..arch::COUNT).all(same)
    }

    /// The registers of a sample, in the order of [`arch::MASK`]; `None` when some are missing.
    pub fn from_sample(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut registers = Self::default();
        let mut count = 0;
        for (&number, value) in arch::NUMBERS.iter().zip(values) {
            registers.set(number, value);
            count += 1;
        }
        (count == arch::COUNT).then_some(registers)
    }
}

/// An address on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub value: u64,
    /// Whether it is a return address, so that the call lies just before it.
    pub returns: bool,
}

impl Address {
    /// An address inside of the instruction meant.
    pub fn inside(self) -> u64 {
        if self.returns { self.value.wrapping_sub(1) } else { self.value }
    }
}

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
        registers = caller;
        address = Address { value: caller.values[usize::from(arch::IP)], returns };
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

/// The caller's registers, and whether its instruction pointer is a return address; `None` at
/// the end of the stack.
pub(super) type Step = Result<Option<(Registers, bool)>, Mark>;

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

pub(super) fn step_by_row(registers: &Registers, stack: &Stack<'_>, row: &Row) -> Step {
    if row.is_root() {
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

fn cfa(registers: &Registers, stack: &Stack<'_>, row: &Row) -> Result<u64, Mark> {
    match &row.cfa {
        Cfa::Register(register, offset) => {
            Ok(registers.get(*register)?.wrapping_add_signed(*offset))
        }
        Cfa::Expression(code) => evaluate(code, None, registers, stack),
    }
}

/// The caller's registers without the instruction pointer.
fn caller_by_row(registers: &Registers, stack: &Stack<'_>, row: &Row) -> Result<Registers, Mark> {
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
            Err(_) if *register != arch::SP => caller.known &= !(1 << register),
            Err(mark) => return Err(mark),
        }
    }
    Ok(caller)
}

fn restore(
    register: u16,
    saved: &Saved,
    cfa: u64,
    signal: bool,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Result<u64, Mark> {
    match saved {
        Saved::Undefined => Err(Mark::Frame),
        Saved::Same => registers.get(register),
        Saved::At(offset) => stack.read(cfa.wrapping_add_signed(*offset)),
        Saved::Is(offset) => Ok(cfa.wrapping_add_signed(*offset)),
        Saved::Register(other) => registers.get(*other),
        Saved::AtExpression(code) => {
            let slot = evaluate(code, Some(cfa), registers, stack)?;
            // In the epilogue of a realigned frame gcc's rule goes by a register that was popped
            // already, and so leads into the caller's frame, where only what a signal's frame
            // saved may be.
            if !signal && slot >= cfa {
                return Err(Mark::Frame);
            }
            stack.read(slot)
        }
        Saved::IsExpression(code) => evaluate(code, Some(cfa), registers, stack),
    }
}

/// What a DWARF expression gives, from an initial value on its stack.
fn evaluate(
    code: &Expression,
    initial: Option<u64>,
    registers: &Registers,
    stack: &Stack<'_>,
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
fn step_from_handler(registers: &Registers, stack: &Stack<'_>) -> Step {
    let sp = registers.get(arch::SP)?;
    let mut caller = Registers::default();
    for (register, offset) in arch::SIGNAL_SAVED {
        caller.set(register, stack.read(sp.wrapping_add_signed(offset))?);
    }
    Ok(Some((caller, false)))
}

#[cfg(test)]
mod tests;
