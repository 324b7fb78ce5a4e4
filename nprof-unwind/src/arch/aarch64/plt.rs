//! Unwind rules for procedure linkage tables: linkers write no unwind table for them. Pure. The layout is that of
//! ld, lld and mold, with and without `bti c`.

use crate::arch::aarch64::registers::{LINK, SP};
use crate::arch::rule::{Cfa, RegisterRule, UnwindRule};

/// The sections that hold such tables, and whether their first entry is the one the others jump to.
pub(crate) const SECTIONS: [(&[u8], bool); 2] = [(b".plt", true), (b".iplt", false)];

/// Bytes of the first entry.
const HEADER: u64 = 32;

/// Returns the rule at an offset.
pub(crate) fn rule(at: u64, has_header: bool) -> UnwindRule {
    // stp x16, x30, [sp, #-16]!; then a jump, for which only x16 and x17 change. With `bti c` before the push
    // the second instruction is the push itself, and this rule wrong there.
    let pushed = if has_header && (4..HEADER).contains(&at) { 16 } else { 0 };
    UnwindRule {
        cfa: Cfa::Register(SP, pushed),
        return_address: RegisterRule::Register(LINK),
        registers: [].into(),
        signal: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_pushes_two_words_and_entries_none() {
        let cfa = |at, has_header| rule(at, has_header).cfa;
        assert_eq!(cfa(0, true), Cfa::Register(SP, 0));
        assert_eq!(cfa(8, true), Cfa::Register(SP, 16));
        assert_eq!(cfa(32, true), Cfa::Register(SP, 0));
        assert_eq!(cfa(8, false), Cfa::Register(SP, 0));
    }
}
