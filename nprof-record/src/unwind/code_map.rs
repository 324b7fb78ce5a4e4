//! What the unwinder asks of the code of a process.

use std::rc::Rc;

use crate::unwind::frame_address::Address;
use crate::unwind::rule::Row;

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
