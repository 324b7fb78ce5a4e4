//! The symbolic state of a code analysis: the origin of the values in registers and on the stack, in
//! terms of the registers at the start of the path. Pure.
//!
//! Encodings are those of the Arm Architecture Reference Manual, C4.1.

use crate::arch::aarch64::registers::{FP, LINK, PRESERVED, SP};
use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};

/// x0 to x30 and sp.
const COUNT: usize = 32;

/// The number that is sp or, in most instructions, the register of zeros.
const SP_OR_ZERO: usize = SP as usize;

/// The most words written on one path; with more, the path yields no rule.
const STORED_MAX: usize = 256;

/// The registers that a call may change: x0 to x18, and the link register.
const SCRATCH: std::ops::RangeInclusive<usize> = 0..=18;

/// The origin of a value. A base is the value of a register at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// A base, plus an offset.
    RegPlus(usize, i64),
    /// The word in memory at the start, at an offset from a base.
    WordAt(usize, i64),
    Number(u64),
    Unknown,
}

impl Value {
    fn plus(self, distance: i64) -> Self {
        match self {
            Self::RegPlus(base, at) => Self::RegPlus(base, at.wrapping_add(distance)),
            Self::Number(number) => Self::Number(number.wrapping_add_signed(distance)),
            _ => Self::Unknown,
        }
    }
}

/// The registers and the stack at one address of a path.
#[derive(Clone, Debug)]
pub(super) struct SymbolicState {
    registers: [Value; COUNT],
    /// The addresses and values of words written on the way.
    stored: Vec<(Value, Value)>,
}

impl SymbolicState {
    /// Creates the state at the start of a path. After a call (`returns`) only the registers that a
    /// function preserves are known.
    pub(super) fn new(returns: bool) -> Self {
        let registers = std::array::from_fn(|register| Value::RegPlus(register, 0));
        let mut state = Self { registers, stored: Vec::new() };
        if returns {
            state.call();
        }
        state
    }

    /// Returns the part of the state that decides how a path goes on.
    pub(super) fn key(&self) -> impl std::hash::Hash {
        self.registers
    }

    /// True if the path has written few words.
    pub(super) fn is_bounded(&self) -> bool {
        self.stored.len() <= STORED_MAX
    }

    /// Forgets the registers that a call changes.
    pub(super) fn call(&mut self) {
        self.registers[SCRATCH].fill(Value::Unknown);
        self.registers[usize::from(LINK)] = Value::Unknown;
    }

    /// True if a register has its value from the start.
    fn is_unchanged(&self, register: u16) -> bool {
        self.registers[usize::from(register)] == Value::RegPlus(usize::from(register), 0)
    }

    /// True if a jump to the address in a register leaves the function as it was entered: it has restored its return
    /// address, or compilers use the register for such jumps (x16 and x17, also in linkage tables), and
    /// another for jump tables.
    pub(super) fn is_tail_call(&self, register: u32) -> bool {
        let is_restored = matches!(self.registers[usize::from(LINK)], Value::WordAt(..));
        is_restored || matches!(register, 16 | 17) && self.is_unchanged(LINK)
    }

    /// Returns the rule for the start of the path, given that the function returns here to the address in a
    /// register. None if that cannot be.
    pub(super) fn rule_at_return(&self, register: u32) -> Option<UnwindRule> {
        let Value::RegPlus(base, above) = self.registers[SP_OR_ZERO] else { return None };
        if base == SP_OR_ZERO && above < 0 {
            return None;
        }
        let return_address = match self.registers[register as usize] {
            // Only the caller left an address in the link register.
            Value::RegPlus(from, 0) if from == usize::from(LINK) => RegisterRule::Register(LINK),
            word => self.place(word, base, above)?,
        };
        let saved = |&register: &u16| {
            let value = self.registers[usize::from(register)];
            let is_same = self.is_unchanged(register);
            let place = || self.place(value, base, above).unwrap_or(RegisterRule::Undefined);
            (!is_same).then(|| (register, place()))
        };
        Some(UnwindRule {
            cfa: Cfa::Register(base as u16, above),
            return_address,
            registers: PRESERVED.iter().filter_map(saved).collect(),
            signal: false,
        })
    }

    /// Returns the rule of a word of the frame below the CFA, which is at an offset from a base.
    fn place(&self, word: Value, base: usize, cfa: i64) -> Option<RegisterRule> {
        let Value::WordAt(from, at) = word else { return None };
        let offset = at.checked_sub(cfa)?;
        (from == base && offset < 0).then_some(RegisterRule::AtCfaOffset(offset))
    }

    /// Returns the rule for this place, given that the path began at the start of the function.
    pub(super) fn rule_since_entry(&self) -> Option<UnwindRule> {
        let entry = |register: usize| match self.registers[register] {
            Value::RegPlus(SP_OR_ZERO, at) => {
                Some(Cfa::Register(register as u16, at.checked_neg()?))
            }
            _ => None,
        };
        let cfa = entry(SP_OR_ZERO).or_else(|| entry(usize::from(FP)))?;
        let stored = |register: u16| {
            let is_it =
                |(_, value): &&(Value, Value)| *value == Value::RegPlus(usize::from(register), 0);
            match self.stored.iter().find(is_it) {
                Some((Value::RegPlus(SP_OR_ZERO, at), _)) if *at < 0 => {
                    Some(RegisterRule::AtCfaOffset(*at))
                }
                _ => None,
            }
        };
        let return_address = match stored(LINK) {
            Some(place) => place,
            None if self.is_unchanged(LINK) => RegisterRule::Register(LINK),
            None => return None,
        };
        let saved = |&register: &u16| {
            let place = || stored(register).unwrap_or(RegisterRule::Undefined);
            (!self.is_unchanged(register)).then(|| (register, place()))
        };
        let registers = PRESERVED.iter().filter_map(saved).collect();
        Some(UnwindRule { cfa, return_address, registers, signal: false })
    }

    /// Executes an instruction that is no jump or call.
    pub(super) fn execute(&mut self, instruction: u32) {
        match instruction >> 25 & 0xf {
            // Data processing with an immediate operand.
            0b1000 | 0b1001 => self.execute_immediate(instruction),
            0b1010 | 0b1011 => self.execute_system(instruction),
            0b0100 | 0b0110 | 0b1100 | 0b1110 => self.execute_memory(instruction),
            0b0101 | 0b1101 => self.execute_registers(instruction),
            _ if is_move_to_general(instruction) => self.set(field(instruction, 0), Value::Unknown),
            // Vectors and floating point.
            _ => {}
        }
    }

    fn set(&mut self, register: usize, value: Value) {
        if register != SP_OR_ZERO {
            self.registers[register] = value;
        }
    }

    fn execute_immediate(&mut self, instruction: u32) {
        let (to, from) = (field(instruction, 0), field(instruction, 5));
        let immediate = i64::from(instruction >> 10 & 0xfff) << (12 * (instruction >> 22 & 1));
        let wide = u64::from(instruction >> 5 & 0xffff);
        let shift = 16 * (instruction >> 21 & 3);
        match instruction >> 23 {
            // add, sub: 64 bits. Here number 31 is sp.
            0b1_0010_0010 => self.registers[to] = self.registers[from].plus(immediate),
            0b1_1010_0010 => self.registers[to] = self.registers[from].plus(-immediate),
            // add, sub of 32 bits; and, orr, eor.
            0b0_0010_0010 | 0b0_1010_0010 => self.registers[to] = Value::Unknown,
            operation if operation & 0x3f == 0b10_0100 && operation >> 6 & 3 != 0b11 => {
                self.registers[to] = Value::Unknown;
            }
            // movz, movk.
            0b1_1010_0101 => self.set(to, Value::Number(wide << shift)),
            0b1_1110_0101 => {
                let Value::Number(number) = self.registers[to] else { return };
                self.set(to, Value::Number(number & !(0xffff << shift) | wide << shift));
            }
            0b0_1010_0101 => self.set(to, Value::Number(wide << (shift & 16))),
            _ => self.set(to, Value::Unknown),
        }
    }

    /// Executes an instruction of the class of jumps that is none.
    fn execute_system(&mut self, instruction: u32) {
        // svc: the kernel changes x0 only. mrs; sysl.
        if instruction >> 24 == 0xd4 {
            self.set(0, Value::Unknown);
        } else if instruction >> 20 == 0xd53 || instruction >> 19 == 0x1aa5 {
            self.set(field(instruction, 0), Value::Unknown);
        }
    }

    fn execute_registers(&mut self, instruction: u32) {
        let (to, from, other) =
            (field(instruction, 0), field(instruction, 5), field(instruction, 16));
        let number = match self.registers[other] {
            Value::Number(number) if other != SP_OR_ZERO => Some(number as i64),
            _ => None,
        };
        let sum = |sign: i64| match number {
            Some(number) => self.registers[from].plus(sign.wrapping_mul(number)),
            None => Value::Unknown,
        };
        match instruction {
            // mov xA, xB, which is orr with the register of zeros.
            _ if instruction & 0xffe0_ffe0 == 0xaa00_03e0 => {
                let zero = other == SP_OR_ZERO;
                self.set(to, if zero { Value::Number(0) } else { self.registers[other] });
            }
            // add, sub with a register that is not shifted (uxtx #0): here number 31 is sp.
            _ if instruction & 0xffe0_fc00 == 0x8b20_6000 => self.registers[to] = sum(1),
            _ if instruction & 0xffe0_fc00 == 0xcb20_6000 => self.registers[to] = sum(-1),
            // The other forms with extension.
            _ if instruction & 0x3fe0_0000 == 0x0b20_0000 => self.registers[to] = Value::Unknown,
            // The signature of an address is removed from the address where it is used.
            _ if instruction & 0xffff_0000 == 0xdac1_0000 => {}
            // ccmp, ccmn write flags.
            _ if instruction & 0x3fe0_0000 == 0x3a40_0000 => {}
            _ => self.set(to, Value::Unknown),
        }
    }

    fn execute_memory(&mut self, instruction: u32) {
        let (first, base) = (field(instruction, 0), field(instruction, 5));
        let is_vector = instruction >> 26 & 1 != 0;
        match instruction >> 27 & 7 {
            // Pairs.
            0b101 => {
                let (size, mode) = (instruction >> 30, instruction >> 23 & 3);
                let shift = if is_vector { 2 + size } else { 2 + (size >> 1) };
                let distance = sign_extended(instruction >> 15, 7) << shift;
                let at = self.address(base, distance, mode == 0b01);
                let is_word = size == 0b10 && !is_vector;
                let is_load = instruction >> 22 & 1 != 0;
                for (register, word) in [(first, 0), (field(instruction, 10), 8)] {
                    self.transfer(register, at.plus(word), is_load, is_word, is_vector);
                }
                if mode & 1 != 0 {
                    self.registers[base] = self.registers[base].plus(distance);
                }
            }
            // One register.
            0b111 => {
                let (size, operation) = (instruction >> 30, instruction >> 22 & 3);
                let is_scaled = instruction >> 24 & 1 != 0;
                let mode = instruction >> 10 & 3;
                let is_near = !is_scaled && instruction >> 21 & 1 == 0;
                let is_load = operation != 0;
                let distance = if is_scaled {
                    i64::from(instruction >> 10 & 0xfff) << size
                } else {
                    sign_extended(instruction >> 12, 9)
                };
                let is_word = size == 0b11 && operation < 2 && !is_vector && (is_scaled || is_near);
                let at = self.address(base, distance, is_near && mode == 0b01);
                // An atomic operation loads, too.
                let is_load = is_load || !is_scaled && !is_near && mode == 0;
                self.transfer(first, at, is_load, is_word, is_vector);
                if is_near && mode & 1 != 0 {
                    self.registers[base] = self.registers[base].plus(distance);
                }
            }
            // Of a literal.
            0b011 if !is_vector => self.set(first, Value::Unknown),
            // Exclusive and ordered ones: each field may be a target.
            0b001 if !is_vector => {
                for register in [first, field(instruction, 10), field(instruction, 16)] {
                    self.set(register, Value::Unknown);
                }
            }
            _ => {}
        }
    }

    /// Returns the address that an instruction accesses: before its base changes (`is_post`), or after.
    fn address(&self, base: usize, distance: i64, is_post: bool) -> Value {
        self.registers[base].plus(if is_post { 0 } else { distance })
    }

    /// Loads or stores a register; only words in places that are known matter.
    fn transfer(
        &mut self,
        register: usize,
        at: Value,
        is_load: bool,
        is_word: bool,
        is_vector: bool,
    ) {
        if is_vector {
            return;
        }
        if is_load {
            let value = if is_word { self.load(at) } else { Value::Unknown };
            self.set(register, value);
        } else if is_word && matches!(at, Value::RegPlus(..)) {
            let value =
                if register == SP_OR_ZERO { Value::Number(0) } else { self.registers[register] };
            self.stored.retain(|(other, _)| *other != at);
            self.stored.push((at, value));
        }
    }

    fn load(&self, at: Value) -> Value {
        let stored = self.stored.iter().find(|(other, _)| *other == at);
        match (stored, at) {
            (Some((_, value)), _) => *value,
            (None, Value::RegPlus(base, at)) => Value::WordAt(base, at),
            _ => Value::Unknown,
        }
    }
}

/// True if an instruction of vectors or floating point writes a general register (fmov, fcvt*, umov, smov).
fn is_move_to_general(instruction: u32) -> bool {
    instruction & 0x5f20_fc00 == 0x1e20_0000 || instruction & 0xbfe0_ec00 == 0x0e00_2c00
}

/// Returns a register number, five bits.
fn field(instruction: u32, bit: u32) -> usize {
    (instruction >> bit & 0x1f) as usize
}

/// Returns the lowest bits of a word as a signed number.
pub(super) fn sign_extended(word: u32, bits: u32) -> i64 {
    i64::from((word << (32 - bits)) as i32 >> (32 - bits))
}
