//! Procedure linkage tables, for addresses that no unwind table covers. Pure.

use nprof_object::ImageAddress;

use crate::arch::machine::Machine;
use crate::arch::rule::UnwindRule;

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
    /// Returns the rule at an image address. None if it is not in the section.
    pub(crate) fn rule(&self, address: ImageAddress, machine: Machine) -> Option<UnwindRule> {
        let at = address.offset_from(self.address).filter(|&at| at < self.size)?;
        Some(machine.plt_rule(at, self.has_header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_in_the_section_have_a_rule() {
        let plt = Plt { address: ImageAddress(0x1000), size: 0x40, has_header: true };
        let has = |at| plt.rule(ImageAddress(at), Machine::X86_64).is_some();
        assert_eq!([0xfff, 0x1000, 0x103f, 0x1040].map(has), [false, true, true, false]);
    }
}
