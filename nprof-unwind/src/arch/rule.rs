//! Unwind rules: how to find the registers of a caller, in the terms of DWARF (section 6.4).

use std::rc::Rc;

use gimli::Encoding;

/// A DWARF expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    /// Its operations.
    pub code: Box<[u8]>,
    /// The encoding of its operands.
    pub encoding: Encoding,
}

/// The rule of the canonical frame address (CFA), the stack pointer before the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// The value of a register plus an offset in bytes.
    Register(u16, i64),
    /// The value of an expression.
    Expression(Expression),
}

/// The rule of a register in the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRule {
    /// The value is lost. For the return address: there is no caller.
    Undefined,
    /// The register is unchanged.
    SameValue,
    /// In memory, at an offset in bytes from the CFA (DWARF: offset(N)).
    AtCfaOffset(i64),
    /// The CFA plus an offset in bytes (DWARF: val_offset(N)).
    CfaPlus(i64),
    /// In another register.
    Register(u16),
    /// In memory, at the address that an expression yields.
    AtExpression(Expression),
    /// The value of an expression.
    ValueExpression(Expression),
    /// For the return address: on another stack, in an unknown place. The function has switched stacks.
    OnOtherStack,
}

/// The rules of all registers at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnwindRule {
    /// The rule of the CFA.
    pub cfa: Cfa,
    /// The rule of the return address.
    pub return_address: RegisterRule,
    /// By DWARF's numbers, without the return address and without registers that have no rule.
    pub registers: Box<[(u16, RegisterRule)]>,
    /// True if this is the frame that the kernel creates to call a signal handler: its caller was
    /// interrupted, and has not called anything.
    pub signal: bool,
}

impl UnwindRule {
    /// True if there is no caller.
    #[inline]
    pub fn is_end_of_stack(&self) -> bool {
        self.return_address == RegisterRule::Undefined
    }
}

/// The frames of code generated at run time, see `arch::generated_code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedFrame {
    /// Its functions set the frame pointer.
    FramePointer,
    /// It is the interpreter of HotSpot.
    Interpreter,
    /// Its functions may use the frame pointer for something else.
    Unknown,
}

/// The result of the analysis of code that no unwind table covers, see
/// `arch::code_analysis`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalyzedRule {
    /// The rule that follows from the code.
    Rule(Rc<UnwindRule>),
    /// The code ends the thread after the call, so there is no caller.
    ThreadStart,
    /// No call precedes the code, and it never returns: its address was put at the end of a new
    /// stack, by makecontext(3) or for a goroutine, so there is no caller.
    StackBottom,
    /// The code could not be followed to its end.
    Unknown,
}
