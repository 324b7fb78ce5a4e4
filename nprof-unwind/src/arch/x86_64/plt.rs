//! Unwind rules for procedure linkage tables that no unwind table covers, as post-link
//! optimizers leave them. Pure. The layouts are those of the x86-64 psABI, with and without
//! `endbr64`; they have no instruction boundary in common where their rules differ.

use crate::arch::rule::{Cfa, UnwindRule};
use crate::arch::stack::RETURN_ADDRESS_BELOW_CFA;
use crate::arch::x86_64::registers::SP;

/// Bytes of an entry.
const ENTRY: u64 = 16;

/// The sections that hold such tables, and whether their first entry is the one the others jump to.
pub(crate) const SECTIONS: [(&[u8], bool); 4] =
    [(b".plt", true), (b".plt.sec", false), (b".plt.got", false), (b".iplt", false)];

/// Returns the rule at an offset.
pub(crate) fn rule(at: u64, has_header: bool) -> UnwindRule {
    let pushed = match at {
        // push GOT[1]; jmp *GOT[2]: after the entry's own push.
        0..6 if has_header => 1,
        6..ENTRY if has_header => 2,
        // jmp *GOT[n]; push n; jmp header, or endbr64; push n; jmp header.
        _ if at % ENTRY >= 9 => 1,
        _ => 0,
    };
    UnwindRule {
        cfa: Cfa::Register(SP, 8 * (1 + pushed)),
        return_address: RETURN_ADDRESS_BELOW_CFA,
        registers: [].into(),
        signal: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfa_follows_the_pushes_of_an_entry() {
        let words = |at, has_header| match rule(at, has_header).cfa {
            Cfa::Register(SP, offset) => Some(offset / 8),
            _ => None,
        };
        assert_eq!([0, 6].map(|at| words(at, true)), [Some(2), Some(3)]);
        // jmp, push, jmp; then with endbr64 before the push.
        let lazy = [0x10, 0x16, 0x1b, 0x20, 0x24, 0x29].map(|at| words(at, true));
        assert_eq!(lazy, [Some(1), Some(1), Some(2), Some(1), Some(1), Some(2)]);
        assert_eq!([0, 4].map(|at| words(at, false)), [Some(1), Some(1)]);
    }
}
