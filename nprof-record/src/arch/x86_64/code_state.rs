//! The symbolic state of a code analysis: the origin of the values in registers and on the stack, in
//! terms of the registers at the start of the path. Pure.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};
use crate::arch::x86_64::frames::PUSHED_RETURN_ADDRESS;
use crate::arch::x86_64::registers;

/// General registers, by DWARF's numbers.
const COUNT: usize = 16;

/// The most words written on one path; with more, the path yields no rule.
const STORED_MAX: usize = 256;

const SP: usize = registers::SP as usize;
const FP: usize = registers::FP as usize;

/// The registers that a called function may change: rax, rdx, rcx, rsi, rdi, r8 to r11.
const CLOBBERED: [usize; 9] = [0, 1, 2, 4, 5, 8, 9, 10, 11];

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// The value of a register at the start, plus an offset.
    RegPlus(usize, i64),
    /// The word in memory at the start, at an offset from the value of a register.
    StackWord(usize, i64),
    Unknown,
}

impl Value {
    fn plus(self, distance: i64) -> Self {
        match self {
            Self::RegPlus(register, at) => Self::RegPlus(register, at.wrapping_add(distance)),
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
    /// The highest stack pointer of the calls on the way, by its base register.
    calls: Vec<(usize, i64)>,
}

impl SymbolicState {
    /// Creates the state at the start of a path. After a call (`returns`) only the registers that a
    /// function preserves are known.
    pub(super) fn new(returns: bool) -> Self {
        let registers = std::array::from_fn(|register| Value::RegPlus(register, 0));
        let mut state = Self { registers, stored: Vec::new(), calls: Vec::new() };
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
        for register in CLOBBERED {
            self.registers[register] = Value::Unknown;
        }
        let Value::RegPlus(base, at) = self.registers[SP] else { return };
        match self.calls.iter_mut().find(|call| call.0 == base) {
            Some(call) => call.1 = call.1.max(at),
            None => self.calls.push((base, at)),
        }
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

    /// Returns the address of a memory operand, if it is a register plus a constant.
    fn address(&self, instruction: &Instruction) -> Option<Value> {
        let is_plain = instruction.memory_index() == Register::None
            && matches!(instruction.segment_prefix(), Register::None);
        let base = number(instruction.memory_base()).filter(|_| is_plain)?;
        Some(self.registers[base].plus(instruction.memory_displacement64() as i64))
    }

    fn load(&self, address: Value) -> Value {
        let Value::RegPlus(base, at) = address else { return Value::Unknown };
        let overlaps = |(stored, _): &&(Value, Value)| match stored {
            Value::RegPlus(other, there) => *other == base && there.abs_diff(at) < 8,
            _ => false,
        };
        match self.stored.iter().rev().find(overlaps) {
            Some((stored, value)) if *stored == address => *value,
            // A part of the word was overwritten.
            Some(_) => Value::Unknown,
            None => Value::StackWord(base, at),
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
        let Value::RegPlus(base, at) = self.registers[SP] else { return None };
        // A function that calls another has its own return address above that of the call. Else
        // the call never returned, and this is the end of another function.
        let is_above = |call: &(usize, i64)| call.0 != base || at > call.1;
        let is_kept = self.load(self.registers[SP]) == Value::StackWord(base, at);
        if !is_kept || base == SP && at < 0 || !self.calls.iter().all(is_above) {
            return None;
        }
        let cfa = at.checked_add(8)?;
        let mut registers = Vec::new();
        for register in registers::PRESERVED {
            match self.registers[usize::from(register)] {
                Value::RegPlus(same, 0) if same == usize::from(register) => {}
                Value::StackWord(from, slot) if from == base && slot < at => {
                    registers.push((register, RegisterRule::AtCfaOffset(slot.checked_sub(cfa)?)));
                }
                Value::StackWord(from, _) if from != base => {
                    registers.push((register, RegisterRule::Undefined));
                }
                // Functions preserve these registers, so this is the end of another function.
                _ => return None,
            }
        }
        Some(UnwindRule {
            cfa: Cfa::Register(base as u16, cfa),
            return_address: PUSHED_RETURN_ADDRESS,
            registers: registers.into(),
            signal: false,
        })
    }

    /// Returns the rule for the start of the path, if it continues at an address with this rule of an
    /// unwind table.
    pub(super) fn rule_via_table(mut self, row: &UnwindRule) -> Option<UnwindRule> {
        let Cfa::Register(register, distance) = row.cfa else { return None };
        if row.signal || row.return_address != PUSHED_RETURN_ADDRESS {
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
