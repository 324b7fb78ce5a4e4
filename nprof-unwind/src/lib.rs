//! Unwinds stacks: from the registers and a copy of the stack of a thread to its return addresses.
//!
//! The unwinder asks a [`CodeMap`](unwind::CodeMap) for the rule at each address. [`image`] reads the rules
//! from the unwind tables of ELF files, and finds them by the analysis of code that has none. A stack that
//! ends before its root has the reason as its mark.

pub mod arch;
pub mod image;
pub mod unwind;
