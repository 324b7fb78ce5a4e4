//! Unwind rules for procedure linkage tables that no unwind table covers, as post-link
//! optimizers leave them. Pure. The layouts are those of the x86-64 psABI, with and without
//! `endbr64`; they have no instruction boundary in common where their rules differ.

use nprof_object::ImageAddress;

use crate::arch::rule::{Cfa, UnwindRule};
use crate::arch::x86_64::frames::PUSHED_RETURN_ADDRESS;
use crate::arch::x86_64::registers::SP;

/// Bytes of an entry.
const ENTRY: u64 = 16;

/// A section with such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plt {
    /// Its image address.
    pub address: ImageAddress,
    /// Its bytes.
    pub size: u64,
    /// True if its first entry is the one the others jump to, to be resolved.
    pub has_header: bool,
}

impl Plt {
    /// The sections that hold such tables, and whether their first entry is special.
    pub const SECTIONS: [(&'static [u8], bool); 4] =
        [(b".plt", true), (b".plt.sec", false), (b".plt.got", false), (b".iplt", false)];

    /// The rule at an image address; `None` when it is not in here.
    pub fn rule(&self, address: ImageAddress) -> Option<UnwindRule> {
        let at = address.offset_from(self.address).filter(|&at| at < self.size)?;
        let pushed = match at {
            // push GOT[1]; jmp *GOT[2]: after the entry's own push.
            0..6 if self.has_header => 1,
            6..ENTRY if self.has_header => 2,
            // jmp *GOT[n]; push n; jmp header, or endbr64; push n; jmp header.
            _ if at % ENTRY >= 9 => 1,
            _ => 0,
        };
        Some(UnwindRule {
            cfa: Cfa::Register(SP, 8 * (1 + pushed)),
            return_address: PUSHED_RETURN_ADDRESS,
            registers: [].into(),
            signal: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cfa_follows_the_pushes_of_an_entry() {
        let plt = Plt { address: ImageAddress(0x1000), size: 0x40, has_header: true };
        let words = |plt: &Plt, at| match plt.rule(ImageAddress(at))?.cfa {
            Cfa::Register(SP, offset) => Some(offset / 8),
            _ => None,
        };
        let header = [0x1000, 0x1006].map(|at| words(&plt, at));
        assert_eq!(header, [Some(2), Some(3)]);
        // jmp, push, jmp; then with endbr64 before the push.
        let lazy = [0x1010, 0x1016, 0x101b, 0x1020, 0x1024, 0x1029].map(|at| words(&plt, at));
        assert_eq!(lazy, [Some(1), Some(1), Some(2), Some(1), Some(1), Some(2)]);
        assert_eq!((words(&plt, 0xfff), words(&plt, 0x1040)), (None, None));
        let second = Plt { has_header: false, ..plt };
        assert_eq!([0x1000, 0x1004].map(|at| words(&second, at)), [Some(1), Some(1)]);
    }
}
