//! The unwind rules of addresses that samples have met, for any process: a look-up of the mapping, of the
//! image and of its table takes several times as long. Pure.

use std::rc::Rc;

use nprof_object::RuntimeAddress;
use nprof_unwind::arch::rule::UnwindRule;
use nprof_unwind::unwind::CompactRule;

use crate::image::key::ImageIndex;

/// The number of rules, as a power of two.
const RULES_LOG: u32 = 12;

/// A rule at an address, in one state of an address space. Aligned, each takes one line of the processor's
/// cache: those of a sample have mostly left it since the last batch.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct CachedRule {
    /// The number of that state, see [`crate::convert::stack_cache::LatestStack`].
    space: u64,
    address: RuntimeAddress,
    pub(crate) compact: Option<CompactRule>,
    pub(crate) rule: Rc<UnwindRule>,
    /// True if a call ends after the byte at the address; None within if the code cannot be read. None if
    /// it was not looked up.
    pub(crate) is_after_call: Option<Option<bool>>,
    /// The image with the code.
    pub(crate) image: ImageIndex,
    /// The batch of samples in which the rule was last noted as used.
    pub(crate) batch: u64,
}

const _: () = assert!(size_of::<Option<CachedRule>>() == 64);

/// The rules, by a hash; one replaces another. Empty before the first.
#[derive(Debug, Default)]
pub(crate) struct RuleCache(Vec<Option<CachedRule>>);

impl RuleCache {
    /// Returns the rule at an address. None if it is not cached.
    #[inline]
    pub(crate) fn get(&mut self, space: u64, address: RuntimeAddress) -> Option<&mut CachedRule> {
        let cached = self.0.get_mut(index(space, address))?.as_mut()?;
        ((cached.space, cached.address) == (space, address)).then_some(cached)
    }

    /// Adds the rule at an address of an image that was used in this batch.
    pub(crate) fn insert(
        &mut self,
        space: u64,
        address: RuntimeAddress,
        rule: Rc<UnwindRule>,
        (image, batch): (ImageIndex, u64),
    ) {
        if self.0.is_empty() {
            self.0.resize(1 << RULES_LOG, None);
        }
        let compact = CompactRule::of(&rule);
        let is_after_call = None;
        let cached = CachedRule { space, address, compact, rule, is_after_call, image, batch };
        self.0[index(space, address)] = Some(cached);
    }
}

#[inline]
fn index(space: u64, RuntimeAddress(address): RuntimeAddress) -> usize {
    // Fibonacci hashing: the upper bits depend on all bits of the key.
    let key = (address ^ space.rotate_right(12)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (key >> (u64::BITS - RULES_LOG)) as usize
}

#[cfg(test)]
mod tests {
    use nprof_unwind::arch;
    use nprof_unwind::arch::rule::{Cfa, RegisterRule};

    use super::*;

    fn rule(offset: i64) -> Rc<UnwindRule> {
        let cfa = Cfa::Register(arch::SP, offset);
        let return_address = RegisterRule::AtCfaOffset(-8);
        Rc::new(UnwindRule { cfa, return_address, registers: [].into(), signal: false })
    }

    #[test]
    fn rule_is_that_of_the_address_in_this_space() {
        let mut cache = RuleCache::default();
        let address = RuntimeAddress;
        assert!(cache.get(1, address(0x1000)).is_none());
        for at in 0..1 << (RULES_LOG + 1) {
            cache.insert(1, address(at), rule(at as i64), (0, 0));
        }
        let found = (0..1 << (RULES_LOG + 1))
            .filter_map(|at| Some((at, cache.get(1, address(at))?.rule.clone())));
        let found: Vec<_> = found.collect();
        assert!(found.iter().all(|(at, found)| *found == rule(*at as i64)));
        assert!(found.len() > 1000, "{}", found.len());
        assert!(cache.get(2, address(found[0].0)).is_none(), "another space");
    }
}
