//! Assembles BPF instructions: `struct bpf_insn` of include/uapi/linux/bpf.h, described in
//! Documentation/bpf/standardization/instruction-set.rst of Linux. Pure. It has only the
//! instructions that the recorder's one program needs; the kernel's verifier checks the program.

/// A register. R1 to R5 carry a call's arguments and are lost by it, R0 its result; R6 to R9
/// outlive it; R10 is the end of the program's stack, which grows down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// An operation on two 64-bit numbers; its result replaces the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AluOp {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Set = 0xb0,
}

/// The condition of a jump: a comparison of two unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum JumpIf {
    Equal = 0x10,
    Above = 0x20,
    NotBelow = 0x30,
    NotEqual = 0x50,
}

/// The second of two numbers; a constant is extended with its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    Constant(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Constant(constant)
    }
}

/// A place in the program to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<u64>,
    /// The position of each label; `None` before it is bound.
    labels: Vec<Option<usize>>,
    /// The jumps, with their labels.
    jumps: Vec<(usize, Label)>,
}

/// Instruction classes with their modes.
const LOAD_MAP: u8 = 0x18;
const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
const STORE_HALF: u8 = 0x63;
const COMPUTE: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_AT_LIMIT: u8 = 0xe5;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Set in the operation code when the second number is in a register.
const BY_REGISTER: u8 = 0x08;

/// The number in the place of the source register that marks a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;

impl Assembler {
    fn push(&mut self, code: u8, registers: (u8, u8), offset: i16, constant: i32) {
        // The bit fields of `struct bpf_insn`: dst_reg is in the lower half of its byte.
        let [code, registers] = [u64::from(code), u64::from(registers.0 | registers.1 << 4)];
        let offset = u64::from(offset as u16) << 16;
        self.code.push(code | registers << 8 | offset | u64::from(constant as u32) << 32);
    }

    fn push_with(&mut self, code: u8, first: Register, second: Operand) {
        match second {
            Operand::Register(second) => {
                self.push(code | BY_REGISTER, (first as u8, second as u8), 0, 0);
            }
            Operand::Constant(second) => self.push(code, (first as u8, 0), 0, second),
        }
    }

    /// Computes in 64 bits.
    pub(crate) fn compute(
        &mut self,
        operation: AluOp,
        first: Register,
        second: impl Into<Operand>,
    ) {
        self.push_with(COMPUTE | operation as u8, first, second.into());
    }

    /// Sets a register.
    pub(crate) fn set(&mut self, register: Register, to: impl Into<Operand>) {
        self.compute(AluOp::Set, register, to);
    }

    /// Loads 8 bytes from memory.
    pub(crate) fn load(&mut self, to: Register, base: Register, offset: i16) {
        self.push(LOAD, (to as u8, base as u8), offset, 0);
    }

    /// Stores 8 bytes in memory.
    pub(crate) fn store(&mut self, base: Register, offset: i16, from: Register) {
        self.push(STORE, (base as u8, from as u8), offset, 0);
    }

    /// Stores the lower 4 bytes in memory.
    pub(crate) fn store_half(&mut self, base: Register, offset: i16, from: Register) {
        self.push(STORE_HALF, (base as u8, from as u8), offset, 0);
    }

    /// Loads the address of a map, given its descriptor.
    pub(crate) fn load_map(&mut self, to: Register, descriptor: i32) {
        self.push(LOAD_MAP, (to as u8, MAP_DESCRIPTOR), 0, descriptor);
        // A 64-bit constant takes two slots; the second has its upper half, 0 for a descriptor.
        self.push(0, (0, 0), 0, 0);
    }

    /// Calls one of the kernel's helper functions, see bpf-helpers(7).
    pub(crate) fn call(&mut self, helper: i32) {
        self.push(CALL, (0, 0), 0, helper);
    }

    /// Ends the program; R0 is its result.
    pub(crate) fn exit(&mut self) {
        self.push(EXIT, (0, 0), 0, 0);
    }

    /// Creates a label, to be bound later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to this position.
    pub(crate) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Jumps.
    pub(crate) fn jump(&mut self, to: Label) {
        // The distance is filled in by `finish`, when all labels are bound.
        self.jumps.push((self.code.len(), to));
        self.push(JUMP, (0, 0), 0, 0);
    }

    /// Jumps if the comparison of two numbers holds.
    pub(crate) fn jump_when(
        &mut self,
        first: Register,
        when: JumpIf,
        second: impl Into<Operand>,
        to: Label,
    ) {
        self.jumps.push((self.code.len(), to));
        self.push_with(JUMP | when as u8, first, second.into());
    }

    /// Jumps once the program has been here more often than the kernel allows, 8192 times (`may_goto`, Linux
    /// 6.9). The verifier then takes any loop through this place to end.
    pub(crate) fn jump_at_limit(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JUMP_AT_LIMIT, (0, 0), 0, 0);
    }

    /// Returns the program. A jump to a label that was not bound, or is farther than 32767 instructions,
    /// goes to itself, which the verifier refuses.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].and_then(|to| i64::try_from(to).ok());
            // A distance counts from the instruction after the jump.
            let distance = to.and_then(|to| i16::try_from(to - at as i64 - 1).ok()).unwrap_or(-1);
            self.code[at] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R0, R1, R2, R6, R10};

    #[test]
    fn instructions_are_encoded_as_specified() {
        let mut code = Assembler::default();
        code.set(R6, R1);
        code.set(R0, -1);
        code.compute(AluOp::ShiftRight, R0, 22);
        code.load(R2, R1, 136);
        code.store(R10, -8, R2);
        code.store_half(R10, -4, R0);
        code.load_map(R1, 7);
        code.call(25);
        code.exit();
        assert_eq!(
            code.finish(),
            [
                0x0000_0000_0000_16bf, // r6 = r1
                0xffff_ffff_0000_00b7, // r0 = -1
                0x0000_0016_0000_0077, // r0 >>= 22
                0x0000_0000_0088_1279, // r2 = *(u64 *)(r1 + 136)
                0x0000_0000_fff8_2a7b, // *(u64 *)(r10 - 8) = r2
                0x0000_0000_fffc_0a63, // *(u32 *)(r10 - 4) = r0
                0x0000_0007_0000_1118, // r1 = map 7
                0,
                0x0000_0019_0000_0085, // call 25
                0x0000_0000_0000_0095, // exit
            ]
        );
    }

    #[test]
    fn jump_offset_counts_from_the_next_instruction() {
        let mut code = Assembler::default();
        let (top, end, nowhere) = (code.label(), code.label(), code.label());
        code.bind(top);
        code.jump_when(R1, JumpIf::Equal, 3, end);
        code.jump_when(R1, JumpIf::Above, R2, top);
        code.jump(top);
        code.jump_at_limit(end);
        code.bind(end);
        code.jump(nowhere);
        assert_eq!(
            code.finish(),
            [
                0x0000_0003_0003_0115, // if r1 == 3 goto +3
                0x0000_0000_fffe_212d, // if r1 > r2 goto -2
                0x0000_0000_fffd_0005, // goto -3
                0x0000_0000_0000_00e5, // may_goto +0
                0x0000_0000_ffff_0005, // goto -1
            ]
        );
    }
}
