//! The rule that finds the registers of a caller, in DWARF's terms.

use std::rc::Rc;

use gimli::Encoding;

/// A DWARF expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    pub code: Box<[u8]>,
    pub encoding: Encoding,
}

/// Where the canonical frame address (CFA) is: the stack pointer before the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// So many bytes from a register's value.
    Register(u16, i64),
    /// What this gives.
    Expression(Expression),
}

/// Where the caller's value of a register is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRule {
    /// Nowhere. For the return address: there is no caller.
    Undefined,
    /// Still in the register.
    SameValue,
    /// In memory, so many bytes from the CFA.
    AtCfaOffset(i64),
    /// It is the CFA plus so many bytes.
    CfaPlus(i64),
    /// In another register.
    Register(u16),
    /// In memory where this points.
    AtExpression(Expression),
    /// It is what this gives.
    ValueExpression(Expression),
}

/// How to find the registers of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnwindRule {
    pub cfa: Cfa,
    pub return_address: RegisterRule,
    /// By DWARF's numbers; without the return address and registers there is no rule for.
    pub registers: Box<[(u16, RegisterRule)]>,
    /// Whether this is the frame the kernel makes to call a signal handler: what it "returns"
    /// to was interrupted, not left by a call.
    pub signal: bool,
}

impl UnwindRule {
    /// Whether there is no caller.
    pub fn is_end_of_stack(&self) -> bool {
        self.return_address == RegisterRule::Undefined
    }
}

/// What code that no unwind table covers says of its caller, see [`crate::arch::code_analysis`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalyzedRule {
    Rule(Rc<UnwindRule>),
    /// There is none: it ends the thread that was made to call what it called.
    ThreadStart,
    Unknown,
}
