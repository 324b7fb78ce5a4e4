//! The symbolic state of a code analysis: the origin of the values in registers and on the stack, in
//! terms of the registers at the start of the path. Pure.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, OpKind, Register,
};

use gimli::constants::{DW_OP_breg0, DW_OP_consts, DW_OP_deref, DW_OP_plus};
use gimli::leb128;

use nprof_object::ImageAddress;

use crate::arch::code_bytes::Bytes;
use crate::arch::rule::{Cfa, Expression, RegisterRule, UnwindRule};
use crate::arch::stack::RETURN_ADDRESS_BELOW_CFA;
use crate::arch::x86_64::registers;

/// General registers, by DWARF's numbers.
const COUNT: usize = 16;

/// The most words written on one path; with more, the path yields no rule.
const STORED_MAX: usize = 256;

const SP: usize = registers::SP as usize;
const FP: usize = registers::FP as usize;

/// The base of addresses in a frame that the path realigned: the stack pointer after
/// `and $-64,%rsp`. Its distance from the registers at the start is not known.
const REALIGNED: usize = COUNT;

/// The origin of a value. A base is a register at the start, by DWARF's number, or [`REALIGNED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// The value of a base, plus an offset.
    RegPlus(usize, i64),
    /// The word in memory at the start, at an offset from a base, plus a distance. A function of
    /// gcc that realigns its stack keeps the address of its arguments in a register (DRAP, dynamic
    /// realign argument pointer), saves it in its frame, and restores the stack pointer from there.
    WordPlus(usize, i64, i64),
    /// The word in memory at such a sum.
    WordAt(usize, i64, i64),
    Unknown,
}

impl Value {
    fn plus(self, distance: i64) -> Self {
        match self {
            Self::RegPlus(base, at) => Self::RegPlus(base, at.wrapping_add(distance)),
            Self::WordPlus(base, at, plus) => Self::WordPlus(base, at, plus.wrapping_add(distance)),
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
    /// The highest stack pointer of the calls on the way, by its base.
    calls: Vec<(usize, i64)>,
    /// The registers that functions preserve, the stack pointer aside.
    preserved: &'static [u16],
    /// True if the path has realigned the stack.
    is_realigned: bool,
    /// True if the last comparison was of equal values; None if that is not known.
    is_equal: Option<bool>,
}

impl SymbolicState {
    /// Creates the state at the start of a path. After a call (`returns`) only the registers that a
    /// function preserves are known.
    pub(super) fn new(returns: bool, keeps_frame_pointer_only: bool) -> Self {
        let registers = std::array::from_fn(|register| Value::RegPlus(register, 0));
        let mut state = Self {
            registers,
            stored: Vec::new(),
            calls: Vec::new(),
            preserved: if keeps_frame_pointer_only {
                &registers::FRAME_POINTER_ONLY
            } else {
                &registers::PRESERVED
            },
            is_realigned: false,
            is_equal: None,
        };
        if returns {
            state.call();
        }
        state
    }

    /// Returns the part of the state that distinguishes visits of one address.
    pub(super) fn key(&self) -> impl std::hash::Hash + use<> {
        let kept = registers::PRESERVED.map(|register| self.registers[usize::from(register)]);
        (self.registers[SP], kept)
    }

    /// True if the state is small enough to go on.
    pub(super) fn is_bounded(&self) -> bool {
        self.stored.len() <= STORED_MAX
    }

    /// Applies a call and its return.
    pub(super) fn call(&mut self) {
        for register in 0..COUNT {
            if register != SP && !self.is_preserved(register) {
                self.registers[register] = Value::Unknown;
            }
        }
        let Value::RegPlus(base, at) = self.registers[SP] else { return };
        match self.calls.iter_mut().find(|call| call.0 == base) {
            Some(call) => call.1 = call.1.max(at),
            None => self.calls.push((base, at)),
        }
    }

    /// True if the stack pointer and the frame pointer have their values of the start.
    pub(super) fn is_as_at_start(&self) -> bool {
        [SP, FP].iter().all(|&register| self.registers[register] == Value::RegPlus(register, 0))
    }

    /// True if functions preserve a register.
    fn is_preserved(&self, register: usize) -> bool {
        self.preserved.iter().any(|&preserved| usize::from(preserved) == register)
    }

    /// Applies an instruction that is neither a jump nor a call.
    pub(super) fn execute(
        &mut self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) {
        let known = match instruction.mnemonic() {
            Mnemonic::Push => self.push(instruction),
            Mnemonic::Pop => self.pop(instruction),
            Mnemonic::Leave => self.leave(instruction),
            Mnemonic::Mov => self.copy(instruction),
            Mnemonic::Lea => self.load_address(instruction),
            Mnemonic::Add => self.add(instruction, 1),
            Mnemonic::Sub => self.add(instruction, -1),
            Mnemonic::And => self.realign(instruction),
            _ => None,
        };
        self.is_equal = match instruction.mnemonic() {
            Mnemonic::Cmp => self.compare(instruction),
            _ => None,
        };
        if known.is_none() {
            self.forget_written(instruction, factory);
        }
    }

    /// Makes all registers unknown that an instruction writes, except for the stack pointer if it is
    /// moved by a constant.
    fn forget_written(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        let moved = match instruction.mnemonic() {
            Mnemonic::Pushfq | Mnemonic::Popfq | Mnemonic::Push | Mnemonic::Pop => {
                let by = i64::from(instruction.stack_pointer_increment());
                self.registers[SP].plus(by)
            }
            _ => Value::Unknown,
        };
        let is_moved = moved != Value::Unknown;
        if is_moved && instruction.stack_pointer_increment() < 0 {
            self.store(moved, Value::Unknown);
        }
        let options = InstructionInfoOptions::NO_MEMORY_USAGE;
        let info = factory.info_options(instruction, options);
        for used in info.used_registers() {
            let is_read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if let Some(register) = number(used.register().full_register()).filter(|_| !is_read) {
                self.registers[register] = Value::Unknown;
            }
        }
        let is_written = !matches!(info.op0_access(), OpAccess::Read | OpAccess::CondRead);
        if is_written && instruction.op0_kind() == OpKind::Memory {
            let size = instruction.memory_size().size() as i64;
            for at in (0..size).step_by(8) {
                let address = self.address(instruction).map(|address| address.plus(at));
                address.into_iter().for_each(|address| self.store(address, Value::Unknown));
            }
        }
        if is_moved {
            self.registers[SP] = moved;
        }
        // The kernel returns its result in rax, which the decoder does not list.
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.registers[0] = Value::Unknown;
        }
    }

    fn push(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.stack_pointer_increment() != -8 {
            return None;
        }
        let value = match instruction.op0_kind() {
            OpKind::Register => self.registers[number(instruction.op0_register())?],
            // A constant or a word in memory: no register can be restored from it.
            _ => Value::Unknown,
        };
        self.registers[SP] = self.registers[SP].plus(-8);
        self.store(self.registers[SP], value);
        Some(())
    }

    fn pop(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.op0_kind() != OpKind::Register {
            return None;
        }
        let register = number(instruction.op0_register())?;
        let value = self.load(self.registers[SP]);
        self.registers[SP] = self.registers[SP].plus(8);
        self.registers[register] = value;
        Some(())
    }

    fn leave(&mut self, instruction: &Instruction) -> Option<()> {
        // The 16-bit form pops only a part of the frame pointer.
        if instruction.code() != iced_x86::Code::Leaveq {
            return None;
        }
        let frame = self.registers[FP];
        self.registers[FP] = self.load(frame);
        self.registers[SP] = frame.plus(8);
        Some(())
    }

    fn copy(&mut self, instruction: &Instruction) -> Option<()> {
        match (instruction.op0_kind(), instruction.op1_kind()) {
            (OpKind::Register, OpKind::Register) => {
                let [to, from] = [instruction.op0_register(), instruction.op1_register()];
                self.registers[number(to)?] = self.registers[number(from)?];
            }
            (OpKind::Register, OpKind::Memory) => {
                let to = number(instruction.op0_register())?;
                self.registers[to] = self.load(self.address(instruction)?);
            }
            (OpKind::Memory, OpKind::Register) => {
                let from = number(instruction.op1_register())?;
                self.store(self.address(instruction)?, self.registers[from]);
            }
            _ => return None,
        }
        Some(())
    }

    fn load_address(&mut self, instruction: &Instruction) -> Option<()> {
        let to = number(instruction.op0_register())?;
        let is_counted = instruction.op0_register() == instruction.memory_base();
        let address = self.address(instruction).filter(|_| !is_counted || is_frame(to))?;
        self.registers[to] = address;
        Some(())
    }

    fn add(&mut self, instruction: &Instruction, sign: i64) -> Option<()> {
        let is_immediate =
            matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        if instruction.op0_kind() != OpKind::Register || !is_immediate {
            return None;
        }
        let to = number(instruction.op0_register()).filter(|&to| is_frame(to))?;
        let distance = (instruction.immediate(1) as i64).wrapping_mul(sign);
        self.registers[to] = self.registers[to].plus(distance);
        Some(())
    }

    /// True if a comparison is of equal addresses in a frame. None if they are not known. Functions
    /// that touch each page of a large frame (`-fstack-clash-protection`) compare the stack pointer
    /// with its last value.
    fn compare(&self, instruction: &Instruction) -> Option<bool> {
        if instruction.op1_kind() != OpKind::Register {
            return None;
        }
        let one = self.registers[number(instruction.op0_register())?];
        let other = self.registers[number(instruction.op1_register())?];
        match (one, other) {
            (Value::RegPlus(base, at), Value::RegPlus(other, there)) if base == other => {
                Some(at == there)
            }
            _ => None,
        }
    }

    /// True if a conditional jump is taken. None if that is not known.
    pub(super) fn is_taken(&self, jump: &Instruction) -> Option<bool> {
        match jump.condition_code() {
            ConditionCode::e => self.is_equal,
            ConditionCode::ne => self.is_equal.map(|is_equal| !is_equal),
            _ => None,
        }
    }

    /// Applies the realignment of the stack pointer.
    fn realign(&mut self, instruction: &Instruction) -> Option<()> {
        let is_mask =
            matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        if instruction.op0_register() != Register::RSP || !is_mask || self.is_realigned {
            return None;
        }
        self.is_realigned = true;
        self.registers[SP] = Value::RegPlus(REALIGNED, 0);
        Some(())
    }

    /// Returns the address of a memory operand, if it is a register plus a constant.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let is_plain = instruction.memory_index() == Register::None
            && matches!(instruction.segment_prefix(), Register::None);
        let base = number(instruction.memory_base()).filter(|_| is_plain)?;
        Some(self.registers[base].plus(instruction.memory_displacement64() as i64))
    }

    fn load(&self, address: Value) -> Value {
        let (base, at) = match address {
            Value::RegPlus(base, at) => (base, at),
            Value::WordPlus(base, at, plus) => return Value::WordAt(base, at, plus),
            _ => return Value::Unknown,
        };
        let overlaps = |(stored, _): &&(Value, Value)| match stored {
            Value::RegPlus(other, there) => *other == base && there.abs_diff(at) < 8,
            _ => false,
        };
        match self.stored.iter().rev().find(overlaps) {
            Some((stored, value)) if *stored == address => *value,
            // A part of the word was overwritten.
            Some(_) => Value::Unknown,
            None => Value::WordPlus(base, at, 0),
        }
    }

    fn store(&mut self, address: Value, value: Value) {
        if !matches!(address, Value::RegPlus(..)) {
            return;
        }
        // A later write replaces an earlier one.
        self.stored.retain(|(stored, _)| *stored != address);
        self.stored.push((address, value));
    }

    /// Returns the rule for the start of the path, if the function returns here. None if the stack
    /// pointer cannot point to its return address.
    pub(super) fn rule_at_return(&self) -> Option<UnwindRule> {
        let top = self.registers[SP];
        let cfa = match top {
            Value::RegPlus(base, at) => {
                // A function that calls another has its own return address above that of the call.
                // Else the call never returned, and this is the end of another function.
                let is_above = |call: &(usize, i64)| call.0 != base || at > call.1;
                let is_below = base == SP && at < 0;
                if base == REALIGNED || is_below || !self.calls.iter().all(is_above) {
                    return None;
                }
                Cfa::Register(base as u16, at.checked_add(8)?)
            }
            // A frame holds the address of the caller's. Other code that loads the stack pointer
            // switches stacks.
            Value::WordPlus(base, at, plus) if is_frame(base) => {
                Cfa::Expression(word_plus(base, at, plus.checked_add(8)?)?)
            }
            _ => return None,
        };
        // The path must not have written to the return address.
        let is_kept = match (self.load(top), top) {
            (Value::WordPlus(base, at, 0), top) => top == Value::RegPlus(base, at),
            (Value::WordAt(..), _) => true,
            _ => false,
        };
        if !is_kept {
            return None;
        }
        let mut registers = Vec::new();
        for register in registers::PRESERVED {
            if let Some(saved) = self.saved(usize::from(register), top)? {
                registers.push((register, saved));
            }
        }
        Some(UnwindRule {
            cfa,
            return_address: RETURN_ADDRESS_BELOW_CFA,
            registers: registers.into(),
            signal: false,
        })
    }

    /// Returns the rule for the start of the path, if the function returns by this jump: to its return
    /// address, which it has popped to a register. HotSpot's interpreter does so, and leaves the stack
    /// pointer of its caller.
    pub(super) fn rule_at_jump(&self, jump: &Instruction) -> Option<UnwindRule> {
        if jump.op0_kind() != OpKind::Register {
            return None;
        }
        let Value::WordPlus(from, slot, 0) = self.registers[number(jump.op0_register())?] else {
            return None;
        };
        let cfa = match self.registers[SP] {
            Value::RegPlus(REALIGNED, _) => return None,
            // The register was loaded from a frame that is still there.
            Value::RegPlus(base, at) if base == from && slot >= at => return None,
            Value::RegPlus(base, at) => Cfa::Register(base as u16, at),
            Value::WordPlus(base, at, plus) if is_frame(base) => {
                Cfa::Expression(word_plus(base, at, plus)?)
            }
            _ => return None,
        };
        let frame_pointer = match self.registers[FP] {
            Value::RegPlus(FP, 0) => RegisterRule::SameValue,
            Value::WordPlus(base, at, 0) if is_frame(base) => {
                RegisterRule::AtExpression(sum(base, at)?)
            }
            _ => return None,
        };
        let saved = |register| {
            if usize::from(register) == FP {
                frame_pointer.clone()
            } else {
                RegisterRule::Undefined
            }
        };
        Some(UnwindRule {
            cfa,
            return_address: RegisterRule::AtExpression(sum(from, slot)?),
            registers: registers::PRESERVED.map(|register| (register, saved(register))).into(),
            signal: false,
        })
    }

    /// Returns the rule for the end of the path, if it began at the start of a function. None if no
    /// register leads to the caller's frame.
    pub(super) fn rule_since_entry(&self) -> Option<UnwindRule> {
        // The CFA is 8 bytes above the stack pointer at the start.
        let distance = |value: Value| match value {
            Value::RegPlus(SP, at) => 8_i64.checked_sub(at),
            _ => None,
        };
        let order = [SP, FP].into_iter().chain((0..COUNT).filter(|&other| !is_frame(other)));
        let mut bases = order.map(|register| (register, distance(self.registers[register])));
        let direct = bases.find_map(|(register, distance)| Some((register, distance?)));
        // In a realigned frame, a word holds an address of the caller's.
        let realigned = [FP, SP].into_iter().find_map(|register| match self.registers[register] {
            Value::RegPlus(REALIGNED, at) => Some((register, at)),
            _ => None,
        });
        let slot = |address: Value| match (address, realigned) {
            (Value::RegPlus(REALIGNED, at), Some((register, base))) => {
                Some((register, at.checked_sub(base)?))
            }
            _ => None,
        };
        let cfa = match direct {
            Some((register, distance)) => Cfa::Register(register as u16, distance),
            None => self.stored.iter().find_map(|&(address, value)| {
                let (register, offset) = slot(address)?;
                Some(Cfa::Expression(word_plus(register, offset, distance(value)?)?))
            })?,
        };
        let saved = |register: usize| {
            let value = Value::RegPlus(register, 0);
            if self.registers[register] == value {
                return RegisterRule::SameValue;
            }
            if !self.is_preserved(register) {
                return RegisterRule::Undefined;
            }
            let rule = |&(address, stored): &(Value, Value)| match address {
                _ if stored != value => None,
                Value::RegPlus(SP, at) => Some(RegisterRule::AtCfaOffset(at.checked_sub(8)?)),
                _ => {
                    let (register, offset) = slot(address)?;
                    Some(RegisterRule::AtExpression(sum(register, offset)?))
                }
            };
            self.stored.iter().find_map(rule).unwrap_or(RegisterRule::Undefined)
        };
        let rules = registers::PRESERVED.map(|register| (register, saved(usize::from(register))));
        let rules = rules.into_iter().filter(|(_, saved)| *saved != RegisterRule::SameValue);
        Some(UnwindRule {
            cfa,
            return_address: RETURN_ADDRESS_BELOW_CFA,
            registers: rules.collect(),
            signal: false,
        })
    }

    /// Returns the rule of a preserved register, if the function returns here with the stack pointer
    /// `top`: none if it is unchanged. None if no function returns with such a value.
    fn saved(&self, register: usize, top: Value) -> Option<Option<RegisterRule>> {
        let saved = match (self.registers[register], top) {
            (Value::RegPlus(same, 0), _) if same == register => return Some(None),
            _ if !self.is_preserved(register) => RegisterRule::Undefined,
            (Value::WordPlus(from, slot, 0), Value::RegPlus(base, at)) if from == base => {
                if slot >= at {
                    return None;
                }
                RegisterRule::AtCfaOffset(slot.checked_sub(at.checked_add(8)?)?)
            }
            (Value::WordAt(from, word, slot), Value::WordPlus(base, at, plus)) => {
                if (from, word) != (base, at) || slot >= plus {
                    return None;
                }
                RegisterRule::AtCfaOffset(slot.checked_sub(plus.checked_add(8)?)?)
            }
            (Value::WordPlus(from, slot, 0), _) if is_frame(from) => {
                RegisterRule::AtExpression(sum(from, slot)?)
            }
            (Value::WordPlus(..), _) => RegisterRule::Undefined,
            // Functions preserve these registers, so this is the end of another function.
            _ => return None,
        };
        Some(Some(saved))
    }

    /// True if [`Self::rule_via_table`] can use a rule: it has no expressions.
    pub(super) fn can_end_by(&self, row: &UnwindRule) -> bool {
        let is_expression = |saved: &RegisterRule| matches!(saved, RegisterRule::AtExpression(_));
        matches!(row.cfa, Cfa::Register(..))
            && !row.registers.iter().any(|(_, saved)| is_expression(saved))
    }

    /// Returns the rule for the start of the path, if it continues at an address with this rule of an
    /// unwind table.
    pub(super) fn rule_via_table(mut self, row: &UnwindRule) -> Option<UnwindRule> {
        let Cfa::Register(register, distance) = row.cfa else { return None };
        if row.signal || row.return_address != RETURN_ADDRESS_BELOW_CFA {
            return None;
        }
        let cfa = self.registers.get(usize::from(register))?.plus(distance);
        for (register, saved) in &row.registers {
            let value = match saved {
                RegisterRule::SameValue => continue,
                RegisterRule::AtCfaOffset(offset) => self.load(cfa.plus(*offset)),
                _ => Value::Unknown,
            };
            if let Some(slot) = self.registers.get_mut(usize::from(*register)) {
                *slot = value;
            }
        }
        self.registers[SP] = cfa.plus(-8);
        self.rule_at_return()
    }
}

/// Returns the instruction at the start of some code. None if there is none.
pub(super) fn decode(code: &Bytes, at: ImageAddress) -> Option<Instruction> {
    let bytes = code.bytes.get(..code.length)?;
    let instruction = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Returns the expression of a register plus an offset.
fn sum(register: usize, offset: i64) -> Option<Expression> {
    expression(register, offset, &[])
}

/// Returns the expression of the word at an offset from a register, plus a distance.
fn word_plus(register: usize, offset: i64, plus: i64) -> Option<Expression> {
    let mut operations = vec![DW_OP_deref.0, DW_OP_consts.0];
    leb128::write::signed(&mut operations, plus).ok()?;
    operations.push(DW_OP_plus.0);
    expression(register, offset, &operations)
}

/// Returns an expression that applies operations to a register plus an offset.
fn expression(register: usize, offset: i64, operations: &[u8]) -> Option<Expression> {
    let mut code = vec![DW_OP_breg0.0 + u8::try_from(register).ok()?];
    leb128::write::signed(&mut code, offset).ok()?;
    code.extend(operations);
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    Some(Expression { code: code.into(), encoding })
}

/// True if constants added to a register matter. Others are counters, and would make every iteration
/// of a loop a new state.
fn is_frame(register: usize) -> bool {
    register == SP || register == FP
}

/// Returns DWARF's number of a 64-bit general register.
fn number(register: Register) -> Option<usize> {
    const NUMBERS: [usize; COUNT] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
    register.is_gpr64().then(|| NUMBERS[register.number()])
}
